"""Buffers that data moves through: buckets, gathered layers, rings. Elements in, bytes out."""

from __future__ import annotations

from dataclasses import dataclass

# DeepSpeed's defaults, in elements (deepspeed/runtime/zero/config.py, 0.19).
REDUCE_BUCKET = 500_000_000
PREFETCH_BUCKET = 50_000_000
MAX_LIVE = 1_000_000_000
MAX_REUSE = 1_000_000_000
PERSISTENCE_THRESHOLD = 100_000
SUB_GROUP = 1_000_000_000


def ddp_bucket_bytes(gradient_bytes: float, *, as_view: bool) -> float:
    """Bytes of DDP's buckets beside the gradients. With gradient_as_bucket_view gradients live inside the buckets;
    without it (torch's default) buckets hold a second copy of all gradients (measured: +16.26 MiB where the
    gradients have 16.26 MiB)."""
    return 0.0 if as_view else gradient_bytes


def deepspeed_reduce_bytes(*, bucket: int | None, element: int, overlaps: bool) -> float:
    """Bytes of ZeRO's contiguous gradient buffer. It is allocated as large as it may be, whatever the model's size
    (stage_1_and_2.py, `setup_buckets`; stage3.py, `_setup_for_real_optimizer`). In stages 1 and 2 overlap_comm keeps
    two; stage 3 has one."""
    elements = float(bucket if bucket is not None else REDUCE_BUCKET)
    return elements * element * (2 if overlaps else 1)


def reduced_copy_elements(num_params: float, *, bucket: int | None) -> float:
    """Elements of the copy of a bucket's contents that is reduced, in pieces that belong to more than one rank
    (`allreduce_bucket`, `reduce_scatter_coalesced`)."""
    return min(num_params, float(bucket if bucket is not None else REDUCE_BUCKET))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveElements:
    """Elements of whole parameters under ZeRO-3."""

    kept: float
    """Between two uses."""
    prefetched: float
    """On their way to later modules, in one tensor; each is copied out of it when the first of them is needed, and the
    tensor stays until the last of them had its turn."""


def live_parameter_elements(
    num_params: float,
    *,
    max_live: int | None,
    max_reuse: int | None,
    prefetch: int | None,
    largest_unit: float,
) -> LiveElements:
    """What ZeRO-3 keeps whole. A module's parameters are released unless they are used again within
    stage3_max_reuse_distance elements: what lies between counts twice, once in the rest of the forward pass and once in
    the backward pass, so that half the distance stays. stage3_max_live_parameters bounds prefetching only
    (partitioned_param_coordinator.py, `__params_to_release`, `_fetch_sub_module_impl`)."""
    reuse = float(max_reuse if max_reuse is not None else MAX_REUSE)
    kept = min(num_params, max(largest_unit, reuse / 2))
    ahead = float(prefetch if prefetch is not None else PREFETCH_BUCKET)
    room = max(0.0, float(max_live if max_live is not None else MAX_LIVE) - kept)
    return LiveElements(kept=kept, prefetched=min(ahead, room, num_params - kept))


def ring_bytes(
    tokens: float, *, kv_width: float, head_and_values: float, element: int, ranks: int, tp: int
) -> float:
    """Bytes of ring attention for one layer at a time: keys and values being sent and received (two of each), and
    output and log-sum-exp merged in fp32 (torch.distributed.tensor.experimental, context_parallel)."""
    if ranks < 2:
        return 0.0
    exchanged = 2 * 2 * tokens * kv_width / tp * element
    merged = tokens * (head_and_values / tp) * 4
    return exchanged + merged


def pipeline_bytes(
    tokens: float, hidden: int, *, element: int, num_micro_batches: int, num_directions: int, tp: int
) -> float:
    """Bytes of receive buffers: torch's stages allocate one for each micro-batch and direction, before the first one
    arrives (torch/distributed/pipelining/stage.py, `_prepare_forward_infra` and `_prepare_backward_infra`)."""
    return num_directions * num_micro_batches * tokens * hidden * element / tp

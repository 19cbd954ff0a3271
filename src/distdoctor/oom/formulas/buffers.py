"""Buffers that data moves through: buckets, gathered layers, rings. Elements in, bytes out."""

from __future__ import annotations

# DeepSpeed's defaults, in elements (deepspeed/runtime/zero/config.py, 0.19).
REDUCE_BUCKET = 500_000_000
ALLGATHER_BUCKET = 500_000_000
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


def deepspeed_reduce_bytes(num_params: float, *, bucket: int | None, element: int, overlaps: bool) -> float:
    """Bytes of ZeRO's contiguous gradient buffer; overlap_comm keeps two (stage_1_and_2.py, ipg_buffer)."""
    elements = min(float(bucket if bucket is not None else REDUCE_BUCKET), num_params)
    return elements * element * (2 if overlaps else 1)


def live_parameter_elements(
    num_params: float, *, max_live: int | None, prefetch: int | None, largest_unit: float
) -> float:
    """Elements that ZeRO-3 may have gathered at once: stage3_max_live_parameters bounds what stays for reuse, the
    module in hand is always whole, and the prefetcher runs ahead of it. Never more than the model."""
    limit = float(max_live if max_live is not None else MAX_LIVE)
    ahead = float(prefetch if prefetch is not None else PREFETCH_BUCKET)
    return min(num_params, max(limit, largest_unit + ahead))


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

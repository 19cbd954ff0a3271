"""Private and unstable APIs of torch, one function each: the versions they were seen in, and None where they are absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel


def nccl_premul_sum(factor: float) -> object | None:
    """A ReduceOp that multiplies each contribution by `factor` and adds; NCCL's alone. Seen in torch 1.13 to 2.13."""
    import torch.distributed as dist

    make = getattr(dist, "_make_nccl_premul_sum", None)
    if make is None:
        return None
    made: object = make(factor)
    return made


def fused_rms_norm(
    x: torch.Tensor, shape: list[int], weight: torch.Tensor, eps: float | None
) -> torch.Tensor:
    """CUDA's RMSNorm as an op that has shapes and a gradient on every device: it saves its input and one fp32 number
    for each row. `aten._fused_rms_norm` is there in torch 2.9 to 2.13; before, the composite, which saves more."""
    import torch

    op = getattr(torch.ops.aten, "_fused_rms_norm", None)
    if op is None:
        return torch.nn.functional.rms_norm(x, shape, weight, eps)
    out: torch.Tensor = op(x, shape, weight, eps)[0]
    return out


def flash_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """CUDA's causal flash attention over (batch, heads, sequence, size), as an op that has shapes and a gradient on
    every device: `aten._scaled_dot_product_flash_attention`, in torch 2.1 to 2.13."""
    import torch

    out: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False)[0]
    return out


def checkpoint_wrapper(module: nn.Module, context_fn: Callable[[], Any] | None) -> nn.Module:
    """A module whose forward is checkpointed without reentrance; a state dict keeps its names. In torch 1.12 to 2.13."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper as wrap

    more = {"context_fn": context_fn} if context_fn is not None else {}
    wrapped: nn.Module = wrap(module, preserve_rng_state=False, **more)
    return wrapped


def keep_buckets_as_built(module: DistributedDataParallel) -> None:
    """Let DDP not rebuild its buckets in the order of the first backward pass: that reads what rank 0 has sent.
    `DistributedDataParallel.reducer` is there in torch 1.0 to 2.13."""

    class Reducer:
        def __init__(self, reducer: Any) -> None:
            self._reducer = reducer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reducer, name)

        def _rebuild_buckets(self) -> bool:
            return False

    module.reducer = Reducer(module.reducer)

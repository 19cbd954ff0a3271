"""What TorchTitan computes with kernels that are compiled or CUDA's own: stand-ins that keep the same tensors."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from distdoctor.oom.simulation.child.titan.interface import Titan
from distdoctor.oom.training.base import Kernels
from distdoctor.oom.training.norms import FusedRMSNorm
from distdoctor.torch_private.attention import flash_attention

NOTES = (
    "FlexAttention is counted as the flash kernel, which keeps the same tensors; masks of blocks are left out",
    "RMSNorm is counted as CUDA's fused kernel",
)


@contextlib.contextmanager
def stand_ins(titan: Titan, kernels: Kernels = Kernels.LIKE_CUDA) -> Iterator[None]:
    """TorchTitan's attention and norm keep what CUDA's kernels keep, or, natively, are the CPU's, for attention is
    compiled. Enter it before the model is built."""
    replaced: list[tuple[Any, Callable[..., torch.Tensor]]] = [(titan.attention, _native_attention)]
    if kernels is Kernels.LIKE_CUDA:
        replaced = [(titan.attention, _flash_attention), (titan.norm, _norm)]
    originals = [owner.forward for owner, _ in replaced]
    try:
        for (owner, forward), original in zip(replaced, originals, strict=True):
            # TorchTitan finds layouts by the names of the original's arguments.
            owner.forward = functools.wraps(original)(forward)
        yield
    finally:
        for (owner, _), original in zip(replaced, originals, strict=True):
            owner.forward = original


def _native_attention(
    _self: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, **_more: Any
) -> torch.Tensor:
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    out = functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=scale, enable_gqa=k.shape[1] != q.shape[1]
    )
    return out.transpose(1, 2)


def _flash_attention(
    _self: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, **_more: Any
) -> torch.Tensor:
    """(batch, sequence, heads, size), and the result in the same layout."""
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return flash_attention(q, k, v, scale=scale).transpose(1, 2)


def _norm(self: Any, x: torch.Tensor) -> torch.Tensor:
    return FusedRMSNorm.forward(self, x)

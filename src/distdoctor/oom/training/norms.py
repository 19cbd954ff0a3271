"""Normalisation: torch's modules, or stand-ins under fake tensors that save what CUDA's fused kernels save.

`nn.RMSNorm` is a composite of several ops on the CPU and saves all their results; CUDA's `_fused_rms_norm` saves its
input and one number for each row. On a Llama block of 8B size the difference is a third of all activations.
"""

from __future__ import annotations

import torch
from torch import nn

from distdoctor.oom.shape import ModelShape, Norm
from distdoctor.oom.training.base import Kernels
from distdoctor.torch_private import fused_rms_norm

_EPS = 1e-5


class FusedRMSNorm(nn.RMSNorm):
    """RMSNorm by CUDA's op, which has shapes and gradients on every device."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, hidden) to the same."""
        return fused_rms_norm(x, list(self.normalized_shape), self.weight, self.eps)


def make_norm(
    shape: ModelShape, kernels: Kernels, width: int | None = None, *, has_weight: bool = True
) -> nn.Module:
    """The norm of this model over `width`, without a bias, or over the hidden size."""
    size = width or shape.hidden_size
    if shape.norm is Norm.LAYERNORM or not has_weight:
        return nn.LayerNorm(size, eps=_EPS, elementwise_affine=has_weight, bias=width is None)
    kind = FusedRMSNorm if kernels is Kernels.LIKE_CUDA else nn.RMSNorm
    return kind(size, eps=_EPS)

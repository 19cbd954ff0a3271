"""Normalisation: torch's modules, or stand-ins under fake tensors that save what CUDA's fused kernels save.

`nn.RMSNorm` is a composite of several ops on the CPU (so is `aten._fused_rms_norm`, as of torch 2.13) and saves all
their results; CUDA's kernel saves its input and one number for each row. On a Llama block of 8B size the difference is a third of all activations.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial

from distdoctor.oom.shape import ModelShape, Norm
from distdoctor.oom.training.base import Kernels

_EPS = 1e-5


class FusedRMSNorm(nn.RMSNorm):
    """RMSNorm that allocates and saves what CUDA's fused kernel does, and computes nothing: for fake tensors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, hidden) to the same."""
        weight = self.weight
        if not isinstance(x, DTensor):
            local: torch.Tensor = _Fused.apply(x, weight)
            return local
        # Of a sharded sequence each rank normalises its own tokens, and the weight's gradients are added up.
        if isinstance(weight, DTensor):
            weight = weight.to_local(grad_placements=[Partial()] * x.device_mesh.ndim)
        out = _Fused.apply(x.to_local(), weight)
        return DTensor.from_local(out, x.device_mesh, x.placements, run_check=False)


class _Fused(torch.autograd.Function):
    """`aten::_fused_rms_norm` and its backward (aten/src/ATen/native/cuda/layer_norm_kernel.cu): saved are the input,
    the weight, and one fp32 number for each row."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The output has the input's type."""
        inverse = torch.empty((*x.shape[:-1], 1), dtype=torch.float32, device=x.device)
        ctx.save_for_backward(x, weight, inverse)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *_gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of input and weight."""
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def make_norm(
    shape: ModelShape, kernels: Kernels, width: int | None = None, *, has_weight: bool = True
) -> nn.Module:
    """The norm of this model over `width`, without a bias, or over the hidden size."""
    size = width or shape.hidden_size
    if shape.norm is Norm.LAYERNORM or not has_weight:
        return nn.LayerNorm(size, eps=_EPS, elementwise_affine=has_weight, bias=width is None)
    kind = FusedRMSNorm if kernels is Kernels.LIKE_CUDA else nn.RMSNorm
    return kind(size, eps=_EPS)

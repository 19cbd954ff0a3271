"""The MLP of a layer: gated (SwiGLU), plain (GELU), or experts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from distdoctor.oom.shape import ModelShape

if TYPE_CHECKING:
    from distdoctor.oom.training.model import ModelOptions


class FeedForward(nn.Module):
    """(…, hidden) to the same."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through the layer's MLP."""
        raise NotImplementedError


class GatedMLP(FeedForward):
    """silu(w1 x) * (w3 x), then w2."""

    def __init__(self, hidden: int, width: int, *, bias: bool) -> None:
        super().__init__()
        self.w1 = nn.Linear(hidden, width, bias=bias)
        self.w2 = nn.Linear(width, hidden, bias=bias)
        self.w3 = nn.Linear(hidden, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, hidden) to the same."""
        out: torch.Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return out


class PlainMLP(FeedForward):
    """gelu(w1 x), then w2."""

    def __init__(self, hidden: int, width: int, *, bias: bool) -> None:
        super().__init__()
        self.w1 = nn.Linear(hidden, width, bias=bias)
        self.w2 = nn.Linear(width, hidden, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, hidden) to the same."""
        out: torch.Tensor = self.w2(F.gelu(self.w1(x)))
        return out


def make_feed_forward(shape: ModelShape, layer: int, options: ModelOptions) -> FeedForward:
    """The MLP of layer number `layer`."""
    if shape.has_experts(layer):
        from distdoctor.oom.training.experts import MixtureOfExpertsLayer

        experts: FeedForward = MixtureOfExpertsLayer(shape, options)
        return experts
    return make_mlp(shape, shape.ffn_size)


def make_mlp(shape: ModelShape, width: int) -> FeedForward:
    """A dense MLP of this model, `width` wide inside."""
    kind = GatedMLP if shape.is_gated else PlainMLP
    return kind(shape.hidden_size, width, bias=shape.has_mlp_bias)

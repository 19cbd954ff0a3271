"""A linear layer whose graph keeps the parameter itself.

torch's keeps a transposed view, and with it the memory of a parameter that was gathered and should be released. While
ZeRO-3 runs, DeepSpeed replaces `torch.nn.functional.linear` the same way (deepspeed/runtime/zero/linear.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        out = x.matmul(weight.t())
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        x, weight = ctx.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        of_x = gradient.matmul(weight) if ctx.needs_input_grad[0] else None
        of_weight = rows.t().matmul(x.reshape(-1, x.shape[-1])) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, rows.sum(0) if ctx.has_bias else None


@contextlib.contextmanager
def linear_that_saves_the_parameter() -> Iterator[None]:
    """Let every linear layer be one."""

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        out: torch.Tensor = _Linear.apply(x, weight, bias)
        return out

    before = F.linear
    F.linear = linear  # type: ignore[assignment]
    try:
        yield
    finally:
        F.linear = before

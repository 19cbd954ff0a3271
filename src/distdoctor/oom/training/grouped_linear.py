"""One linear layer for each expert over rows sorted by expert, with the tensors that CUDA's grouped product keeps.

`torch._grouped_mm` is one kernel over all experts: it gives one result, keeps its two operands for the backward pass
(tools/autograd/derivatives.yaml) and gives one gradient for each. It needs bf16, rows of 16 bytes, and a GPU; its shape
function does not take fp32. A loop of `mm` over experts would keep a view of the input for each, and make a gradient of
all weights for each expert. This function allocates what the kernel allocates, on every device and for every dtype:
products are written straight into slices of the one result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch


def grouped_linear(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, per_expert: Sequence[int]
) -> torch.Tensor:
    """(rows, in) to (rows, out). weight: (experts, out, in); bias: (experts, out); `per_expert` rows for each."""
    out: torch.Tensor = _GroupedLinear.apply(rows, weight, bias, tuple(per_expert))
    return out


class _GroupedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, sizes: tuple[int, ...]
    ) -> torch.Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.sizes, ctx.has_bias = sizes, bias is not None
        out = rows.new_empty(rows.shape[0], weight.shape[1])
        for experts, span, shape in _runs(sizes):
            product = out[span].view(*shape, -1)
            torch.bmm(rows[span].view(*shape, -1), weight[experts].transpose(1, 2), out=product)
            if bias is not None:
                product.add_(bias[experts].unsqueeze(1))
        return out

    @staticmethod
    def backward(
        ctx: Any, grad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        grad = grad.contiguous()
        to_rows, to_weight = torch.empty_like(rows), torch.empty_like(weight)
        to_bias = weight.new_empty(weight.shape[:2]) if ctx.has_bias else None
        for experts, span, shape in _runs(ctx.sizes):
            arrived = grad[span].view(*shape, -1)
            torch.bmm(arrived, weight[experts], out=to_rows[span].view(*shape, -1))
            torch.bmm(arrived.transpose(1, 2), rows[span].view(*shape, -1), out=to_weight[experts])
            if to_bias is not None:
                torch.sum(arrived, 1, out=to_bias[experts])
        return to_rows, to_weight, to_bias, None


def _runs(sizes: Sequence[int]) -> Iterator[tuple[slice, slice, tuple[int, int]]]:
    """Neighbours with the same number of rows, which one batched product can take: their experts, their rows, and
    (experts, rows of each)."""
    first, start = 0, 0
    while first < len(sizes):
        last = first
        while last < len(sizes) and sizes[last] == sizes[first]:
            last += 1
        count, each = last - first, sizes[first]
        yield slice(first, last), slice(start, start + count * each), (count, each)
        first, start = last, start + count * each

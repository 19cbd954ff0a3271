"""One linear layer for each expert over rows sorted by expert, with the tensors that CUDA's grouped product keeps.

`torch._grouped_mm` is one kernel over all experts: it gives one result, keeps its two operands for the backward pass
(tools/autograd/derivatives.yaml) and gives one gradient for each. It needs bf16, rows of 16 bytes, and a GPU; its shape
function does not take fp32. A loop of `mm` over experts would keep a view of the input for each, and make a gradient of
all weights for each expert. This function allocates what the kernel allocates, on every device and for every dtype:
products are written straight into slices of the one result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
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
        for run in _runs(sizes):
            product = run.of(out)
            torch.bmm(run.of(rows), weight[run.experts].transpose(1, 2), out=product)
            if bias is not None:
                product.add_(bias[run.experts].unsqueeze(1))
        return out

    @staticmethod
    def backward(
        ctx: Any, grad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        grad = grad.contiguous()
        to_rows, to_weight = torch.empty_like(rows), torch.empty_like(weight)
        to_bias = weight.new_empty(weight.shape[:2]) if ctx.has_bias else None
        for run in _runs(ctx.sizes):
            torch.bmm(run.of(grad), weight[run.experts], out=run.of(to_rows))
            torch.bmm(run.of(grad).transpose(1, 2), run.of(rows), out=to_weight[run.experts])
            if to_bias is not None:
                torch.sum(run.of(grad), 1, out=to_bias[run.experts])
        return to_rows, to_weight, to_bias, None


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring experts with the same number of rows, which one batched product can take."""

    experts: slice
    start: int
    count: int
    rows_each: int

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Their rows as (experts, rows of each, width); an expert may have none."""
        part = rows[self.start : self.start + self.count * self.rows_each]
        return part.view(self.count, self.rows_each, rows.shape[1])


def _runs(sizes: Sequence[int]) -> Iterator[_Run]:
    first, start = 0, 0
    for rows_each, experts in groupby(sizes):
        count = len(list(experts))
        yield _Run(slice(first, first + count), start, count, rows_each)
        first, start = first + count, start + count * rows_each

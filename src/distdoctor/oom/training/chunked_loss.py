"""Cross entropy that never has all logits at once: the output layer and the loss run over one chunk of the tokens at a
time, forward and backward. What remains is a gradient of the hidden states and one of the output's weight, which wait
for the backward pass. TorchTitan's chunked loss and Liger's fused linear cross entropy do the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate

from distdoctor.oom.formulas.logits import LOSS_CHUNKS


class Output(nn.Linear):
    """The output layer: logits, or, with labels, the mean loss over all tokens at once."""

    gathers_logits = False
    """With tensor parallelism, but without loss parallelism: the vocabulary is gathered."""

    def forward(self, hidden: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """hidden: (batch, sequence, hidden); labels: (batch, sequence), int64."""
        if labels is None:
            return super().forward(hidden)
        loss: torch.Tensor = _ChunkedCrossEntropy.apply(hidden, self.weight, labels, self.gathers_logits)
        return loss


def loss_of_hidden(output: Output) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A loss function over hidden states, for whoever calls the last stage of a pipeline and its loss apart; set
    `keeps_hidden` of the stage's Transformer, so that it gives hidden states."""

    def loss(hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = output(hidden, labels)
        return value

    return loss


def told_before_output(
    model: nn.Module, begins: Callable[[], None]
) -> contextlib.AbstractContextManager[object]:
    """Around a forward pass with labels: `begins` is called when the output layer is."""
    handle: contextlib.AbstractContextManager[object] = model.get_submodule(
        "output"
    ).register_forward_pre_hook(lambda *_: begins())
    return handle


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, gathers: bool
    ) -> torch.Tensor:
        ctx.to_hidden = torch.empty_like(hidden)
        ctx.to_weight = None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        parts = (each.chunk(LOSS_CHUNKS, dim=1) for each in (hidden, labels, ctx.to_hidden))
        for part, part_labels, part_grad in zip(*parts, strict=True):
            with torch.enable_grad():
                loss, grad, weight_grad = _one_chunk(part, weight, part_labels, labels.numel(), gathers)
            total += loss
            part_grad.copy_(grad)
            ctx.to_weight = weight_grad if ctx.to_weight is None else ctx.to_weight.add_(weight_grad)
            del loss, grad, weight_grad
        return total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        to_hidden, to_weight = ctx.to_hidden, ctx.to_weight
        ctx.to_hidden = ctx.to_weight = None
        for each in (to_hidden, to_weight):
            _local(each).mul_(grad)
        return to_hidden, to_weight, None, None


def _one_chunk(
    hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, num_tokens: int, gathers: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The chunk's part of the mean loss, and its gradients: of the hidden states what this rank contributes."""
    weight, hidden = weight.detach().requires_grad_(), hidden.detach()
    if isinstance(weight, DTensor):
        hidden = DTensor.from_local(hidden, weight.device_mesh, [Replicate()], run_check=False)
    hidden.requires_grad_()
    logits = F.linear(hidden, weight)
    if gathers and isinstance(logits, DTensor):
        logits = logits.redistribute(placements=[Replicate()]).to_local()
    loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum") / num_tokens
    del logits
    grad, weight_grad = torch.autograd.grad(loss, (hidden, weight))
    if isinstance(grad, DTensor):
        grad = grad.redistribute(placements=[Partial()])
    return _local(loss.detach()), _local(grad), weight_grad


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor

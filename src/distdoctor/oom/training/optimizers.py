"""torch's optimizers, with the loop that was asked for, and fp32 master copies for 16-bit parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from distdoctor.oom.job import Job
from distdoctor.oom.settings import Optimizer, OptimizerLoop, Precision
from distdoctor.oom.training.base import CannotRunError

_LEARNING_RATE = 1e-4


def optimizer_class(job: Job) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """The class and its arguments. Raises CannotRunError for an optimizer that torch does not have."""
    loop: dict[str, Any] = {
        OptimizerLoop.FOREACH: {"foreach": True},
        OptimizerLoop.FUSED: {"fused": True},
        OptimizerLoop.FOR_LOOP: {"foreach": False},
    }[job.optimizer_loop]
    known: dict[Optimizer, tuple[str, dict[str, Any]]] = {
        Optimizer.ADAMW: ("AdamW", loop),
        Optimizer.SGD: ("SGD", loop),
        Optimizer.SGD_MOMENTUM: ("SGD", {**loop, "momentum": 0.9}),
        Optimizer.ADAFACTOR: ("Adafactor", {"foreach": job.optimizer_loop is OptimizerLoop.FOREACH}),
        Optimizer.MUON: ("Muon", {}),
    }
    if job.optimizer is Optimizer.MUON and job.shape is not None:
        raise CannotRunError(
            "torch's Muon steps matrices alone, and every model has vectors, too; beside AdamW it is estimated only"
        )
    name, arguments = known.get(job.optimizer, ("", {}))
    kind = getattr(torch.optim, name, None) if name else None
    if kind is None:
        raise CannotRunError(
            f"torch {torch.__version__} has no optimizer {job.optimizer.value}; it is estimated only"
        )
    return kind, {"lr": _LEARNING_RATE, **arguments}


def make_optimizer(job: Job, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of a job over these parameters."""
    trainable = [each for each in parameters if each.requires_grad]
    kind, arguments = optimizer_class(job)
    if job.precision is Precision.MASTER:
        return MasterOptimizer(trainable, kind, arguments)
    return kind(_groups(trainable), **arguments)


def _groups(parameters: list[nn.Parameter]) -> list[dict[str, Any]]:
    """Optimizers that walk over lists refuse lists with both: plain tensors and DTensors are stepped apart."""
    kinds = (
        [each for each in parameters if isinstance(each, DTensor) is distributed]
        for distributed in (True, False)
    )
    return [{"params": kind} for kind in kinds if kind]


class MasterOptimizer(torch.optim.Optimizer):
    """Steps fp32 copies of 16-bit parameters: 2 + 2 + 12 bytes with Adam. Gradients are cast for the step only."""

    def __init__(
        self, parameters: list[nn.Parameter], kind: type[torch.optim.Optimizer], arguments: dict[str, Any]
    ) -> None:
        super().__init__(parameters, {})
        self.copies = [nn.Parameter(each.detach().float()) for each in parameters]
        self.inner = kind(_groups(self.copies), **arguments)
        self._parameters = parameters

    def step(self, closure: Any = None) -> None:  # noqa: ARG002
        """One step; a closure is not called."""
        with torch.no_grad():
            for parameter, copy in zip(self._parameters, self.copies, strict=True):
                copy.grad = parameter.grad.float() if parameter.grad is not None else None
            self.inner.step()
            for parameter, copy in zip(self._parameters, self.copies, strict=True):
                copy.grad = None
                parameter.copy_(copy)


def states_of(optimizer: torch.optim.Optimizer) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
    """Every tensor that the optimizer keeps beside the parameters, with the parameter that it belongs to."""
    if isinstance(optimizer, MasterOptimizer):
        for parameter, copy in zip(optimizer.param_groups[0]["params"], optimizer.copies, strict=True):
            yield parameter, copy
            yield from ((parameter, each) for each in _tensors(optimizer.inner, copy))
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            yield from ((parameter, each) for each in _tensors(optimizer, parameter))


def _tensors(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> list[torch.Tensor]:
    state = optimizer.state.get(parameter, {})
    return [each for each in state.values() if isinstance(each, torch.Tensor)]

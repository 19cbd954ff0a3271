"""What a data-parallel strategy does to a model: wraps it, and brings the optimizer that goes with it.

One file for each strategy; this one holds what they share, and the strategy of a rank that is alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import torch
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.settings import Precision
from distdoctor.oom.training.base import NoObserver, Observer, World
from distdoctor.oom.training.expert_parallel import average_gradients
from distdoctor.oom.training.model import Transformer
from distdoctor.oom.training.optimizers import make_optimizer, states_of


class DataParallelism:
    """Modules as they are called, and the optimizer. `modules[i]` stands for `models[i]`."""

    def __init__(self, models: Sequence[Transformer], world: World) -> None:
        self.world = world
        self.models = list(models)
        self.modules: list[nn.Module] = list(models)
        self.optimizer: torch.optim.Optimizer | None = None
        self.observer: Observer = NoObserver()
        """Is told what a strategy's own buffers are for; set before `shard`."""

    def shard(self) -> None:
        """While parameters are on the meta device: cut them."""

    def prepare(self) -> None:
        """Once parameters have storages: wrap modules, make the optimizer."""
        self.optimizer = make_optimizer(self.world.job, self.parameters())

    def parameters(self) -> list[nn.Parameter]:
        """What the optimizer steps; tied parameters once."""
        return list(dict.fromkeys(each for model in self.models for each in model.parameters()))

    def computing(self) -> contextlib.AbstractContextManager[object]:
        """Around forward and loss: autocast, where a mixed precision is not the strategy's own."""
        if self.world.job.precision is Precision.MIXED:
            autocast: contextlib.AbstractContextManager[object] = torch.autocast(
                self.world.device.type, torch.bfloat16
            )
            return autocast
        return contextlib.nullcontext()

    def micro_batch(self, *, is_last: bool) -> contextlib.AbstractContextManager[object]:  # noqa: ARG002
        """Around forward and backward of one micro-batch; DDP reduces in the last one only."""
        return contextlib.nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """The backward pass of one micro-batch."""
        loss.backward()

    def gradients(self) -> list[torch.Tensor]:
        """What is accumulated."""
        return [each.grad for each in self.parameters() if each.grad is not None]

    def states(self) -> Iterable[tuple[nn.Parameter, torch.Tensor]]:
        """What the optimizer keeps, with the parameter that it belongs to."""
        return states_of(self.optimizer) if self.optimizer is not None else ()

    def label_gradients(self) -> None:
        """Tell what is accumulated."""
        self.observer.label(self.gradients(), Category.GRADIENTS)
        for parameter in self.parameters():
            if parameter.grad is not None:
                self.observer.label((parameter.grad,), Category.GRADIENTS, of=parameter)

    def label_states(self) -> None:
        """Tell what the optimizer keeps."""
        for parameter, state in self.states():
            self.observer.label((state,), Category.OPTIMIZER, of=parameter)

    def reduce_experts(self) -> None:
        """Average gradients of experts where the strategy itself does not."""
        average_gradients(self.models, self.world)

    def step(self) -> None:
        """The optimizer's step; gradients are dropped after it."""
        if self.optimizer is not None:
            self.reduce_experts()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

    def close(self) -> None:
        """Give up what was patched or opened."""

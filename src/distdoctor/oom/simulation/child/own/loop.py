"""The training loop around a user's own module: their inputs, their forward, their loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.simulation.child.own.batch import Batch
from distdoctor.oom.simulation.child.own.errors import users_code
from distdoctor.oom.simulation.child.own.loss import loss_of
from distdoctor.oom.training.base import Observer, Program
from distdoctor.oom.training.data_parallel import DataParallelism


class OwnLoop(Program):
    """Accumulates over micro-batches, then steps."""

    def __init__(
        self,
        data: DataParallelism,
        batch: Batch,
        num_micro_batches: int,
        *,
        folder: Path,
        names: Mapping[int, str],
    ) -> None:
        self._data = data
        self._batch = batch
        self._num_micro_batches = num_micro_batches
        self._folder = folder
        self._names = names
        self.loss_words = ""
        """What was taken for the loss."""
        self.num_without_gradient = 0
        """Trainable parameters that no gradient reached."""

    def step(self, number: int, observer: Observer) -> float | None:
        """One optimizer step. Raises OwnModuleError for whatever the module raises."""
        for micro_batch in range(self._num_micro_batches):
            with self._data.micro_batch(is_last=micro_batch == self._num_micro_batches - 1):
                self._micro_batch(number, micro_batch, observer)
            self._data.label_gradients()
        self.num_without_gradient = _num_without_gradient(self.parameters())
        observer.at(Phase.OPTIMIZER_STEP, step=number)
        with users_code("the optimizer's step", self._folder, self._names):
            self._data.step()
        self._data.label_states()
        return None

    def _micro_batch(self, number: int, micro_batch: int, observer: Observer) -> None:
        observer.at(Phase.DATA, step=number, micro_batch=micro_batch)
        batch = self._batch.fresh()
        observer.label(batch.tensors, Category.INPUTS)
        observer.at(Phase.FORWARD, step=number, micro_batch=micro_batch)
        with self._data.computing():
            with users_code("forward", self._folder, self._names):
                output = self._data.modules[0](*batch.args, **batch.kwargs)
            observer.at(Phase.LOSS, step=number, micro_batch=micro_batch)
            loss, self.loss_words = loss_of(output)
        # As in most loops the output is there while the backward pass runs.
        observer.at(Phase.BACKWARD, step=number, micro_batch=micro_batch)
        with users_code("backward", self._folder, self._names):
            self._data.backward(loss if loss.dim() == 0 else loss.sum())
        del output

    def parameters(self) -> Iterable[nn.Parameter]:
        """What the optimizer steps."""
        return self._data.parameters()

    def close(self) -> None:
        """Give up what was patched or opened."""
        self._data.close()


def _num_without_gradient(parameters: Iterable[nn.Parameter]) -> int:
    return sum(1 for each in parameters if each.requires_grad and each.grad is None)

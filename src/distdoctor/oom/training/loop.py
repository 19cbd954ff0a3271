"""The plain training loop of a rank that holds the whole depth of the model: data, forward, loss, backward, step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.training.base import Observer, Program, World
from distdoctor.oom.training.chunked_loss import told_before_output
from distdoctor.oom.training.context_parallel import around_step
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.loss import around_loss, cross_entropy


class TrainingLoop(Program):
    """Accumulates over micro-batches, then steps."""

    def __init__(self, data_parallelism: DataParallelism, world: World) -> None:
        self._data = data_parallelism
        self._world = world

    def step(self, number: int, observer: Observer) -> float | None:
        """One optimizer step."""
        job = self._world.job
        loss: torch.Tensor | None = None
        for micro_batch in range(job.num_micro_batches):
            is_last = micro_batch == job.num_micro_batches - 1
            with self._data.micro_batch(is_last=is_last):
                # The loss of the micro-batch before lives until the new one is there, as in any loop.
                loss = self._micro_batch(number, micro_batch, observer)
            self._data.label_gradients()
        observer.at(Phase.OPTIMIZER_STEP, step=number)
        value = None if self._world.is_fake or loss is None else float(loss.detach())
        try:
            self._data.step()
        finally:
            # A step that ran out of memory has made some of them.
            self._data.label_states()
        return value

    def _micro_batch(self, number: int, micro_batch: int, observer: Observer) -> torch.Tensor:
        job = self._world.job
        observer.at(Phase.DATA, step=number, micro_batch=micro_batch)
        tokens = make_tokens(self._world)
        labels = make_tokens(self._world)
        observer.label((tokens, labels), Category.INPUTS)
        module = self._data.modules[0]
        with around_step(self._world, self._data.models, (tokens, labels)):
            observer.at(Phase.FORWARD, step=number, micro_batch=micro_batch)
            with around_loss(job):
                with self._data.computing():
                    if job.fused_loss:
                        logits = None
                        with told_before_output(
                            self._data.models[0],
                            lambda: observer.at(Phase.LOSS, step=number, micro_batch=micro_batch),
                        ):
                            loss = module(tokens, labels)
                    else:
                        logits = module(tokens)
                        observer.at(Phase.LOSS, step=number, micro_batch=micro_batch)
                        loss = cross_entropy(logits, labels)
                if job.said.frees_logits:
                    del logits
                observer.at(Phase.BACKWARD, step=number, micro_batch=micro_batch)
                self._data.backward(loss)
        return loss.detach()

    def parameters(self) -> Iterable[nn.Parameter]:
        """What the optimizer steps."""
        return self._data.parameters()

    def close(self) -> None:
        """Give up what was patched or opened."""
        self._data.close()


def make_tokens(world: World, *, num_micro_batches: int = 1) -> torch.Tensor:
    """Token ids of whole sequences, (num_micro_batches x micro_batch, sequence) int64: every data-parallel rank draws its
    own."""
    job = world.job
    size = (num_micro_batches * job.micro_batch, job.seq_len)
    if world.is_fake or not world.communicates:
        return torch.zeros(size, dtype=torch.long, device=world.device)
    return torch.randint(job.known_shape.vocab_size, size, device=world.device)

"""ZeRO-3 after DeepSpeed's design (deepspeed/runtime/zero/stage3.py, 0.19.8), in plain collectives.

Every parameter is cut into equal shards, which lie one after another in a flat tensor; gathering.py makes parameters
whole for their module's turn. Gradients pass through a bucket that is there from the start, and are kept, reduced, in a
flat tensor that is there from the start too. The step goes over sub-groups of parameters, so that fp32 gradients exist
for one at a time.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.formulas.buffers import (
    MAX_LIVE,
    MAX_REUSE,
    PERSISTENCE_THRESHOLD,
    PREFETCH_BUCKET,
    REDUCE_BUCKET,
    SUB_GROUP,
)
from distdoctor.oom.settings import Offload
from distdoctor.oom.training.base import World
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.flat_partition import (
    check_can_run,
    data_parallel_group,
    gradient_norm,
    reduce_scatter,
)
from distdoctor.oom.training.gathering import Gathering, GatheringLimits, Shard
from distdoctor.oom.training.linear_for_gathered import linear_that_saves_the_parameter
from distdoctor.oom.training.master_partition import MasterPartition, masters_of
from distdoctor.oom.training.model import Transformer


class Zero3(DataParallelism):
    """Everything is partitioned, parameter by parameter."""

    def __init__(self, models: Sequence[Transformer], world: World) -> None:
        super().__init__(models, world)
        check_can_run(world)
        self._group, self._rank, self._size = data_parallel_group(world)
        self._whole_shapes: list[torch.Size] = []
        self._is_cut = False
        self._is_last = True
        self._micro_batch = 0
        self._waiting: list[nn.Parameter] = []
        self._filled = 0
        self._cleanup = contextlib.ExitStack()

    def shard(self) -> None:
        """As under zero.Init: cut before anything is whole."""
        parameters = self.parameters()
        self._whole_shapes = [each.shape for each in parameters]
        if self.world.job.said.meta_init is not False:
            self._is_cut = True
            for parameter in parameters:
                share = self._count(parameter.shape)
                parameter.data = torch.empty(share, dtype=parameter.dtype, device=parameter.device)

    def prepare(self) -> None:
        """Lay the shards into one flat tensor, copy it to fp32, make the buffers, and gather from now on."""
        said, job = self.world.job.said, self.world.job
        self._shapes = dict(zip(self.parameters(), self._whole_shapes, strict=True))
        self._offloads = job.offload_optimizer is not Offload.NONE
        home = torch.device("cpu") if job.offload_params is not Offload.NONE else self.world.device
        self._lay_out(home)
        self._subgroups = self._split(SUB_GROUP)
        self._masters = [
            MasterPartition(self._flat[start:end], self.world, offloads=self._offloads)
            for _, start, end in self._subgroups
        ]
        some = self._flat
        size = REDUCE_BUCKET if said.reduce_bucket_elements is None else said.reduce_bucket_elements
        self._bucket = torch.empty(size, dtype=some.dtype, device=self.world.device)
        self.observer.label([self._bucket], Category.COMMUNICATION)
        kept_at = torch.device("cpu") if self._offloads else self.world.device
        self._kept: torch.Tensor | None = None
        if not (self._offloads and self.world.is_fake):
            self._kept = torch.zeros(some.numel(), dtype=some.dtype, device=kept_at)
            self.observer.label([self._kept], Category.GRADIENTS)
        self._gathering = Gathering(
            self.models,
            [
                Shard(parameter, shape, self._flat.narrow(0, start, self._count(shape)))
                for (parameter, shape), start in zip(self._shapes.items(), self._starts, strict=True)
            ],
            group=self._group,
            limits=GatheringLimits(
                persistent=_or(said.persistence_threshold_elements, PERSISTENCE_THRESHOLD),
                prefetch=_or(said.prefetch_bucket_elements, PREFETCH_BUCKET),
                live=_or(said.max_live_elements, MAX_LIVE),
                reuse=_or(said.max_reuse_elements, MAX_REUSE),
            ),
            observer=self.observer,
            device=self.world.device,
        )
        self._cleanup.callback(self._gathering.close)
        self._cleanup.enter_context(linear_that_saves_the_parameter())
        for parameter in self._shapes:
            self._cleanup.callback(parameter.register_post_accumulate_grad_hook(self._accumulated).remove)

    def computing(self) -> contextlib.AbstractContextManager[object]:
        """16-bit parameters need no autocast."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        """Gradients are reduced in every micro-batch."""
        self._is_last = is_last
        yield
        self._after_backward()
        self._micro_batch = 0 if is_last else self._micro_batch + 1

    def backward(self, loss: torch.Tensor) -> None:
        """The mean over micro-batches; what is left in the bucket is reduced while the caller still holds the logits."""
        with warnings.catch_warnings():
            # Of the embedding: its hook before the backward pass is all that is wanted.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            (loss / self.world.job.num_micro_batches).backward()
        self._after_backward()

    def gradients(self) -> list[torch.Tensor]:
        """This rank's shards."""
        return [self._kept] if self._kept is not None and not self._offloads else []

    def states(self) -> Iterable[tuple[nn.Parameter, torch.Tensor]]:
        """The fp32 shards and their moments."""
        return masters_of(self._masters)

    def step(self) -> None:
        """Step sub-group by sub-group, then gather what stays whole."""
        self._gathering.release_all()
        if self._kept is not None and not self._offloads:
            torch.isinf(self._kept).any().logical_or_(torch.isnan(self._kept).any())
            gradient_norm(self._kept_shards(), self._group)
        for master, (numbers, start, end) in zip(self._masters, self._subgroups, strict=True):
            if self._kept is not None and not self._offloads:
                shards = self._kept_shards()
                master.receive(torch.cat([shards[number] for number in numbers]))
            master.step()
            master.copy_to(self._flat[start:end])
        self._gathering.gather_persistent()

    def close(self) -> None:
        """Hooks off, torch's linear back."""
        self._cleanup.close()

    # Layout.

    def _share(self, parameter: nn.Parameter) -> int:
        return self._count(self._shapes[parameter])

    def _count(self, shape: torch.Size) -> int:
        return -(-int(shape.numel()) // self._size)

    def _lay_out(self, home: torch.device) -> None:
        shards = []
        for parameter in self._shapes:
            shards.append(parameter.detach() if self._is_cut else self._own_part(parameter))
            parameter.data = torch.empty(0, dtype=parameter.dtype, device=self.world.device)
        self._starts = [0]
        for each in shards[:-1]:
            self._starts.append(self._starts[-1] + each.numel())
        self._flat = torch.cat(shards).to(home)
        self.observer.label([self._flat], Category.PARAMETERS)

    def _own_part(self, parameter: nn.Parameter) -> torch.Tensor:
        share = self._share(parameter)
        part = torch.empty(share, dtype=parameter.dtype, device=parameter.device)
        flat = parameter.detach().view(-1)
        there = max(0, min(share, flat.numel() - self._rank * share))
        if there:
            part.narrow(0, 0, there).copy_(flat.narrow(0, self._rank * share, there))
        return part

    def _split(self, size: int) -> list[tuple[list[int], int, int]]:
        """Sub-groups: which parameters, and from where to where in the flat tensor."""
        found: list[tuple[list[int], int, int]] = []
        numbers: list[int] = []
        begin = end = 0
        for number, shape in enumerate(self._shapes.values()):
            numbers.append(number)
            end += self._count(shape)
            if end - begin >= size:
                found.append((numbers, begin, end))
                numbers, begin = [], end
        return [*found, (numbers, begin, end)] if numbers else found

    def _kept_shards(self) -> list[torch.Tensor]:
        if self._kept is None:
            return []
        return [
            self._kept.narrow(0, start, self._count(shape))
            for start, shape in zip(self._starts, self._shapes.values(), strict=True)
        ]

    # Gradients.

    def _accumulated(self, tensor: torch.Tensor) -> None:
        """Into the bucket; one that is larger stays where it is."""
        parameter: nn.Parameter = tensor
        gradient = parameter.grad
        if gradient is None:
            return
        numel = gradient.numel()
        self.observer.label([gradient], Category.GATHERED)
        if self._waiting and self._filled + numel > self._bucket.numel():
            self._reduce()
        if self._filled + numel <= self._bucket.numel():
            inside = self._bucket.narrow(0, self._filled, numel).view(gradient.shape)
            inside.copy_(gradient)
            parameter.grad = inside
        self._waiting.append(parameter)
        self._filled += numel

    def _after_backward(self) -> None:
        self._reduce()
        self._gathering.after_backward()

    def _reduce(self) -> None:
        """Average what waits, and keep this rank's shards of it."""
        if not self._waiting:
            return
        order = {parameter: number for number, parameter in enumerate(self._shapes)}
        waiting = sorted(self._waiting, key=order.__getitem__)
        mine = self._scatter([each.grad.view(-1) for each in waiting if each.grad is not None])
        start = 0
        for parameter in waiting:
            share = self._share(parameter)
            self._keep(order[parameter], mine.narrow(0, start, share))
            parameter.grad = None
            start += share
        self._waiting, self._filled = [], 0

    def _scatter(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        """This rank's shards of the average. DeepSpeed lays shards of all ranks into a copy of the bucket first; one
        gradient that can be cut evenly needs none."""
        if self._size == 1:
            return gradients[0] if len(gradients) == 1 else torch.cat(gradients)
        if len(gradients) == 1 and gradients[0].numel() % self._size == 0:
            together = gradients[0]
        else:
            together = torch.cat(
                [part for rank in range(self._size) for part in self._parts(gradients, rank)]
            )
            self.observer.label([together], Category.COMMUNICATION)
        together.div_(self._size)
        mine = together.chunk(self._size)[self._rank]
        reduce_scatter(mine, together, group=self._group)
        return mine

    def _parts(self, gradients: list[torch.Tensor], rank: int) -> Iterator[torch.Tensor]:
        for each in gradients:
            share = -(-each.numel() // self._size)
            there = max(0, min(share, each.numel() - rank * share))
            yield each.narrow(0, min(rank * share, each.numel()), there)
            if there < share:
                yield torch.empty(share - there, dtype=each.dtype, device=each.device)

    def _keep(self, number: int, shard: torch.Tensor) -> None:
        if self._kept is None:
            return
        kept = self._kept.narrow(0, self._starts[number], shard.numel())
        if self._micro_batch == 0:
            kept.copy_(shard)
        elif self._offloads:
            kept.copy_(kept.to(shard.device).add_(shard))
        else:
            kept.add_(shard)
        if self._offloads and self._is_last:
            for master, (numbers, start, _) in zip(self._masters, self._subgroups, strict=True):
                if number in numbers and master.host_gradient is not None:
                    at = self._starts[number] - start
                    master.host_gradient.narrow(0, at, shard.numel()).copy_(kept)


def _or(said: int | None, default: int) -> int:
    return default if said is None else said

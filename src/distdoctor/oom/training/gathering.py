"""When ZeRO-3's parameters are whole: fetched for a module's turn, ahead of it, and kept for the next one.

After DeepSpeed's PartitionedParameterCoordinator (deepspeed/runtime/zero/partitioned_param_coordinator.py, 0.19.8). The
first forward and backward pass are recorded; from then on parameters are prefetched in that order, and a module's
parameters are not released when it, or one with the same parameter, comes again within `reuse` elements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.training.base import Observer
from distdoctor.oom.training.flat_partition import all_gather
from distdoctor.oom.training.model import Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheringLimits:
    """In elements."""

    persistent: int
    """Parameters up to this size stay whole once they were gathered."""
    prefetch: int
    live: int
    """Nothing is prefetched beyond so many whole elements."""
    reuse: int


@dataclass(slots=True, eq=False)
class Shard:
    """One parameter, and this rank's part of it."""

    parameter: nn.Parameter
    shape: torch.Size
    part: torch.Tensor
    number: int = 0
    is_whole: bool = False
    users: set[nn.Module] = field(default_factory=set)
    fetched_for: int = -1
    """The last turn, by number, that a fetch from the queue was meant for."""


class Gathering:
    """Hooks on every module: one without parameters of its own fetches ahead for those that follow."""

    def __init__(
        self,
        models: Sequence[Transformer],
        shards: list[Shard],
        *,
        group: Any,
        limits: GatheringLimits,
        observer: Observer,
        device: torch.device,
    ) -> None:
        self._limits = limits
        self._observer = observer
        self._gather = _Gather(group, observer, device)
        self._shards = shards
        for number, each in enumerate(shards):
            each.number = number
        self._of = {id(each.parameter): each for each in shards}
        self._turns: list[nn.Module] = []
        self._is_known = False
        self._begun = False
        self._turn = 0
        self._live = 0
        self._queue: deque[tuple[Shard, int]] = deque()
        self._in_flight: dict[Shard, _Flight] = {}
        self._in_backward: list[nn.Module] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        for model in models:
            self._hooks.append(model.register_forward_pre_hook(self._begin))
            for module in model.modules():
                self._hook(module)

    def after_backward(self) -> None:
        """Release what the backward pass of a module without gradients of inputs left: the embedding."""
        while self._in_backward:
            module = self._in_backward.pop()
            for shard in self._of_module(module):
                shard.users.discard(module)
                if not self._persists(shard):
                    self._release(shard)

    def release_all(self) -> None:
        """Nothing is whole, before the step."""
        for flight in set(self._in_flight.values()):
            flight.wait()
        self._in_flight.clear()
        for shard in self._shards:
            shard.users.clear()
            self._release(shard)

    def gather_persistent(self) -> None:
        """After the step."""
        for shard in self._shards:
            if self._persists(shard):
                self._gather([shard]).wait()

    def close(self) -> None:
        """Hooks off."""
        for hook in self._hooks:
            hook.remove()

    # Turns.

    def _hook(self, module: nn.Module) -> None:
        def before(*_: object) -> None:
            self._take_turn(module)

        def after(*_: object) -> None:
            self._leave(module)

        def before_backward(*_: object) -> None:
            self._in_backward.append(module)
            self._take_turn(module)

        def after_backward(*_: object) -> None:
            if module in self._in_backward:
                self._in_backward.remove(module)
                self._leave(module)

        self._hooks += [
            module.register_forward_pre_hook(before),
            module.register_forward_hook(after),
            module.register_full_backward_pre_hook(before_backward),
        ]
        # Tokens have no gradient; without one, this hook would run before the module's own gradients are there.
        if not isinstance(module, nn.Embedding | Transformer):
            self._hooks.append(module.register_full_backward_hook(after_backward))

    def _begin(self, *_: object) -> None:
        """A forward pass begins."""
        for flight in set(self._in_flight.values()):
            flight.wait()
        for shard in list(self._in_flight):
            self._release(shard)
        self._in_flight.clear()
        self._is_known = self._is_known or (self._begun and bool(self._turns))
        self._begun = True
        self._queue = deque(
            (shard, turn) for turn, module in enumerate(self._turns) for shard in self._of_module(module)
        )
        for shard in self._shards:
            shard.fetched_for = -1
        self._turn = self._live = 0

    def _take_turn(self, module: nn.Module) -> None:
        """Fetch what this module needs, wait for it, and fetch ahead."""
        if not self._is_known:
            self._turns.append(module)
        needed = self._of_module(module)
        self._fetch([each for each in needed if not each.is_whole and each not in self._in_flight])
        for shard in needed:
            shard.users.add(module)
            flight = self._in_flight.pop(shard, None)
            if flight is not None:
                flight.wait()
            del flight
        if self._is_known:
            self._look_ahead(needed)
        self._turn += 1

    def _look_ahead(self, needed: Iterable[Shard]) -> None:
        left = {each for each in needed if each.fetched_for < self._turn}
        while self._queue and left:
            shard, turn = self._queue.popleft()
            shard.fetched_for = turn
            left.discard(shard)
        most = min(self._limits.live - self._live, self._limits.prefetch)
        ahead: list[Shard] = []
        numel = 0
        while self._queue and numel < most:
            shard, turn = self._queue.popleft()
            shard.fetched_for = max(shard.fetched_for, turn)
            if not shard.is_whole and shard not in self._in_flight and shard not in ahead:
                ahead.append(shard)
                numel += shard.shape.numel()
        self._fetch(ahead)

    def _leave(self, module: nn.Module) -> None:
        """Release what is not needed again soon."""
        kept = self._wanted_soon() if self._is_known else set()
        for shard in self._of_module(module):
            shard.users.discard(module)
            if not self._is_known or not (
                self._persists(shard) or shard.fetched_for > self._turn or shard in kept
            ):
                self._release(shard)

    def _wanted_soon(self) -> set[Shard]:
        """What comes within `reuse` elements of now."""
        found: set[Shard] = set()
        passed = 0
        for module in self._turns[self._turn :]:
            if passed >= self._limits.reuse:
                break
            for shard in self._of_module(module):
                found.add(shard)
                passed += shard.shape.numel()
        return found

    # Parameters.

    def _of_module(self, module: nn.Module) -> list[Shard]:
        return [self._of[id(each)] for each in module.parameters(recurse=False) if id(each) in self._of]

    def _persists(self, shard: Shard) -> bool:
        return bool(shard.shape.numel() <= self._limits.persistent)

    def _fetch(self, shards: list[Shard]) -> None:
        if not shards:
            return
        flight = self._gather(sorted(shards, key=lambda each: each.number))
        for shard in shards:
            self._live += shard.shape.numel()
            self._in_flight[shard] = flight

    def _release(self, shard: Shard) -> None:
        if shard.is_whole and not shard.users:
            parameter = shard.parameter
            parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
            shard.is_whole = False
            self._live -= shard.shape.numel()


class _Gather:
    """All-gathers. Several parameters travel in one tensor, and are copied out of it: for that moment there are two
    of each, and the one that travelled stays until the last of its parameters had its turn."""

    def __init__(self, group: Any, observer: Observer, device: torch.device) -> None:
        self._group = group
        self._observer = observer
        self._device = device
        self._size = dist.get_world_size(group) if group is not None else 1
        self._rank = dist.get_rank(group) if group is not None else 0

    def __call__(self, shards: list[Shard]) -> _Flight:
        if self._group is None:
            return _Flight(shards, None, None, 1, self._observer)
        share = sum(each.part.numel() for each in shards)
        together = torch.empty(share * self._size, dtype=shards[0].part.dtype, device=self._device)
        self._observer.label([together], Category.GATHERED)
        if len(shards) == 1:
            own = shards[0].part.to(self._device)
        else:
            own = together.narrow(0, self._rank * share, share)
            torch.cat([each.part.to(self._device) for each in shards], out=own)
        work = all_gather(together, own, group=self._group, async_op=True)
        return _Flight(shards, together, work, self._size, self._observer)


class _Flight:
    """Parameters on their way."""

    def __init__(
        self, shards: list[Shard], together: torch.Tensor | None, work: Any, size: int, observer: Observer
    ) -> None:
        self._shards = shards
        self._together = together
        self._work = work
        self._size = size
        self._observer = observer
        self._done = False

    def wait(self) -> None:
        """Until they are whole."""
        if self._done:
            return
        self._done = True
        if self._work is not None:
            self._work.wait()
        start = 0
        for shard in self._shards:
            shard.parameter.data = self._whole(shard, start)
            shard.is_whole = True
            start += shard.part.numel()

    def _whole(self, shard: Shard, start: int) -> torch.Tensor:
        numel = shard.shape.numel()
        if self._together is None:
            return shard.part.to(shard.parameter.device).narrow(0, 0, numel).view(shard.shape)
        if len(self._shards) == 1:
            return self._together.narrow(0, 0, numel).view(shard.shape)
        rows = self._together.view(self._size, -1).narrow(1, start, shard.part.numel())
        share = shard.part.numel()
        parts = [rows[rank][: numel - rank * share] for rank in range(self._size) if rank * share < numel]
        whole = torch.cat(parts)
        self._observer.label([whole], Category.GATHERED)
        return whole.view(shard.shape)

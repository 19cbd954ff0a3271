"""The collectives of torch.distributed as they are measured and validated: buffers, the call, what must come out.

To add one: a class here, a line in COLLECTIVES, its definition in definitions.py and its rounding in shapes.py.
Functions of torch.distributed are looked up when they are called, so that one that was wrapped is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from distdoctor.nccl_bench.dtypes import dtype_named
from distdoctor.nccl_bench.measure.prepared import Call, CompositeWork, Prepared, Waitable
from distdoctor.nccl_bench.shapes import natural_places, uneven_units


class AllReduce(Prepared):
    """In place, as torch has it."""

    name = "all_reduce"

    def _allocate(self) -> None:
        self._buffer = self._empty(self.count)
        self.inputs = [self._block(self._buffer, sender=self.call.position)]
        self.outputs = [self._block(self._buffer, sender=None)]

    def _start(self, async_op: bool) -> Any:
        call = self.call
        return dist.all_reduce(self._buffer, op=self._op, group=call.group, async_op=async_op)


class Reduce(Prepared):
    """In place; what the other ranks' buffers hold afterwards is not defined."""

    name = "reduce"

    def _allocate(self) -> None:
        self._buffer = self._empty(self.count)
        self.inputs = [self._block(self._buffer, sender=self.call.position)]
        self.outputs = [self._block(self._buffer, sender=None)] if self.call.is_root else []

    def _start(self, async_op: bool) -> Any:
        call = self.call
        return dist.reduce(self._buffer, call.root_rank, op=self._op, group=call.group, async_op=async_op)


class Broadcast(Prepared):
    """In place."""

    name = "broadcast"

    def _allocate(self) -> None:
        self._buffer = self._empty(self.count)
        block = self._block(self._buffer, sender=self.call.root)
        self.inputs = [block] if self.call.is_root else []
        self.outputs = [block]

    def _start(self, async_op: bool) -> Any:
        call = self.call
        return dist.broadcast(self._buffer, call.root_rank, group=call.group, async_op=async_op)


class AllGather(Prepared):
    """Into one tensor; in place: the input is this rank's part of the output."""

    name = "all_gather"

    def _allocate(self) -> None:
        position = self.call.position
        self._output = self._empty(self.count * self.call.num_ranks)
        parts = self._parts(self._output)
        self._input = parts[position] if self.call.in_place else self._empty(self.count)
        self.inputs = [self._block(self._input, sender=position)]
        self.outputs = [
            self._block(part, sender=index, start=index * self.count) for index, part in enumerate(parts)
        ]
        # Named anew in torch 2.13, where the old name warns.
        self._function = _first_there("all_gather_single", "all_gather_into_tensor")

    def _start(self, async_op: bool) -> Any:
        gather = getattr(dist, self._function)
        return gather(self._output, self._input, group=self.call.group, async_op=async_op)


class ReduceScatter(Prepared):
    """From one tensor; in place: the output is this rank's part of the input."""

    name = "reduce_scatter"

    def _allocate(self) -> None:
        position = self.call.position
        self._input = self._empty(self.count * self.call.num_ranks)
        parts = self._parts(self._input)
        self._output = parts[position] if self.call.in_place else self._empty(self.count)
        self.inputs = [
            self._block(part, sender=position, block=index, start=index * self.count)
            for index, part in enumerate(parts)
        ]
        self.outputs = [self._block(self._output, sender=None, block=position)]
        # Named anew in torch 2.13, where the old name warns.
        self._function = _first_there("reduce_scatter_single", "reduce_scatter_tensor")

    def _start(self, async_op: bool) -> Any:
        scatter = getattr(dist, self._function)
        return scatter(self._output, self._input, op=self._op, group=self.call.group, async_op=async_op)


class Gather(Prepared):
    """Into views of one buffer at the root."""

    name = "gather"

    def _allocate(self) -> None:
        self._input = self._empty(self.count)
        self.inputs = [self._block(self._input, sender=self.call.position)]
        self._targets: list[torch.Tensor] | None = None
        if self.call.is_root:
            self._targets = self._parts(self._empty(self.count * self.call.num_ranks))
            self.outputs = [
                self._block(part, sender=index, start=index * self.count)
                for index, part in enumerate(self._targets)
            ]

    def _start(self, async_op: bool) -> Any:
        call = self.call
        return dist.gather(
            self._input, self._targets, dst=call.root_rank, group=call.group, async_op=async_op
        )


class Scatter(Prepared):
    """From views of one buffer at the root."""

    name = "scatter"

    def _allocate(self) -> None:
        call = self.call
        self._output = self._empty(self.count)
        self.outputs = [self._block(self._output, sender=call.root, block=call.position)]
        self._sources: list[torch.Tensor] | None = None
        if call.is_root:
            self._sources = self._parts(self._empty(self.count * call.num_ranks))
            self.inputs = [
                self._block(part, sender=call.root, block=index, start=index * self.count)
                for index, part in enumerate(self._sources)
            ]

    def _start(self, async_op: bool) -> Any:
        call = self.call
        return dist.scatter(
            self._output, self._sources, src=call.root_rank, group=call.group, async_op=async_op
        )


class AllToAll(Prepared):
    """all_to_all_single with equal splits."""

    name = "all_to_all"

    def _allocate(self) -> None:
        units = self._units()
        self._splits = None if set(units) == {1} else [each * self.count for each in units]
        self._input = self._empty(sum(units) * self.count)
        self._output = self._empty(sum(units) * self.count)
        start = 0
        for peer, each in enumerate(units):
            end = start + each * self.count
            sent, received = self._input[start:end], self._output[start:end]
            self.inputs.append(self._block(sent, sender=self.call.position, block=peer, start=start))
            self.outputs.append(self._block(received, sender=peer, block=self.call.position, start=start))
            start = end

    def _units(self) -> tuple[int, ...]:
        """Parts for each peer; as many are received from it."""
        return (1,) * self.call.num_ranks

    def _start(self, async_op: bool) -> Any:
        return dist.all_to_all_single(
            self._output,
            self._input,
            output_split_sizes=self._splits,
            input_split_sizes=self._splits,
            group=self.call.group,
            async_op=async_op,
        )


class AllToAllUneven(AllToAll):
    """all_to_all_single with the splits of `shapes.uneven_units`."""

    name = "all_to_all_uneven"

    def _units(self) -> tuple[int, ...]:
        return uneven_units(self.call.position, self.call.num_ranks)


class SendRecv(Prepared):
    """A ring: every rank sends to the next of the group and receives from the previous."""

    name = "sendrecv"

    def _allocate(self) -> None:
        call = self.call
        following = call.group_ranks[(call.position + 1) % call.num_ranks]
        before = (call.position - 1) % call.num_ranks
        sent, received = self._empty(self.count), self._empty(self.count)
        self.inputs = [self._block(sent, sender=call.position)]
        self.outputs = [self._block(received, sender=before)]
        self._transfers = [
            dist.P2POp(dist.isend, sent, following, call.group),
            dist.P2POp(dist.irecv, received, call.group_ranks[before], call.group),
        ]

    def _start(self, async_op: bool) -> Any:
        works: list[Waitable] = dist.batch_isend_irecv(self._transfers)
        work = works[0] if len(works) == 1 else CompositeWork(works)
        if not async_op:
            work.wait()
        return work


class Barrier(Prepared):
    """Moves nothing."""

    name = "barrier"

    def _allocate(self) -> None:
        # Without it NCCL's barrier guesses which GPU is this rank's.
        device = self.call.device
        self._device_ids = [device.index] if device.type == "cuda" and device.index is not None else None

    def _start(self, async_op: bool) -> Any:
        return dist.barrier(group=self.call.group, async_op=async_op, device_ids=self._device_ids)


COLLECTIVES: tuple[type[Prepared], ...] = (
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    Gather,
    Scatter,
    AllToAll,
    AllToAllUneven,
    SendRecv,
    Barrier,
)
"""Everything that is measured, under the names of definitions.py."""

_BY_NAME = {each.name: each for each in COLLECTIVES}
_REDUCING = frozenset((AllReduce.name, ReduceScatter.name, Reduce.name))


def prepare(
    name: str,
    *,
    group: dist.ProcessGroup | None,
    group_ranks: Sequence[int],
    rank: int,
    size_bytes: int,
    dtype: str,
    op: str | None,
    in_place: bool,
    device: torch.device,
    root: int = 0,
) -> Prepared:
    """The collective `name` (of definitions.py) with buffers allocated, not yet filled.

    `rank` and `group_ranks` are global. The group's own order counts, which is torch's (new_group sorts); `root` is
    a position in it. `op` is used by those that reduce. Raises ValueError for a placement that torch does not offer
    and for ranks that are not the group's, UsageError for names that are not known or that this torch lacks, and
    whatever torch raises when memory is short.
    """
    if in_place not in natural_places(name):
        raise ValueError(f"torch has no {name} {'in place' if in_place else 'out of place'}")
    in_order = tuple(dist.get_process_group_ranks(dist.group.WORLD if group is None else group))
    if set(in_order) != set(group_ranks):
        raise ValueError(f"the group has ranks {in_order}, not {tuple(group_ranks)}")
    call = Call(
        group=group,
        group_ranks=in_order,
        rank=rank,
        size_bytes=size_bytes,
        dtype=dtype_named(dtype),
        op=(op or "sum") if name in _REDUCING else None,
        in_place=in_place,
        device=device,
        root=root,
    )
    return _BY_NAME[name](call)


def _first_there(*names: str) -> str:
    """The first of these functions that this torch has."""
    return next(name for name in names if hasattr(dist, name))

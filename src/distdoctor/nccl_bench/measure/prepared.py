"""One collective on one rank, whichever it is: its call, its buffers, filling and checking them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
import torch.distributed as dist

from distdoctor.nccl_bench.dtypes import DType
from distdoctor.nccl_bench.measure import buffers, patterns
from distdoctor.nccl_bench.measure.buffers import Block, WrongElements
from distdoctor.nccl_bench.measure.names import torch_dtype, torch_op
from distdoctor.nccl_bench.shapes import actual_size_bytes, part_elements


class Waitable(Protocol):
    """A call under way: torch's Work, or several."""

    def wait(self) -> object:
        """Return when it is complete; on CUDA, when the current stream waits for it."""


class CompositeWork:
    """Several calls under way as one."""

    def __init__(self, works: Sequence[Waitable]) -> None:
        self._works = tuple(works)

    def wait(self) -> None:
        """Wait for each."""
        for work in self._works:
            work.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is called, by whom and on what."""

    group: dist.ProcessGroup | None
    """None: all ranks."""
    group_ranks: tuple[int, ...]
    """Global ranks of the group, in its own order."""
    rank: int
    """This process' global rank."""
    size_bytes: int
    dtype: DType
    op: str | None
    in_place: bool
    device: torch.device
    root: int = 0
    """Position in the group."""

    @property
    def num_ranks(self) -> int:
        """Ranks in the group."""
        return len(self.group_ranks)

    @property
    def position(self) -> int:
        """This rank's place in the group."""
        return self.group_ranks.index(self.rank)

    @property
    def root_rank(self) -> int:
        """The root's global rank."""
        return self.group_ranks[self.root]

    @property
    def is_root(self) -> bool:
        """This rank is the root."""
        return self.rank == self.root_rank


class Prepared(ABC):
    """One collective with its buffers, ready to be called any number of times."""

    name: ClassVar[str]

    def __init__(self, call: Call) -> None:
        element_bytes, size = call.dtype.bytes, call.size_bytes
        self.call = call
        self.count = part_elements(self.name, size, call.num_ranks, element_bytes)
        """Elements of each rank's part; for uneven splits, of one unit."""
        self.actual_size_bytes = actual_size_bytes(self.name, size, call.num_ranks, element_bytes)
        """What is measured, by nccl-tests' definition of size."""
        self.inputs: list[Block] = []
        self.outputs: list[Block] = []
        self._op = None if call.op is None else torch_op(call.op)
        self._pattern: patterns.Pattern | None = None
        self._allocate()

    @abstractmethod
    def _allocate(self) -> None:
        """Make the buffers, and say what is an input of this rank and what an output."""

    @abstractmethod
    def _start(self, async_op: bool) -> Any:
        """Call torch.distributed; its Work, or None. Any: the type checker does not follow torch."""

    def issue(self) -> Waitable | None:
        """Hand the collective in without waiting for it. None when torch gave nothing to wait for."""
        work: Waitable | None = self._start(True)
        return work

    def run_sync(self) -> None:
        """The plain call; on CUDA it may return before the device is done."""
        self._start(False)

    def fill(self) -> None:
        """Write this rank's contribution, and values that are wrong everywhere where the result will stand."""
        pattern = self._expectation()
        # Inputs last: in place, they lie in what was just spoilt.
        buffers.fill(self.outputs, patterns.poison(pattern.expected), self.call.dtype)
        buffers.fill(self.inputs, pattern.table, self.call.dtype)

    def check(self) -> WrongElements | None:
        """Every element of this rank's result against what it must be after one call since `fill`."""
        pattern = self._expectation()
        return buffers.find_wrong(
            self.outputs, pattern.expected, self.call.dtype, rank=self.call.rank, tolerance=pattern.tolerance
        )

    def _expectation(self) -> patterns.Pattern:
        if self._pattern is None:
            call = self.call
            if call.op is None:
                self._pattern = patterns.moved(call.dtype, call.num_ranks)
            else:
                self._pattern = patterns.reduced(call.op, call.dtype, call.num_ranks)
        return self._pattern

    def _empty(self, count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch_dtype(self.call.dtype), device=self.call.device)

    def _parts(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """One view for each rank of the group."""
        return [buffer[index * self.count : (index + 1) * self.count] for index in range(self.call.num_ranks)]

    def _block(self, view: torch.Tensor, *, sender: int | None, block: int = 0, start: int = 0) -> Block:
        """What the rank at position `sender` put in for `block`; None: what all together made of it."""
        return Block(
            view=view,
            start=start,
            phase=patterns.phase(0 if sender is None else sender, block),
            source=None if sender is None else self.call.group_ranks[sender],
        )

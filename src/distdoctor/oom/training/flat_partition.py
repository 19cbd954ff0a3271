"""How a flat tensor of parameters is cut into partitions, and the bucket that gradients pass through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from distdoctor.oom.settings import DataParallel, Precision
from distdoctor.oom.training.base import CannotRunError, World

# DeepSpeed starts every partition at a multiple of 4 bytes, for NCCL (`nccl_start_alignment_factor`, in elements).
_ALIGNMENT = 2

# Their names since torch 2.13, and before.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Elements that one rank owns, of a parameter or of the bucket."""

    rank: int
    start: int
    numel: int


class FlatLayout:
    """Parameters of these sizes one after another, padded and cut into one partition for each rank."""

    def __init__(self, sizes: Sequence[int], num_ranks: int) -> None:
        self.sizes = list(sizes)
        self.offsets = [sum(sizes[:number]) for number in range(len(sizes))]
        total = sum(sizes)
        step = _ALIGNMENT * num_ranks
        self.padding = -total % step
        self.partition = (total + self.padding) // num_ranks
        self.pieces = [
            list(self._cut(offset, size)) for offset, size in zip(self.offsets, sizes, strict=True)
        ]

    def _cut(self, offset: int, size: int) -> Iterator[Piece]:
        start = 0
        while start < size:
            rank = (offset + start) // self.partition
            numel = min(size - start, (rank + 1) * self.partition - offset - start)
            yield Piece(rank=rank, start=start, numel=numel)
            start += numel

    def merged(self, numbers: Sequence[int]) -> list[Piece]:
        """The pieces of these parameters where they lie in the bucket; neighbours of one rank are one."""
        found: list[Piece] = []
        start = 0
        for number in numbers:
            for piece in self.pieces[number]:
                if found and found[-1].rank == piece.rank:
                    found[-1] = replace(found[-1], numel=found[-1].numel + piece.numel)
                else:
                    found.append(Piece(rank=piece.rank, start=start, numel=piece.numel))
                start += piece.numel
        return found


class ReduceBucket:
    """A buffer of fixed size (two, used in turn, where reducing overlaps with computing). A gradient that is larger
    than the buffer is reduced where it is."""

    def __init__(self, size: int, num_buffers: int) -> None:
        self._size = size
        self._num_buffers = num_buffers
        self._turn = 0
        self._elements = 0
        self.buffers: list[torch.Tensor] = []
        self.numbers: list[int] = []

    def open(self, like: torch.Tensor) -> bool:
        """Allocate; whether that was needed."""
        if self.buffers:
            return False
        self.buffers = [
            torch.empty(self._size, dtype=like.dtype, device=like.device) for _ in range(self._num_buffers)
        ]
        self._turn = 0
        return True

    def close(self) -> None:
        """Free the buffers."""
        self.buffers = []

    def has_room(self, numel: int) -> bool:
        """Whether so many elements more fit; an empty bucket takes any."""
        return not self.numbers or self._elements + numel <= self._size

    def add(self, number: int, parameter: nn.Parameter) -> None:
        """Copy a gradient in; it becomes a view of the buffer."""
        gradient, numel = parameter.grad, parameter.numel()
        if gradient is not None and numel <= self._size:
            inside = self.buffers[self._turn].narrow(0, self._elements, numel).view(parameter.shape)
            inside.copy_(gradient)
            parameter.grad = inside
        self.numbers.append(number)
        self._elements += numel

    def filled(self, parameters: Sequence[nn.Parameter]) -> torch.Tensor:
        """What is in it, flat."""
        gradient = parameters[self.numbers[0]].grad
        if self._elements > self._size and gradient is not None:
            return gradient.view(-1)
        return self.buffers[self._turn].narrow(0, 0, self._elements)

    def in_portions(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        """Pieces in portions of just over the bucket's size."""
        portion: list[Piece] = []
        for piece in pieces:
            portion.append(piece)
            if sum(each.numel for each in portion) > self._size:
                yield portion
                portion = []
        if portion:
            yield portion

    def empty(self) -> None:
        """Forget what was in it; the other buffer is next."""
        self.numbers = []
        self._elements = 0
        self._turn = (self._turn + 1) % self._num_buffers


def check_can_run(world: World) -> None:
    """Raises CannotRunError for what our own partitioning does not follow DeepSpeed in."""
    job = world.job
    if job.precision not in (Precision.MASTER, Precision.FP32):
        raise CannotRunError(
            f"ZeRO is run with 16-bit parameters and an fp32 master copy, or in fp32; {job.precision.value} is estimated only"
        )
    both = [name for name in ("tp", "ep") if getattr(job.mesh, name) > 1]
    if both:
        raise CannotRunError(f"ZeRO together with {' and '.join(both)} is estimated only")
    if job.mesh.pp > 1 and job.strategy is not DataParallel.ZERO1:
        raise CannotRunError("in a pipeline DeepSpeed runs ZeRO-1 only")


def data_parallel_group(world: World) -> tuple[Any, int, int]:
    """The group over all ranks that see other data or other tokens, this rank's place in it, and its size."""
    mesh = world.sub_mesh("dp_replicate", "dp_shard", "cp")
    if mesh is None or mesh.size() == 1:
        return None, 0, 1
    group = (mesh._flatten("dp") if mesh.ndim > 1 else mesh).get_group()
    return group, dist.get_rank(group), dist.get_world_size(group)


def gradient_norm(gradients: Sequence[torch.Tensor], group: Any) -> torch.Tensor | None:
    """The norm over all partitions. DeepSpeed computes it in every step, parameter by parameter in fp64."""
    norms = [torch.linalg.vector_norm(each.double()) for each in gradients]
    if not norms:
        return None
    total = torch.stack(norms).square().sum().float()
    if group is not None:
        dist.all_reduce(total, group=group)
    return total.sqrt()

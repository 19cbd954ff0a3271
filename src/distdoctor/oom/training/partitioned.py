"""ZeRO-1 and ZeRO-2 after DeepSpeed's design (deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8), in plain collectives.

Parameters are slices of one flat 16-bit tensor, cut into equal partitions. A rank steps the fp32 copy of its own
partition and gathers the others in place. Gradients pass through a bucket of reduce_bucket_size elements, whatever the
model's size: it is filled, averaged with one all-reduce, and this rank's part is copied out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.distributed as dist
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.formulas.buffers import REDUCE_BUCKET
from distdoctor.oom.settings import Offload
from distdoctor.oom.training.base import World
from distdoctor.oom.training.data_parallel import DataParallelism
from distdoctor.oom.training.flat_partition import (
    FlatLayout,
    Piece,
    ReduceBucket,
    all_gather,
    check_can_run,
    data_parallel_group,
    gradient_norm,
)
from distdoctor.oom.training.master_partition import MasterPartition, masters_of
from distdoctor.oom.training.model import Transformer


class Zero1(DataParallelism):
    """Optimizer states are partitioned; gradients stay whole until the last micro-batch is through."""

    keeps_whole_gradients = True

    def __init__(self, models: Sequence[Transformer], world: World) -> None:
        super().__init__(models, world)
        check_can_run(world)
        said = world.job.said
        self._group, self._rank, self._size = data_parallel_group(world)
        # DeepSpeed's pipelines reduce when all micro-batches are through.
        self._overlaps = bool(said.overlap_comm) and world.job.mesh.pp == 1
        self._bucket = ReduceBucket(
            REDUCE_BUCKET if said.reduce_bucket_elements is None else said.reduce_bucket_elements,
            2 if self._overlaps else 1,
        )
        self._offloads = world.job.offload_optimizer is not Offload.NONE
        self._is_last = True
        self._waiting = False
        self._micro_batch = 0
        self._copies: torch.Tensor | None = None
        self._filled = 0
        self._kept: list[torch.Tensor] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def prepare(self) -> None:
        """Flatten, cut, and copy this rank's partition to fp32."""
        self._parameters = [each for each in self.parameters() if each.requires_grad]
        first = self._parameters[0]
        self._layout = FlatLayout([each.numel() for each in self._parameters], self._size)
        pad = torch.zeros(self._layout.padding, dtype=first.dtype, device=first.device)
        with torch.no_grad():
            self._flat = torch.cat([*(each.detach().view(-1) for each in self._parameters), pad])
        for parameter, offset in zip(self._parameters, self._layout.offsets, strict=True):
            parameter.data = self._flat.narrow(0, offset, parameter.numel()).view(parameter.shape)
        self.observer.label([self._flat], Category.PARAMETERS)
        self._partition = self._flat.narrow(0, self._rank * self._layout.partition, self._layout.partition)
        self._number = {id(each): number for number, each in enumerate(self._parameters)}
        self._mine = [
            number for number, pieces in enumerate(self._layout.pieces) if self._own_piece(pieces) is not None
        ]
        self._master = MasterPartition(self._partition, self.world, offloads=self._offloads)
        if self._offloads:
            # Accumulated gradients come back from the host through it.
            largest = max(each.numel() for each in self._parameters)
            self._returning = torch.zeros(largest, dtype=first.dtype, device=first.device)
            self._on_host: dict[int, torch.Tensor] = {}
            self.observer.label([self._returning], Category.COMMUNICATION)
        self._hooks = [
            each.register_post_accumulate_grad_hook(self._accumulated) for each in self._parameters
        ]

    def computing(self) -> contextlib.AbstractContextManager[object]:
        """16-bit parameters need no autocast."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        """Reduce what a backward pass has left that did not go through `backward`: a pipeline's."""
        self._is_last = is_last
        yield
        self._after_backward()
        self._micro_batch = 0 if is_last else self._micro_batch + 1

    def backward(self, loss: torch.Tensor) -> None:
        """The mean over micro-batches; what is left in the bucket is reduced while the caller still holds the logits."""
        (loss / self.world.job.num_micro_batches).backward()
        self._after_backward()

    def gradients(self) -> list[torch.Tensor]:
        """This rank's part, and what is still whole."""
        return self._kept + super().gradients()

    def states(self) -> Iterable[tuple[nn.Parameter, torch.Tensor]]:
        """The fp32 partition and its moments."""
        return masters_of([self._master])

    def step(self) -> None:
        """Step the partition, gather all."""
        self._reduce_whole()
        if not self._offloads:
            gradient_norm(self._kept, self._group)
            self._master.receive(self._flat_gradient())
            self._kept = []
        self._master.step()
        self._master.copy_to(self._partition)
        if self._size > 1:
            # In place: DeepSpeed uses allgather_bucket_size only where torch has no all_gather_into_tensor (1.12).
            all_gather(self._flat, self._partition, group=self._group)

    def close(self) -> None:
        """Hooks off."""
        for hook in self._hooks:
            hook.remove()

    # The backward pass.

    def _accumulated(self, parameter: torch.Tensor) -> None:
        """A gradient is there."""
        if self._bucket.open(parameter):
            self.observer.label(self._bucket.buffers, Category.COMMUNICATION)
        self._waiting = True
        if not self.keeps_whole_gradients or (self._overlaps and self._is_last):
            self._collect(self._number[id(parameter)])

    def _after_backward(self) -> None:
        if not self.keeps_whole_gradients or self._is_last:
            self._reduce_whole()

    def _reduce_whole(self) -> None:
        """What has waited for the last micro-batch; with a pipeline, for the step."""
        if not self._waiting:
            return
        if self.keeps_whole_gradients and not self._overlaps:
            for number, parameter in enumerate(self._parameters):
                if parameter.grad is not None:
                    self._collect(number)
        self._reduce()
        self._keep_accumulated()
        self._bucket.close()
        self._copies, self._waiting = None, False
        for parameter in self._parameters:
            parameter.grad = None

    def _collect(self, number: int) -> None:
        """Move one gradient into the bucket, after it is emptied if there is no room."""
        if not self._bucket.has_room(self._parameters[number].numel()):
            self._reduce()
        self._bucket.add(number, self._parameters[number])

    def _reduce(self) -> None:
        """Average what is in the bucket, keep this rank's part of it, forget the rest."""
        numbers = self._bucket.numbers
        if not numbers:
            return
        filled = self._bucket.filled(self._parameters)
        if self._size > 1:
            filled.div_(self._size)
            pieces = self._layout.merged(numbers)
            for some in self._bucket.in_portions(pieces):
                self._all_reduce(filled, some)
        for number in numbers:
            parameter = self._parameters[number]
            if number in self._mine:
                self._keep(number)
            elif not self.keeps_whole_gradients:
                parameter.grad = None
        self._bucket.empty()

    def _all_reduce(self, filled: torch.Tensor, pieces: list[Piece]) -> None:
        """As DeepSpeed: pieces of more than one rank are copied together before they are reduced."""
        slices = [filled.narrow(0, each.start, each.numel) for each in pieces]
        together = slices[0] if len(slices) == 1 else torch.cat(slices)
        self.observer.label([together], Category.COMMUNICATION)
        dist.all_reduce(together, group=self._group)
        start = 0
        for each, piece in zip(slices, pieces, strict=True):
            if piece.rank == self._rank:
                each.copy_(together.narrow(0, start, piece.numel))
            start += piece.numel

    def _keep(self, number: int) -> None:
        """Out of the bucket, which will be used again."""
        parameter = self._parameters[number]
        if parameter.grad is None:
            return
        if self._offloads:
            self._send_to_host(number)
            return
        if self._copies is None:
            total = sum(self._parameters[each].numel() for each in self._mine)
            self._copies = torch.empty(total, dtype=parameter.dtype, device=parameter.device)
            self._filled = 0
            self.observer.label([self._copies], Category.GRADIENTS)
        copy = self._copies.narrow(0, self._filled, parameter.numel()).view(parameter.shape)
        copy.copy_(parameter.grad)
        parameter.grad = copy
        self._filled += parameter.numel()

    def _keep_accumulated(self) -> None:
        if self._offloads:
            return
        new = [
            each.grad if each.grad is not None else torch.zeros_like(each)
            for each in (self._parameters[number] for number in self._mine)
        ]
        if not self._kept:
            self._kept = new
            return
        for total, each in zip(self._kept, new, strict=True):
            total.add_(each)

    def _send_to_host(self, number: int) -> None:
        parameter = self._parameters[number]
        gradient = parameter.grad
        piece = self._own_piece(self._layout.pieces[number])
        if gradient is None or piece is None:
            return
        flat = gradient.view(-1)
        if self._master.host_gradient is not None and not (self._is_last and self._micro_batch == 0):
            stored = self._on_host.setdefault(number, torch.zeros_like(flat, device="cpu"))
            if self._micro_batch:
                returned = self._returning.narrow(0, 0, flat.numel())
                returned.copy_(stored)
                flat.add_(returned)
            stored.copy_(flat)
        if self._is_last:
            own = flat.narrow(0, piece.start, piece.numel)
            own.double().norm()
            in_fp32 = own.float()
            if self._master.host_gradient is not None:
                start = self._layout.offsets[number] + piece.start - self._rank * self._layout.partition
                self._master.host_gradient.narrow(0, start, piece.numel).copy_(in_fp32)
        parameter.grad = None

    def _flat_gradient(self) -> torch.Tensor:
        """This rank's partition of the gradients, in one piece."""
        parts = []
        for number, gradient in zip(self._mine, self._kept, strict=True):
            piece = self._own_piece(self._layout.pieces[number])
            if piece is not None:
                parts.append(gradient.view(-1).narrow(0, piece.start, piece.numel))
        missing = self._layout.partition - sum(each.numel() for each in parts)
        if missing:
            parts.append(torch.zeros(missing, dtype=self._partition.dtype, device=self._partition.device))
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _own_piece(self, pieces: list[Piece]) -> Piece | None:
        return next((each for each in pieces if each.rank == self._rank), None)


class Zero2(Zero1):
    """Gradients are reduced in every micro-batch, and each rank keeps those of its partition."""

    keeps_whole_gradients = False

"""The fp32 copy of one rank's partition, its moments, and its step; on the device or in host memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from distdoctor.oom.training.base import World
from distdoctor.oom.training.optimizers import optimizer_class, states_of


class MasterPartition:
    """Of a flat 16-bit partition. Offloaded, it lives in host memory, which a simulation does not follow: there it
    does not exist."""

    def __init__(self, partition: torch.Tensor, world: World, *, offloads: bool) -> None:
        self._offloads = offloads
        self._size = partition.numel()
        self.host_gradient: torch.Tensor | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        if offloads and world.is_fake:
            return
        device = torch.device("cpu") if offloads else partition.device
        copy = partition.detach().clone().to(device=device, dtype=torch.float32)
        self.copy = nn.Parameter(copy)
        kind, arguments = optimizer_class(world.job)
        self.optimizer = kind([self.copy], **arguments)
        # DeepSpeed's start makes a gradient for each partition, and keeps it where it is offloaded.
        gradient = torch.zeros(self._size, dtype=torch.float32, device=device)
        if offloads:
            self.host_gradient = gradient
            self._staged = torch.zeros(self._size, dtype=partition.dtype, device=device)

    def receive(self, flat_gradient: torch.Tensor) -> None:
        """The gradient of the next step, cast to fp32."""
        if self.optimizer is not None:
            self.copy.grad = flat_gradient.to(torch.float32)

    def step(self) -> None:
        """Step with what was received or, offloaded, with `host_gradient`."""
        if self.optimizer is None:
            return
        if self.host_gradient is not None:
            self.copy.grad = self.host_gradient
        self.optimizer.step()
        self.copy.grad = None

    def copy_to(self, partition: torch.Tensor) -> None:
        """Round to the partition's type."""
        if self.optimizer is None:
            return
        with torch.no_grad():
            if self.host_gradient is not None:
                self._staged.copy_(self.copy)
                partition.copy_(self._staged)
            else:
                partition.copy_(self.copy)


def masters_of(partitions: Iterable[MasterPartition]) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
    """The fp32 copies and their moments. A flat partition has parts of many layers, so it belongs to itself."""
    for each in partitions:
        if each.optimizer is not None:
            yield each.copy, each.copy
            yield from states_of(each.optimizer)

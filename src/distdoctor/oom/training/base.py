"""What every training program shares: the world that it runs in, who watches it, and what it promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.job import Job
from distdoctor.oom.memory.log import Phase


class Kernels(str, Enum):
    """Which kernels a program calls where the CPU's keep other tensors than CUDA's."""

    NATIVE = "native"
    """What the device has."""
    LIKE_CUDA = "like-cuda"
    """Under fake tensors on the CPU: norms and attention that save what CUDA's save."""


class Observer(Protocol):
    """Is told where the program is and what tensors are for, so that bytes can be told apart."""

    def at(self, phase: Phase, *, step: int, micro_batch: int | None = None) -> None:
        """The program begins `phase`. Steps count from 1; 0 is initialisation."""

    def label(
        self, tensors: Iterable[torch.Tensor], category: Category, *, of: nn.Parameter | None = None
    ) -> None:
        """These tensors are `category`, from the birth of their storages on. DTensors count by their local part.
        `of`: the parameter that they belong to, where they are not parameters themselves."""

    def name_modules(self, module: nn.Module, *, first_layer: int = 0) -> None:
        """Names and layers of a module tree, told once it is built and wrapped; `layers.3` of it is layer
        3 + first_layer of this rank."""


class NoObserver:
    """Nobody watches."""

    def at(self, phase: Phase, *, step: int, micro_batch: int | None = None) -> None:
        """Not told to anybody."""

    def label(
        self, tensors: Iterable[torch.Tensor], category: Category, *, of: nn.Parameter | None = None
    ) -> None:
        """Not told to anybody."""

    def name_modules(self, module: nn.Module, *, first_layer: int = 0) -> None:
        """Not told to anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where one rank's program runs. The default process group exists when a World does."""

    job: Job
    rank: int
    device: torch.device
    mesh: DeviceMesh
    """Dimensions named as in oom/mesh.py, outermost first, without those of size 1 (`dp_shard` stays
    when all are, and under FSDP2)."""
    kernels: Kernels = Kernels.NATIVE
    communicates: bool = True
    """False: the process group is fake, collectives move nothing."""
    chunks: tuple[tuple[int, ...], ...] | None = None
    """Numbers of the layers of each virtual stage of this rank, where it builds fewer than it has."""
    is_fake: bool = False
    """True: tensors are fake too, and no value may be read."""

    def sub_mesh(self, *names: str) -> DeviceMesh | None:
        """The mesh over these dimensions; None where all of them have size 1."""
        present = tuple(name for name in names if name in (self.mesh.mesh_dim_names or ()))
        if not present:
            return None
        return self.mesh[present if len(present) > 1 else present[0]]

    def coordinate(self, name: str) -> int:
        """This rank's position along a dimension; 0 where that has size 1."""
        if name not in (self.mesh.mesh_dim_names or ()):
            return 0
        return int(self.mesh.get_local_rank(name))


class CannotRunError(Exception):
    """This torch, this device or this program cannot run the job that was asked for; the text says why in one line."""


class Program(ABC):
    """One rank's training program. Built once, stepped at least twice: optimizer states appear in the first step."""

    @abstractmethod
    def step(self, number: int, observer: Observer) -> float | None:
        """One optimizer step over all micro-batches; `number` counts from 1. The loss where this rank computes one and
        tensors are real, else None."""

    @abstractmethod
    def parameters(self) -> Iterable[nn.Parameter]:
        """This rank's parameters, as the optimizer sees them."""

    @abstractmethod
    def close(self) -> None:
        """Give up what was patched or opened. Called once, also after an error."""

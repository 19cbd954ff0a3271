"""What a child of oom_gpu.py is asked, what it answers, and what the simulation says beside it. Without torch."""

from __future__ import annotations

import msgspec
from oom_gpu_rows import Group

from distdoctor.oom.memory.log import Phase
from distdoctor.oom.settings import Settings


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent asks."""

    settings: Settings
    group: Group = Group.FAKE
    expandable_segments: bool = False
    device: str = "cpu"


class PhaseBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The allocator's peaks in one phase of one step."""

    step: int
    phase: Phase
    allocated: int
    reserved: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the device's allocator counted, in bytes. None: this device does not tell."""

    device: str = ""
    torch: str = ""
    allocated: int | None = None
    reserved: int | None = None
    requested: int | None = None
    """The peak of what programs asked for, before rounding."""
    inside_kernels: int | None = None
    """Of the CPU's peak, what single kernels took and gave back before they ended."""
    phases: tuple[PhaseBytes, ...] = ()
    workspaces: int | None = None
    """Of cuBLAS at the end, which the allocator counts as allocated."""
    outside_before: int | None = None
    """On the GPU beside what the allocator holds, once there is a context: that, and what other processes hold."""
    outside_after: int | None = None
    """The same at the end."""
    total: int | None = None
    num_retries: int | None = None
    attention: tuple[str, ...] = ()
    """Nodes of autograd that attention left: they name the kernel."""
    norm: str = ""
    allocator_settings: str = ""
    seconds: float = 0.0
    simulated_native: int | None = None
    """On the CPU: the simulation with the CPU's own kernels, which has to agree."""
    error: str = ""


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """What `oom simulate` says, in bytes as CUDA's allocator counts them."""

    allocated: int | None = None
    reserved_fixed: int | None = None
    reserved_expandable: int | None = None
    phases: tuple[tuple[int, Phase, int], ...] = ()
    by_category: dict[str, int] = {}
    at: str = ""
    how: str = ""
    seconds: float = 0.0
    error: str = ""

"""Out-of-memory events as logs tell them: who asked for how much, what was there, in which phase of the job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Family(str, Enum):
    """Who refused the memory, by the shape of the message."""

    CUDA = "CUDA caching allocator"
    HIP = "HIP caching allocator"
    XPU = "XPU caching allocator"
    NPU = "NPU caching allocator"
    OTHER_DEVICE = "caching allocator of another device"
    CUDA_ASYNC = "cudaMallocAsync allocator"
    MPS = "MPS allocator"
    XLA = "XLA"
    DRIVER = "GPU driver or runtime"
    BLAS = "cuBLAS or its like"
    DNN = "cuDNN or its like"
    NCCL = "NCCL or its like"
    HOST_ALLOCATOR = "host allocator"
    HOST_KILL = "killed from outside"
    SHARED_MEMORY = "shared memory of the host"
    SERVER = "a check of the server at its start"


CACHING_ALLOCATORS = frozenset((Family.CUDA, Family.HIP, Family.XPU, Family.NPU, Family.OTHER_DEVICE))
ON_HOST = frozenset((Family.HOST_ALLOCATOR, Family.HOST_KILL, Family.SHARED_MEMORY))


class Phase(str, Enum):
    """When in the job's life it happened. The second step is the first with optimizer states in place."""

    INITIALISATION = "initialisation"
    FIRST_FORWARD = "first forward"
    FIRST_BACKWARD = "first backward"
    FIRST_OPTIMIZER_STEP = "first optimizer step"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER_STEP = "optimizer step"
    SECOND_STEP = "second step"
    LATER_GROWTH = "later step"
    EVALUATION = "evaluation"
    GENERATION = "generation"
    SAVING = "saving"
    UNKNOWN = "phase not shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherProcess:
    """A process that the message lists on this GPU."""

    pid: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bogus:
    """A number in the message that cannot be true."""

    field: str
    text: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One line of a Python traceback, outermost first as Python prints them."""

    file: str
    function: str
    code: str = ""
    line: int | None = None


class MemoryKind(str, Enum):
    """What a memory number of a step line measures, those that tell most of growth first."""

    ALLOCATED = "allocated memory"
    PEAK = "peak memory"
    NOT_SAID = "memory"
    RESERVED = "reserved memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTrend:
    """Memory over the steps before an event. Bytes of the lowest readings at the beginning and at the end."""

    kind: MemoryKind
    num_readings: int
    first_step: int | None
    last_step: int | None
    first_bytes: int
    last_bytes: int
    has_unit: bool
    """False: numbers without a unit, taken for MB; only their ratio counts."""
    is_grown: bool
    is_steady: bool
    """Grown, in nearly every part of the run, and not mostly at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomEvent:
    """One refusal of memory. Every number is in bytes; None: the message does not hold it (or it was bogus)."""

    path: str
    line: int
    """From 1, of the first line of the message."""
    family: Family
    sentence: str
    """The words of the message, bounded."""
    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None
    requested_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    process_bytes: int | None = None
    """All that this process holds, PyTorch's pool and the rest."""
    others: tuple[OtherProcess, ...] = ()
    allocated_bytes: int | None = None
    unallocated_bytes: int | None = None
    """Reserved by PyTorch, not allocated."""
    private_pool_bytes: int | None = None
    allowed_bytes: int | None = None
    other_allocations_bytes: int | None = None
    """MPS: what Metal holds beside PyTorch's heaps."""
    bogus: tuple[Bogus, ...] = ()
    is_absurd_size: bool = False
    """More than 1 EB, or more than any host or GPU holds: the size itself is corrupt."""
    is_block_limit: bool = False
    """One block may not be as large on this device, whatever is free."""
    frames: tuple[Frame, ...] = ()
    native_frames: tuple[str, ...] = ()
    nearby: str = ""
    """Text around the message, bounded: for words that no frame holds."""
    phase: Phase = Phase.UNKNOWN
    phase_why: str = ""
    went_on: bool = False
    """The log shows the job at work after it: the error was caught."""
    steps_before: int | None = None
    """Steps that the log shows done before."""
    memory_trend: MemoryTrend | None = None
    """None: too few step lines with memory stand before it."""
    order: int = 0
    """Place among all events as read."""
    times_seen: int = 1
    exit_code: int | None = None
    is_certain_kill: bool = False
    """Of a process that was killed: something says that memory was the reason."""
    ended_by: str | None = None
    """Of a process that was killed: the log shows before it that the job was told to end; in words, with the line."""
    is_end_sure: bool = True
    """False where that may be a consequence of the kill: a step that srun cancels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """A row of torchrun's table of failures."""

    rank: int
    local_rank: int | None = None
    host: str | None = None
    exit_code: int | None = None
    pid: int | None = None
    is_first: bool = False
    """Torchrun's "root cause (first observed failure)"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What the rest of the text says of the job. Empty or None: nothing is said."""

    strategies: tuple[str, ...] = ()
    """`FSDP`, `DeepSpeed`, `DDP`, `Megatron`, `vLLM` …"""
    zero_stage: int | None = None
    num_ranks: int | None = None
    vocab_sizes: tuple[int, ...] = ()
    is_vocab_told: bool = False
    """A `vocab_size` stands in the text; else the sizes are those of a model family that it names."""
    gpu_names: tuple[str, ...] = ()
    expandable_segments: bool | None = None
    memory_fraction: float | None = None
    torch_version: str | None = None
    is_windows: bool = False
    is_mig: bool = False
    mig_gigabytes: tuple[int, ...] = ()
    """Sizes of the MIG slices that the text names (`1g.10gb`: 10)."""
    ended_by: str | None = None
    """Why a scheduler ended the job, where the log says so: `time limit`, `preemption` …"""
    has_device_fault: bool = False
    """An assertion or an illegal access on the GPU: what libraries say after it is a consequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainFacts:
    """What messages of one or many files tell."""

    events: tuple[OomEvent, ...] = ()
    hints: Hints = Hints()
    failures: tuple[RankFailure, ...] = ()
    files: tuple[str, ...] = ()
    num_left_out: int = 0
    """Events beyond the bound that were not kept."""
    first_order_known: bool = False
    """Events come from one log, so that the first of them came first."""

    @property
    def on_gpu(self) -> tuple[OomEvent, ...]:
        """Events of GPU memory."""
        return tuple(each for each in self.events if each.family not in ON_HOST)

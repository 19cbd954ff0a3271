"""What a torch memory snapshot holds: segments and blocks of each device, and what the allocator did before.

The history may have a million events, so it is held in columns of plain numbers; stacks and frames are held once and
shared. Field names follow `torch.cuda.memory._snapshot()`; sizes are bytes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import Enum, IntEnum

PoolId = tuple[int, int]
"""Owner of a segment as torch numbers it: (0, 0) is the ordinary pool, anything else a private one."""

ORDINARY_POOL: PoolId = (0, 0)

NO_TIME = -1
"""Time of an event whose snapshot has none (torch before 2.2)."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One line of a stack. Equal frames of one snapshot are one object."""

    filename: str
    line: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Who asked, innermost frame first. Equal stacks of one snapshot are one object."""

    frames: tuple[Frame, ...]
    number: int
    """Place in `Events.stacks_by_number`."""


class EventKind(IntEnum):
    """What the allocator did; numbers are our own."""

    OTHER = 0
    ALLOC = 1
    FREE_REQUESTED = 2
    FREE_COMPLETED = 3
    SEGMENT_ALLOC = 4
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6
    SEGMENT_UNMAP = 7
    OOM = 8
    SNAPSHOT = 9


class BlockState(str, Enum):
    """Whether a block holds a tensor, waits for another stream to let go of it, or is free for reuse."""

    ALLOCATED = "allocated"
    AWAITING_FREE = "awaiting free"
    INACTIVE = "inactive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of a segment."""

    address: int | None
    size: int
    requested: int | None
    """What the program asked for, without rounding. None: this snapshot does not say."""
    state: BlockState
    stack: Stack | None = None
    """None: no stack was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Memory that torch took from the driver, with its blocks in the order of their addresses."""

    device: int
    address: int | None
    total_size: int
    stream: int
    pool: PoolId | None
    """None: this snapshot does not say (torch before 2.1)."""
    is_small: bool
    is_expandable: bool
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Events:
    """The recorded history of one device, oldest event first; every column has one entry for each event."""

    kinds: array[int]
    addresses: array[int]
    """For `oom` the free bytes of the device, as torch itself keeps it."""
    sizes: array[int]
    """Requested bytes of allocations and frees, whole bytes of segments, the rounded request of an `oom`."""
    times_us: array[int]
    """Microseconds since 1970, or `NO_TIME`."""
    stack_numbers: array[int]
    """Number of the stack plus one; 0 where none was recorded."""
    stream_numbers: array[int]
    pool_numbers: array[int]
    streams: tuple[int, ...]
    pools: tuple[PoolId | None, ...]
    stacks_by_number: tuple[Stack, ...]

    def __len__(self) -> int:
        """How many events there are."""
        return len(self.kinds)

    def stack(self, index: int) -> Stack | None:
        """Who did event `index`, where recorded."""
        number = self.stack_numbers[index]
        return self.stacks_by_number[number - 1] if number else None

    def stream(self, index: int) -> int:
        """Stream of event `index`."""
        return self.streams[self.stream_numbers[index]]

    def pool(self, index: int) -> PoolId | None:
        """Pool of event `index`; None where the snapshot does not say."""
        return self.pools[self.pool_numbers[index]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorSettings:
    """How the allocator was set, as the snapshot tells. None: this snapshot does not say."""

    text: str | None = None
    """Value of PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF."""
    expandable_segments: bool | None = None
    max_split_size: int | None = None
    """Bytes; None also where splitting is not limited."""
    garbage_collection_threshold: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceState:
    """One device: its segments when the snapshot was taken, and the history before, where recorded."""

    device: int
    segments: tuple[Segment, ...]
    events: Events | None = None
    """None: no history was recorded, or it is cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot file, read."""

    path: str
    devices: tuple[DeviceState, ...]
    """Only devices that have a segment or an event."""
    settings: AllocatorSettings = AllocatorSettings()
    rank: int | None = None
    """From the file's name; None where the name does not say."""
    host: str | None = None
    """From the file's name; None where the name does not say."""
    has_stacks: bool = False
    """At least one block or event says who asked."""
    is_cut: bool = False
    """The file ends early: the blocks are there, the history is not."""
    notes: tuple[str, ...] = ()

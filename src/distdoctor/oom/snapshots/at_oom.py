"""What was allocated when the device ran out of memory: the snapshot's blocks, with what came after it undone.

A snapshot shows the moment it was taken. Between the failed request and that moment the exception has often freed half
of the memory, so the recorded history is walked backwards from its end to the last `oom` event: an allocation is taken
back, a free is taken back. A history is a ring that keeps the newest events, so that this walk is complete; what was
allocated before the ring's first event is still in the blocks, and is called `baseline` here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from distdoctor.oom.facts.snapshot import (
    NO_TIME,
    BlockState,
    DeviceState,
    EventKind,
    Events,
    PoolId,
    Segment,
    Stack,
)
from distdoctor.oom.snapshots.ranges import Range, ranges_of, with_range, without
from distdoctor.units import MIB

# torch rounds every request up to this (kMinBlockSize in c10/core/AllocatorConfig.h).
ROUND_BYTES = 512

# Taking back a segment looks at every other one. Beyond this many looks the rest is left as it is and the moment is
# called inexact. Our own choice: some seconds; a real unwinding takes a hundredth.
MAX_LOOKS = 20_000_000

# Requests up to this come from the small pool (kSmallSize).
SMALL_REQUEST_BYTES = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """An allocation that is alive at the moment looked at."""

    address: int
    size: int
    """Bytes of its block, rounding included."""
    requested: int | None
    """None: this snapshot does not say."""
    stack: Stack | None
    stream: int
    pool: PoolId | None
    is_small: bool
    is_awaiting_free: bool = False
    born: int | None = None
    """Event that allocated it; None: older than the recorded history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomEvent:
    """The request that failed."""

    index: int
    requested: int
    """Bytes, rounded up to 512 as torch records them."""
    device_free: int
    """Bytes that the driver had left, by cudaMemGetInfo."""
    time_us: int | None
    stack: Stack | None
    stream: int
    pool: PoolId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One device at the moment looked at: at the last out-of-memory error, or when the snapshot was taken."""

    device: int
    oom: OomEvent | None
    """None: the history records no such error, so that the moment is that of the snapshot."""
    live: tuple[Live, ...]
    ranges: tuple[Range, ...]
    num_ooms: int = 0
    num_undone: int = 0
    """Events between the error and the snapshot that were taken back."""
    num_unplaced: int = 0
    """Of these, events that did not agree with the blocks: the reconstruction is not exact."""
    unplaced_bytes: int = 0
    """Memory of segments without an address, left out of `ranges` (torch's profiler writes such)."""

    @property
    def is_exact(self) -> bool:
        """No event contradicted the blocks."""
        return self.num_unplaced == 0

    @property
    def reserved(self) -> int:
        """Bytes that torch held."""
        return sum(each.size for each in self.ranges) + self.unplaced_bytes

    @property
    def live_bytes(self) -> int:
        """Bytes in blocks that were in use or waiting for another stream."""
        return sum(each.size for each in self.live)


def moment_of(state: DeviceState) -> Moment:
    """The device at its last out-of-memory error, or else when the snapshot was taken."""
    live = {each.address: each for each in _live_blocks(state.segments)}
    ranges = ranges_of(state.segments)
    unplaced = sum(each.total_size for each in state.segments if each.address is None)
    events = state.events
    if events is None:
        return Moment(
            device=state.device,
            oom=None,
            live=tuple(live.values()),
            ranges=tuple(ranges),
            unplaced_bytes=unplaced,
        )
    ooms = [index for index, kind in enumerate(events.kinds) if kind == EventKind.OOM]
    end = ooms[-1] if ooms else len(events)
    ranges, num_unplaced = _undo(events, end, live, ranges)
    births = _births(events, end, live)
    return Moment(
        device=state.device,
        oom=_oom_event(events, ooms[-1]) if ooms else None,
        live=tuple(_born(each, births.get(address), events) for address, each in live.items()),
        ranges=tuple(ranges),
        num_ooms=len(ooms),
        num_undone=sum(events.kinds[index] not in _NO_CHANGE for index in range(end, len(events))),
        num_unplaced=num_unplaced,
        unplaced_bytes=unplaced,
    )


_NO_CHANGE = (EventKind.OOM, EventKind.SNAPSHOT, EventKind.OTHER)
_OF_SEGMENTS = (
    EventKind.SEGMENT_ALLOC,
    EventKind.SEGMENT_FREE,
    EventKind.SEGMENT_MAP,
    EventKind.SEGMENT_UNMAP,
)


def _live_blocks(segments: Iterable[Segment]) -> Iterable[Live]:
    """Blocks in use, with their addresses, which older snapshots leave to be counted from the segment's."""
    for number, segment in enumerate(segments):
        # Without an address the blocks still count; the negative ones only tell them apart.
        address = segment.address if segment.address is not None else -((number + 1) << 64)
        for block in segment.blocks:
            here = block.address if block.address is not None else address
            address = here + block.size
            if block.state is not BlockState.INACTIVE:
                yield Live(
                    address=here,
                    size=block.size,
                    requested=block.requested,
                    stack=block.stack,
                    stream=segment.stream,
                    pool=segment.pool,
                    is_small=segment.is_small,
                    is_awaiting_free=block.state is BlockState.AWAITING_FREE,
                )


def _undo(events: Events, end: int, live: dict[int, Live], ranges: list[Range]) -> tuple[list[Range], int]:
    """Take back every event from the last to `end`; the ranges then, and how many events did not agree."""
    num_unplaced = num_looks = 0
    for index in range(len(events) - 1, end - 1, -1):
        kind, address, size = events.kinds[index], events.addresses[index], events.sizes[index]
        if kind in _OF_SEGMENTS:
            num_looks += len(ranges)
            if num_looks > MAX_LOOKS:
                num_unplaced += 1
                continue
        match kind:
            case EventKind.ALLOC:
                num_unplaced += live.pop(address, None) is None
            case EventKind.FREE_COMPLETED:
                num_unplaced += address in live
                live[address] = _revived(events, index)
            case EventKind.FREE_REQUESTED:
                # A free that has not completed at the end still has its block, which awaits it.
                before = live.get(address)
                live[address] = replace(before or _revived(events, index), is_awaiting_free=False)
            case EventKind.SEGMENT_ALLOC | EventKind.SEGMENT_MAP:
                ranges = without(ranges, address, address + size)
            case EventKind.SEGMENT_FREE | EventKind.SEGMENT_UNMAP:
                ranges = with_range(ranges, _range_again(events, index))
    return ranges, num_unplaced


def _revived(events: Events, index: int) -> Live:
    """The block that a free event gave back; it waits, until its request to be freed is taken back as well."""
    size = events.sizes[index]
    return Live(
        address=events.addresses[index],
        size=max(ROUND_BYTES, -(-size // ROUND_BYTES) * ROUND_BYTES),
        requested=size,
        # The stack of a free is that of whoever freed it.
        stack=None,
        stream=events.stream(index),
        pool=events.pool(index),
        is_small=size <= SMALL_REQUEST_BYTES,
        is_awaiting_free=True,
    )


def _range_again(events: Events, index: int) -> Range:
    size = events.sizes[index]
    return Range(
        start=events.addresses[index],
        end=events.addresses[index] + size,
        stream=events.stream(index),
        pool=events.pool(index),
        # Small segments are 2 MiB, and no large one is (kSmallBuffer, kMinLargeAlloc).
        is_small=size <= 2 * MIB,
        is_expandable=events.kinds[index] == EventKind.SEGMENT_UNMAP,
    )


def _births(events: Events, end: int, live: dict[int, Live]) -> dict[int, int]:
    """For each live address the last allocation of it before `end`."""
    births: dict[int, int] = {}
    kinds, addresses = events.kinds, events.addresses
    for index in range(end):
        if kinds[index] == EventKind.ALLOC and addresses[index] in live:
            births[addresses[index]] = index
    return births


def _born(live: Live, birth: int | None, events: Events) -> Live:
    if birth is None:
        return live
    return replace(live, born=birth, stack=live.stack or events.stack(birth))


def _oom_event(events: Events, index: int) -> OomEvent:
    time_us = events.times_us[index]
    return OomEvent(
        index=index,
        requested=events.sizes[index],
        device_free=events.addresses[index],
        time_us=None if time_us == NO_TIME else time_us,
        stack=events.stack(index),
        stream=events.stream(index),
        pool=events.pool(index),
    )

"""What torch would reserve on a GPU for the allocations of a log, and where it would run out of memory."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.allocator.blocks import Block
from distdoctor.oom.allocator.caching import CachingAllocator
from distdoctor.oom.allocator.options import AllocatorOptions
from distdoctor.oom.memory.log import MemoryLog

# As many as a line of a report's picture shows. Our own choice.
MAX_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The most in one stretch of events, in bytes; the two need not fall on the same event."""

    event: int
    """Index, in the log, of the stretch's last event."""
    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """The request that could not be served, and what was held then, after all free segments had been given back."""

    event: int
    """Index in the log."""
    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One replay. Events are indices into the log's events; None: nothing was allocated."""

    peak_allocated_bytes: int
    """As `torch.cuda.max_memory_allocated()` counts: blocks, rounding included."""
    peak_allocated_event: int | None
    peak_requested_bytes: int
    """What the program asked for, without rounding."""
    peak_requested_event: int | None
    peak_reserved_bytes: int
    """As `torch.cuda.max_memory_reserved()` counts."""
    peak_reserved_event: int | None
    """The first event at which as much was reserved."""
    reserved_at_allocated_peak_bytes: int
    allocated_at_reserved_peak_bytes: int
    inactive_split_at_reserved_peak_bytes: int
    """Free bytes in segments partly in use: what cannot be given back. torch counts none in expandable segments."""
    final_allocated_bytes: int
    final_reserved_bytes: int
    num_retries: int
    """How often everything free was given back to the driver: slow on a GPU, and a sign of fragmentation."""
    curve: tuple[CurvePoint, ...]
    out_of_memory: OutOfMemory | None
    """None: everything was served. Otherwise the replay ends there."""


def replay(
    log: MemoryLog,
    *,
    options: AllocatorOptions,
    capacity_bytes: int | None = None,
    device_bytes: int | None = None,
    max_points: int = MAX_POINTS,
) -> Replayed:
    """Serve the log's allocations in their order.

    `capacity_bytes` is what the driver can give to torch: the device without contexts, NCCL and other processes. None:
    without end. `device_bytes` is the whole device, of which `per_process_memory_fraction` takes its share; None: as
    much as `capacity_bytes`. Each storage lives on the stream on which it was born; a storage that changes its size is
    allocated anew before the old memory is given back, as `resize_` copies it.
    """
    device = device_bytes if device_bytes is not None else capacity_bytes
    fraction = options.per_process_memory_fraction
    allocator = CachingAllocator(
        options,
        capacity_bytes=capacity_bytes,
        allowed_bytes=int(fraction * device) if fraction is not None and device is not None else None,
        device_bytes=device,
    )
    peaks = _Peaks(len(log.events), max_points)
    blocks: dict[int, Block] = {}
    failed = None
    for index, event in enumerate(log.events):
        old = blocks.get(event.storage)
        # A storage of no bytes costs nothing, not even 512.
        if event.num_bytes <= 0:
            if old is not None:
                allocator.free(blocks.pop(event.storage))
        elif old is None or old.requested != event.num_bytes:
            new = allocator.allocate(event.num_bytes, log.storages[event.storage].stream)
            if new is None:
                failed = OutOfMemory(
                    event=index,
                    requested_bytes=event.num_bytes,
                    allocated_bytes=allocator.allocated,
                    reserved_bytes=allocator.reserved,
                )
                break
            # Old and new are there at once.
            peaks.see(index, allocator)
            blocks[event.storage] = new
            if old is not None:
                allocator.free(old)
        peaks.see(index, allocator)
        peaks.end_of(index)
    return peaks.result(allocator, failed)


class _Peaks:
    """The largest numbers so far, and the curve."""

    def __init__(self, num_events: int, max_points: int) -> None:
        self._last = num_events - 1
        self._stretch = max(1, -(-num_events // max_points))
        self._allocated = self._requested = self._reserved = 0
        self._allocated_event: int | None = None
        self._requested_event: int | None = None
        self._reserved_event: int | None = None
        self._reserved_then = self._allocated_then = self._split_then = 0
        self._points: list[CurvePoint] = []
        self._high_allocated = self._high_reserved = 0

    def see(self, index: int, allocator: CachingAllocator) -> None:
        allocated, reserved = allocator.allocated, allocator.reserved
        if allocated > self._allocated:
            self._allocated, self._allocated_event, self._reserved_then = allocated, index, reserved
        if allocator.requested > self._requested:
            self._requested, self._requested_event = allocator.requested, index
        if reserved > self._reserved:
            self._reserved, self._reserved_event = reserved, index
            self._allocated_then, self._split_then = allocated, allocator.inactive_split
        self._high_allocated = max(self._high_allocated, allocated)
        self._high_reserved = max(self._high_reserved, reserved)

    def end_of(self, index: int) -> None:
        if (index + 1) % self._stretch == 0 or index == self._last:
            self._points.append(
                CurvePoint(event=index, allocated=self._high_allocated, reserved=self._high_reserved)
            )
            self._high_allocated = self._high_reserved = 0

    def result(self, allocator: CachingAllocator, failed: OutOfMemory | None) -> Replayed:
        if failed is not None:
            # The stretch in which it failed ends with the failure.
            self._last = failed.event
            self.see(failed.event, allocator)
            self.end_of(failed.event)
        return Replayed(
            peak_allocated_bytes=self._allocated,
            peak_allocated_event=self._allocated_event,
            peak_requested_bytes=self._requested,
            peak_requested_event=self._requested_event,
            peak_reserved_bytes=self._reserved,
            peak_reserved_event=self._reserved_event,
            reserved_at_allocated_peak_bytes=self._reserved_then,
            allocated_at_reserved_peak_bytes=self._allocated_then,
            inactive_split_at_reserved_peak_bytes=self._split_then,
            final_allocated_bytes=allocator.allocated,
            final_reserved_bytes=allocator.reserved,
            num_retries=allocator.num_retries,
            curve=tuple(self._points),
            out_of_memory=failed,
        )

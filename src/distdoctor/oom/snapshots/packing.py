"""Makes small things of a snapshot's dicts while the pickle is read: rows of numbers, shared frames and stacks.

torch writes a dict for every event; held as dicts a snapshot takes ten times its size.
"""

from __future__ import annotations

from array import array

from distdoctor.oom.facts.snapshot import (
    NO_TIME,
    Block,
    BlockState,
    EventKind,
    Events,
    Frame,
    PoolId,
    Segment,
    Stack,
)
from distdoctor.oom.snapshots.machine import Dict, Refused

# Bytes that a packed value takes; see machine.py. A row is seven columns and its number.
_ROW_BYTES = 76
_BLOCK_BYTES = 176
_SEGMENT_BYTES = 320
_FRAME_BYTES = 100
_STACK_BYTES = 400

# Frames hold paths and C++ names with templates; beyond this they are cut.
MAX_TEXT = 400

# Numbers of streams and pools are held in 16 bits. Our own bound: torch makes 32 streams a priority and device.
MAX_NAMED = 60_000

_KINDS = {
    "alloc": EventKind.ALLOC,
    "free_requested": EventKind.FREE_REQUESTED,
    # In snapshots of torch 1.13 and 2.0 a free is one event.
    "free": EventKind.FREE_COMPLETED,
    "free_completed": EventKind.FREE_COMPLETED,
    "segment_alloc": EventKind.SEGMENT_ALLOC,
    "segment_free": EventKind.SEGMENT_FREE,
    "segment_map": EventKind.SEGMENT_MAP,
    "segment_unmap": EventKind.SEGMENT_UNMAP,
    "oom": EventKind.OOM,
    "snapshot": EventKind.SNAPSHOT,
}

_STATES = {
    "active_allocated": BlockState.ALLOCATED,
    # The documentation says `awaiting`, the code writes `pending`.
    "active_awaiting_free": BlockState.AWAITING_FREE,
    "active_pending_free": BlockState.AWAITING_FREE,
    "inactive": BlockState.INACTIVE,
}

_MAX_ADDRESS = (1 << 64) - 1
_MAX_SIZE = (1 << 63) - 1


class SnapshotPacker:
    """Packs events, blocks, segments and frames; holds the columns of all events."""

    def __init__(self) -> None:
        self.stacks: dict[tuple[Frame, ...], Stack] = {}
        self.stack_list: list[Stack] = []
        self.streams: dict[int, int] = {}
        self.pools: dict[PoolId | None, int] = {None: 0}
        self.kinds = array("B")
        self.addresses = array("Q")
        self.sizes = array("q")
        self.times_us = array("q")
        self.stack_numbers = array("I")
        self.stream_numbers = array("H")
        self.pool_numbers = array("H")
        self.num_odd = 0
        """Events that lack what events have, or whose kind is unknown."""

    # --- what the reader of pickles asks for ------------------------------------------------------------------

    def item(self, value: Dict) -> tuple[object, int] | None:
        """A frame, a block or a segment for the dict that describes it; of an event the number of its row."""
        if "action" in value:
            return self._event(value), _ROW_BYTES
        if "filename" in value and "line" in value:
            return _frame(value), _FRAME_BYTES
        if "blocks" in value:
            return self._segment(value), _SEGMENT_BYTES
        if "state" in value and "size" in value:
            return self._block(value), _BLOCK_BYTES
        return None

    def stack(self, items: list[object]) -> tuple[object, int] | None:
        """The one stack of these frames, innermost first; None when they are no frames."""
        frames = tuple(each for each in items if type(each) is Frame)
        if len(frames) != len(items):
            return None
        known = self.stacks.get(frames)
        if known is not None:
            return known, 0
        made = Stack(frames, len(self.stack_list))
        self.stacks[frames] = made
        self.stack_list.append(made)
        return made, _STACK_BYTES + 8 * len(frames)

    # --- the four kinds ----------------------------------------------------------------------------------------

    def _event(self, value: Dict) -> int:
        action = value.get("action")
        kind = _KINDS.get(action, EventKind.OTHER) if type(action) is str else EventKind.OTHER
        place = value.get("device_free" if kind is EventKind.OOM else "addr")
        address, size = _within(place, _MAX_ADDRESS), _within(value.get("size"), _MAX_SIZE)
        if kind is not EventKind.SNAPSHOT and (address is None or size is None):
            kind = EventKind.OTHER
        if kind is EventKind.OTHER:
            self.num_odd += 1
        time_us = _within(value.get("time_us"), _MAX_SIZE)
        stack = value.get("frames")
        row = len(self.kinds)
        self.kinds.append(kind)
        self.addresses.append(address or 0)
        self.sizes.append(size or 0)
        self.times_us.append(NO_TIME if time_us is None else time_us)
        self.stack_numbers.append(stack.number + 1 if type(stack) is Stack and stack.frames else 0)
        self.stream_numbers.append(self._stream_number(_whole(value.get("stream")) or 0))
        self.pool_numbers.append(self._pool_number(_pool(value.get("pool_id", value.get("segment_pool_id")))))
        return row

    def _block(self, value: Dict) -> Block:
        state = _STATES.get(str(value.get("state"))[:40])
        size = _within(value.get("size"), _MAX_SIZE)
        if state is None or size is None:
            raise Refused("is no memory snapshot: a block has no size, or a state that is unknown")
        requested, stack = value.get("requested_size"), value.get("frames")
        if requested is None:
            requested, stack = _legacy_history(value, stack)
        return Block(
            address=_within(value.get("address"), _MAX_ADDRESS),
            size=size,
            requested=_within(requested, _MAX_SIZE),
            state=state,
            stack=stack if type(stack) is Stack and stack.frames else None,
        )

    def _segment(self, value: Dict) -> Segment:
        total_size, blocks = _within(value.get("total_size"), _MAX_SIZE), value.get("blocks")
        if total_size is None or not isinstance(blocks, list):
            raise Refused("is no memory snapshot: a segment has no size or no blocks")
        return Segment(
            device=_within(value.get("device"), 4095) or 0,
            address=_within(value.get("address"), _MAX_ADDRESS),
            total_size=total_size,
            stream=_whole(value.get("stream")) or 0,
            pool=_pool(value.get("segment_pool_id")),
            is_small=value.get("segment_type") == "small",
            is_expandable=value.get("is_expandable") is True,
            blocks=tuple(each for each in blocks if type(each) is Block),
        )

    # --- columns -----------------------------------------------------------------------------------------------

    def events_of(self, rows: list[object]) -> Events | None:
        """The events that a device's trace lists, as columns of their own; None when it lists none."""
        num_known = len(self.kinds)
        numbers = [each for each in rows if type(each) is int and 0 <= each < num_known]
        if not numbers:
            return None
        first, count = numbers[0], len(numbers)
        if all(each == first + place for place, each in enumerate(numbers)):
            # A trace is a run of rows; one device's are all there are, and need no copy.
            picked = [each if count == num_known else each[first : first + count] for each in self._columns()]
        else:
            picked = [
                array(column.typecode, (column[each] for each in numbers)) for column in self._columns()
            ]
        kinds, addresses, sizes, times_us, stack_numbers, stream_numbers, pool_numbers = picked
        return Events(
            kinds=kinds,
            addresses=addresses,
            sizes=sizes,
            times_us=times_us,
            stack_numbers=stack_numbers,
            stream_numbers=stream_numbers,
            pool_numbers=pool_numbers,
            streams=tuple(self.streams),
            pools=tuple(self.pools),
            stacks_by_number=tuple(self.stack_list),
        )

    def _columns(self) -> tuple[array[int], ...]:
        return (
            self.kinds,
            self.addresses,
            self.sizes,
            self.times_us,
            self.stack_numbers,
            self.stream_numbers,
            self.pool_numbers,
        )

    def _stream_number(self, stream: int) -> int:
        number = self.streams.setdefault(stream, len(self.streams))
        if number > MAX_NAMED:
            raise Refused(f"names more than {MAX_NAMED:,} streams, which no program has")
        return number

    def _pool_number(self, pool: PoolId | None) -> int:
        number = self.pools.setdefault(pool, len(self.pools))
        if number > MAX_NAMED:
            raise Refused(f"names more than {MAX_NAMED:,} pools, which no program has")
        return number


def _frame(value: Dict) -> Frame:
    """torch writes each frame once and refers to it again, so that equal ones are one without looking for them."""
    return Frame(_text(value.get("filename")), _whole(value.get("line")) or 0, _text(value.get("name")))


def _legacy_history(value: Dict, stack: object) -> tuple[object, object]:
    """Requested size and stack of a block as torch 1.13 and 2.0 wrote them: in a list called `history`."""
    history = value.get("history")
    newest = history[0] if isinstance(history, list) and history else None
    if not isinstance(newest, dict):
        return None, stack
    return newest.get("real_size"), newest.get("frames", stack)


def _pool(value: object) -> PoolId | None:
    if isinstance(value, tuple | list) and len(value) == 2:
        first, second = _whole(value[0]), _whole(value[1])
        if first is not None and second is not None:
            return first, second
    return None


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _within(value: object, most: int) -> int | None:
    return value if type(value) is int and 0 <= value <= most else None


def _text(value: object) -> str:
    return value[:MAX_TEXT] if type(value) is str else ""

"""The machine that reads a pickle: where it is, the values in hand, those remembered, and what they cost so far."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from distdoctor.units import MIB, format_bytes

# What is built from a file, the file itself included, may take this many times the file's size. Snapshots with stacks
# take about 2, with nothing but different stacks 5 (docs/memory-snapshots.md); a file made to fill memory reaches 60.
MAX_GROWTH = 8

# Small files may grow more: nothing hurts below this. Our own choice.
SMALL_BYTES = 16 * MIB

# Most that is built from one file. Our own choice: a login node has it, and a snapshot of some ten million events
# without stacks, or of 1.2 GB with stacks, stays below.
DEFAULT_MAX_BYTES = 2048 * MIB

# A snapshot's values lie eight levels deep. Our own bound.
MAX_DEPTH = 64

# Bytes that Python 3.10 to 3.13 needs for a value, rounded up.
NUMBER_BYTES: Final = 32
LIST_BYTES: Final = 88
SLOT_BYTES: Final = 9  # one entry of a list, with its share of what lists keep in reserve
DICT_BYTES: Final = 120
DICT_TABLE_BYTES: Final = 200
DICT_ENTRY_BYTES: Final = 60 + NUMBER_BYTES  # as if every value were a number of its own
TUPLE_BYTES: Final = 64
MEMO_BYTES: Final = SLOT_BYTES
IN_HAND_BYTES: Final = SLOT_BYTES + NUMBER_BYTES

# Python writes lists and dicts in batches of 1000; a batch in hand is copied once on its way. Our own bound.
MAX_BATCH = 100_000

# Numbers as pickles write them.
U1, U2, U4, U8 = (struct.Struct(layout) for layout in ("<B", "<H", "<I", "<Q"))
I4, F8 = struct.Struct("<i"), struct.Struct(">d")


class Refused(Exception):  # noqa: N818 - it says what happened
    """The file is not read on, and why; the message continues "the file …"."""


class Cut(Exception):  # noqa: N818
    """The bytes end before the pickle does."""


class Dict(dict[object, object]):
    """A dict of the pickle: under which number it is remembered, and what it was packed into."""

    __slots__ = ("memo_at", "packed")
    memo_at: int | None
    packed: object


class List(list[object]):
    """A list of the pickle: under which number it is remembered, and what it was packed into."""

    __slots__ = ("memo_at", "packed")
    memo_at: int | None
    packed: object


class Packer(Protocol):
    """Makes small things of large ones while a pickle is read. What it returns must not be changed later."""

    def item(self, value: Dict) -> tuple[object, int] | None:
        """What a list holds instead of this complete dict, and the bytes that takes; None to keep the dict."""

    def stack(self, items: list[object]) -> tuple[object, int] | None:
        """What a dict holds under `frames` instead of this list, and the bytes that takes; None to keep the list."""


class Machine:
    """The state of reading: where we are, the values in hand, and those remembered by number."""

    __slots__ = (
        "at",
        "data",
        "done",
        "limit",
        "marks",
        "memo",
        "packer",
        "seen",
        "spent",
        "stack",
        "why_limit",
    )

    def __init__(self, data: bytes, packer: Packer, max_bytes: int) -> None:
        self.data = data
        self.at = 0
        self.done = False
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: list[object] = []
        self.seen: dict[bytes, object] = {}
        self.packer = packer
        self.spent = len(data)
        by_growth = max(MAX_GROWTH * len(data), SMALL_BYTES)
        self.limit = min(by_growth, max_bytes)
        self.why_limit = (
            f"{MAX_GROWTH} times its size"
            if by_growth < max_bytes
            else f"the limit of {format_bytes(max_bytes)}"
        )

    def run(self, handlers: Sequence[Handler]) -> None:
        """Carry out opcodes up to STOP, each by its handler. Raises Refused, and Cut when the bytes end first."""
        data = self.data
        while not self.done:
            start = self.at
            try:
                opcode = data[start]
                self.at = start + 1
                handlers[opcode](self)
            except struct.error:
                raise Cut from None
            except IndexError:
                if self.at >= len(data):
                    raise Cut from None
                raise Refused(f"is damaged: at byte {start} it takes a value that is not there") from None
            # Values in hand are counted by how many there are: most are put away again at once. Numbers cost where they
            # are kept, so that those of an event cost nothing once it is a row.
            if self.spent + IN_HAND_BYTES * len(self.stack) > self.limit:
                raise Refused(f"would need more memory than {self.why_limit}; stopped at byte {start}")

    def complete_entries(self) -> Dict:
        """Of an outermost dict that was being filled, the first entries: lists and dicts that are whole."""
        found = new_dict()
        if not self.stack or not isinstance(self.stack[0], Dict):
            return found
        found.update(self.stack[0])
        if self.marks:
            end = self.marks[1] if len(self.marks) > 1 else len(self.stack)
            flat = self.stack[self.marks[0] : end]
            # A list or dict that another key follows is whole. Of anything else it may be a part of a tuple.
            for key, value, after in zip(flat[::2], flat[1::2], flat[2::2], strict=False):
                if type(key) is not str or type(after) is not str or not isinstance(value, Dict | List):
                    break
                found[key] = value
        return found

    # --- pieces that handlers share -------------------------------------------------------------------------

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self.at + size
        if end > len(self.data):
            raise Cut
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def line(self) -> bytes:
        """Bytes up to the end of the line, as protocol 0 writes its arguments."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise Cut
        piece = self.data[self.at : end]
        self.at = end + 1
        return piece

    def above_mark(self) -> list[object]:
        """The values above the last mark; they and the mark are gone from the stack."""
        start = self.marks.pop()
        if len(self.stack) - start > MAX_BATCH:
            raise Refused(f"has more than {MAX_BATCH:,} values in one batch where Python writes 1000")
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def push(self, value: object, num_bytes: int) -> None:
        """A new value in hand, which takes `num_bytes`."""
        self.stack.append(value)
        self.spent += num_bytes

    def text(self, raw: bytes) -> None:
        """A new string in hand. Broken UTF-8 is kept readable."""
        value = raw.decode("utf-8", "backslashreplace")
        self.push(value, sys.getsizeof(value))

    def remember(self, number: int) -> None:
        """Keep the value on top of the stack under `number`."""
        value = self.stack[-1]
        memo = self.memo
        if number == len(memo):
            memo.append(value)
            self.spent += MEMO_BYTES + number_bytes(value)
        elif number < len(memo):
            memo[number] = value
            self.spent += number_bytes(value)
            self.seen.clear()
        else:
            raise Refused(
                f"remembers an object under number {number} where {len(memo)} are known: made to fill memory, or damaged"
            )
        if isinstance(value, Dict | List):
            value.memo_at = number

    def recall(self, number: int) -> None:
        """The value that was kept under `number`."""
        if not 0 <= number < len(self.memo):
            raise Refused(f"is damaged: it recalls object {number} of {len(self.memo)}")
        self.stack.append(self.memo[number])

    def extend(self, items: list[object]) -> None:
        """Put `items` into the list on top of the stack, dicts packed."""
        target = self.stack[-1]
        if type(target) is not List:
            raise Refused(f"is damaged: at byte {self.at - 1} it appends to what is no list")
        self.spent += SLOT_BYTES * len(items)
        for item in items:
            if type(item) is Dict:
                target.append(self._packed_item(item))
            else:
                self.spent += number_bytes(item)
                target.append(item)

    def set_items(self, flat: list[object]) -> None:
        """Put keys and values, one after the other, into the dict on top of the stack."""
        target = self.stack[-1]
        if type(target) is not Dict or len(flat) % 2:
            raise Refused(f"is damaged: at byte {self.at - 1} it sets an entry of what is no dict")
        if not target:
            self.spent += DICT_TABLE_BYTES
        self.spent += DICT_ENTRY_BYTES * (len(flat) // 2)
        for index in range(0, len(flat), 2):
            key, value = flat[index], flat[index + 1]
            # Keys of tuples would be hashed, and a tuple of shared tuples takes for ever.
            if type(key) is not str and type(key) is not int:
                raise Refused(f"has a {type(key).__name__.lower()} as a key, which no snapshot has")
            if key == "frames" and type(value) is List:
                value = self._packed_stack(value)
            target[key] = value

    def _packed_item(self, item: Dict) -> object:
        if item.packed is not None:
            return item.packed
        packed = self.packer.item(item)
        if packed is None:
            return item
        item.packed, num_bytes = packed
        # Given back once for each dict, and only what is free from now on.
        self.spent += num_bytes - DICT_BYTES - DICT_TABLE_BYTES - DICT_ENTRY_BYTES * len(item)
        item.clear()
        if item.memo_at is not None:
            self.memo[item.memo_at] = item.packed
        return item.packed

    def _packed_stack(self, frames: List) -> object:
        if frames.packed is not None:
            return frames.packed
        packed = self.packer.stack(frames)
        if packed is None:
            return frames
        frames.packed, num_bytes = packed
        self.spent += num_bytes - LIST_BYTES - SLOT_BYTES * len(frames)
        frames.clear()
        if frames.memo_at is not None:
            self.memo[frames.memo_at] = frames.packed
        return frames.packed


def number_bytes(value: object) -> int:
    """What keeping `value` costs when it is a number; other values are counted when they are made."""
    return NUMBER_BYTES if type(value) is int or type(value) is float else 0


Handler = Callable[[Machine], None]
"""Carries out one opcode; the machine stands behind it."""


def new_dict() -> Dict:
    """An empty dict in no list yet."""
    value = Dict()
    value.memo_at = value.packed = None
    return value


def new_list() -> List:
    """An empty list in no dict yet."""
    value = List()
    value.memo_at = value.packed = None
    return value

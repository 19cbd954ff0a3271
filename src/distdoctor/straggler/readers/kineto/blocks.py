"""A trace of any size as its head, its events block by block, and its tail.

`{"traceEvents": [ … ]}` is cut where an event begins. Kineto and torch write the key "ph" first; `{"ph"` cannot stand
inside a JSON string, where its quotes would be escaped. Other writers put other keys first: then a block ends at the
last `}, {` before which everything decodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from distdoctor.errors import InputError
from distdoctor.straggler.readers.file_bytes import FileBytes
from distdoctor.straggler.readers.kineto.decode import ERRORS
from distdoctor.units import KIB, MIB, format_bytes

# So much is decoded at once: 4 MiB are some 12,000 events, and 20 MB of objects. Our own choice.
BLOCK_BYTES = 4 * MIB

# Metadata before the events, or without an event: the groups of 16,384 ranks are some 10 MB. Our own choice.
MAX_METADATA_BYTES = 64 * MIB

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENT = re.compile(rb'\{\s*"ph"\s*:')
_BETWEEN = re.compile(rb"\}\s*,\s*\{")
_END = re.compile(rb"\}\s*\]\s*(?=[,}]|\Z)")

# How many places are tried for the end of a block, and for the end of the array. Our own choice: the first is right
# unless arguments of an event hold lists of objects.
MAX_TRIES = 16


class Blocks:
    """Reads one trace. Raises InputError when there is no list of events within `MAX_METADATA_BYTES`."""

    def __init__(self, file: FileBytes, decodes: Callable[[bytes], bool]) -> None:
        """`decodes` tells whether some bytes are a list of events without its brackets."""
        self.head = b""
        self.tail = b""
        self.was_cut = False
        """The list of events has no end."""
        self._file = file
        self._decodes = decodes
        self._ph_is_first = False

    def events(self) -> Iterator[bytes]:
        """Pieces of the list, each some whole events with commas between; the last may hold half an event."""
        rest = bytearray()
        in_events = False
        next_look = BLOCK_BYTES
        for chunk in self._file.pieces():
            rest += chunk
            if not in_events:
                match = _EVENTS.search(rest, max(0, len(rest) - len(chunk) - 64))
                if match is None:
                    self._refuse_too_long(rest)
                    continue
                self.head = bytes(rest[: match.start()])
                del rest[: match.end()]
                in_events = True
            if len(rest) < next_look:
                continue
            end = self._last_start(rest)
            if end is None:
                self._refuse_too_long(rest)
                next_look = len(rest) + BLOCK_BYTES
                continue
            yield bytes(memoryview(rest)[:end])
            del rest[:end]
            next_look = BLOCK_BYTES
        if not in_events:
            raise InputError(f"`{self._file.path}` ends before its first event")
        last = self._split_tail(bytes(rest))
        if last.strip():
            yield last

    def _last_start(self, rest: bytearray) -> int | None:
        """Where the last event begins that is not the first of the block."""
        start = _last_event(rest, 1)
        if start is not None:
            self._ph_is_first = True
            return start
        return None if self._ph_is_first else self._last_decodable(rest)

    def _last_decodable(self, rest: bytearray) -> int | None:
        starts = [match.end() - 1 for match in _BETWEEN.finditer(rest, max(0, len(rest) - MIB))]
        for start in reversed(starts[-MAX_TRIES:]):
            if self._decodes(bytes(rest[:start]).rstrip(b" \t\r\n,")):
                return start
        return None

    def _split_tail(self, rest: bytes) -> bytes:
        """The events before the end of the array; what follows it becomes the tail."""
        if rest.lstrip()[:1] == b"]":
            self.tail = rest.lstrip()[1:]
            return b""
        last = _last_event(rest, 0)
        ends = list(_END.finditer(rest, last or 0))
        # Behind the last event that is known the first one is right; else what follows the array is short.
        for match in (ends if last is not None else ends[::-1])[:MAX_TRIES]:
            end = rest.rindex(b"]", match.start(), match.end())
            if self._decodes(rest[last or 0 : end]) or _is_tail(rest[end + 1 :]):
                self.tail = rest[end + 1 :]
                return rest[:end]
        self.was_cut = True
        return rest

    def _refuse_too_long(self, rest: bytearray) -> None:
        if len(rest) > MAX_METADATA_BYTES:
            raise InputError(
                f"`{self._file.path}`: {format_bytes(len(rest))} without the beginning of an event",
                hint="give the trace as torch.profiler wrote it",
            )


def _is_tail(text: bytes) -> bool:
    """Whether the rest of the trace's object is whole: then an event before it is broken, not cut."""
    inside = text.strip()
    if not inside.endswith(b"}") or not inside.startswith((b",", b"}")):
        return False
    try:
        msgspec.json.decode(b"{" + inside.removeprefix(b","), type=dict[str, msgspec.Raw])
    except ERRORS:
        return False
    return True


def _last_event(rest: bytes | bytearray, first: int) -> int | None:
    """Where the last event begins, at or after `first`; looked for at the end before everywhere."""
    for begin in (len(rest) - 64 * KIB, first):
        last = None
        for last in _EVENT.finditer(rest, max(first, begin)):  # noqa: B007 - the last one is wanted
            pass
        if last is not None:
            return last.start()
    return None

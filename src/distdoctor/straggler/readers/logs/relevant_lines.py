"""Lines of a log that may matter: a few plain substrings decide, before anything is decoded.

A log of many gigabytes comes in pieces; memory does not grow with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from distdoctor.evidence_bytes import CHUNK_BYTES
from distdoctor.straggler.readers.logs.lines import MAX_LINE_BYTES


def relevant_lines(
    chunks: Iterator[bytes], triggers: Sequence[bytes], wants_next: Callable[[], bool]
) -> Iterator[tuple[int, bytes]]:
    r"""(number, line) of every line that holds a trigger, and of lines behind one while `wants_next()` says so.

    Lines end at "\n", "\r\n" or "\r" (progress bars). Of longer lines the first `MAX_LINE_BYTES` are given.
    """
    number, rest, skipping = 1, b"", False
    for chunk in chunks:
        buffer = rest + chunk
        rest = b""
        if buffer.endswith(b"\r"):  # its "\n" may be in the next chunk
            buffer, rest = buffer[:-1], b"\r"
        if b"\r" in buffer:
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if skipping:  # the rest of a line that had no end within a chunk
            end = buffer.find(b"\n")
            if end < 0:
                continue
            buffer, skipping = buffer[end + 1 :], False
            number += 1
        cut = buffer.rfind(b"\n") + 1
        tail = buffer[cut:]
        if len(tail) > CHUNK_BYTES:
            buffer, tail, skipping = buffer[:cut] + tail[:MAX_LINE_BYTES], b"", True
            yield from _of_buffer(buffer, number, triggers, wants_next)
            number += buffer.count(b"\n")
            continue
        rest = tail + rest
        yield from _of_buffer(buffer[:cut], number, triggers, wants_next)
        number += buffer.count(b"\n", 0, cut)
    if rest.strip(b"\r"):
        yield from _of_buffer(rest.rstrip(b"\r"), number, triggers, wants_next)


def _of_buffer(
    buffer: bytes, number: int, triggers: Sequence[bytes], wants_next: Callable[[], bool]
) -> Iterator[tuple[int, bytes]]:
    starts = _starts(buffer, triggers)
    index, position, counted = 0, 0, 0
    while position < len(buffer):
        if not wants_next():
            while index < len(starts) and starts[index] < position:
                index += 1
            if index == len(starts):
                return
            position = starts[index]
        number += buffer.count(b"\n", counted, position)
        counted = position
        end = buffer.find(b"\n", position)
        end = len(buffer) if end < 0 else end
        yield number, buffer[position : min(end, position + MAX_LINE_BYTES)]
        position = end + 1


def _starts(buffer: bytes, triggers: Sequence[bytes]) -> list[int]:
    """Where the lines begin that hold a trigger. A trigger that is absent costs one fast search of the buffer."""
    starts: set[int] = set()
    for trigger in triggers:
        at = buffer.find(trigger)
        while at >= 0:
            starts.add(buffer.rfind(b"\n", 0, at) + 1)
            end = buffer.find(b"\n", at)
            if end < 0:
                break
            at = buffer.find(trigger, end)
    return sorted(starts)

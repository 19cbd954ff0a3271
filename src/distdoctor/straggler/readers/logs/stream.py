"""Lines that may matter of logs of any size: a few plain substrings decide, before anything is decoded.

A log of many gigabytes is read in pieces of 1 MiB; memory does not grow with it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, EvidenceText, read_evidence
from distdoctor.evidence_bytes import CHUNK_BYTES, MAX_UNPACKED_BYTES, SAMPLE_BYTES, unpacked
from distdoctor.straggler.readers.logs.lines import MAX_LINE_BYTES

_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class LogFile:
    """One log, open for one pass. Raises InputError when it is missing, empty, packed or no text."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.cut_short: str | None = None
        """In words, what was not read; known after the pass."""
        self._streams = path != STDIN and Path(path).is_file()
        # This refuses what is no text, in words, and gives size and checksum; of a pipe it is all that can be read.
        self.evidence: EvidenceText = (
            read_evidence(path, keep_bytes=SAMPLE_BYTES) if self._streams else read_evidence(path)
        )

    def chunks(self) -> Iterator[bytes]:
        """The whole text in UTF-8, unpacked, in pieces."""
        if not self._streams:
            self.cut_short = self.evidence.note
            yield self.evidence.text.encode()
            return
        pieces = self._pieces()
        first = next(pieces, b"")
        if first[:2] == b"\x1f\x8b":
            pieces = self._counted(unpacked(_chain(first, pieces), self.path))
            first = next(pieces, b"")
        encoding = _UTF16.get(first[:2]) or _wide_without_mark(first)
        yield from _recoded(_chain(first, pieces), encoding) if encoding else _chain(first, pieces)

    def _pieces(self) -> Iterator[bytes]:
        try:
            with Path(self.path).open("rb", buffering=0) as stream:
                while piece := stream.read(CHUNK_BYTES):
                    yield piece
        except OSError as error:
            raise InputError(f"cannot read `{self.path}`: {error.strerror or error}") from None

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        total = 0
        for piece in pieces:
            total += len(piece)
            yield piece
        if total > MAX_UNPACKED_BYTES:
            self.cut_short = "it unpacks to more than 1 GiB; only the first GiB was read"


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _wide_without_mark(first: bytes) -> str | None:
    sample = first[:4096]
    if len(sample) < 8:
        return None
    if sample[1::2].count(0) > 0.7 * (len(sample) / 2) and sample[0::2].count(0) < 0.1 * len(sample):
        return "utf-16-le"
    if sample[0::2].count(0) > 0.7 * (len(sample) / 2) and sample[1::2].count(0) < 0.1 * len(sample):
        return "utf-16-be"
    return None


def _recoded(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", "replace")


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

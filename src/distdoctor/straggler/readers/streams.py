"""A file read once from start to end in pieces: gzip unpacked, hashed on the way, lines split, memory bounded.

`distdoctor.evidence` keeps the two ends of a long text; timings need every line of it.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from distdoctor.errors import InputError
from distdoctor.evidence import MAX_HASHED_BYTES, STDIN, read_evidence
from distdoctor.evidence_bytes import CHUNK_BYTES
from distdoctor.report.model import InputFile
from distdoctor.units import GIB, MIB, format_bytes

# Of one file at most so much is read, unpacked. 10 million records of 350 bytes are 3.5 GB; our own choice.
MAX_STREAM_BYTES = 16 * GIB

# A longer line is no record of any tool that writes one a line; it is dropped. Our own choice.
MAX_LINE_BYTES = 16 * MIB

# Lines that differ in a number or two pack 50 to 1; beyond this ratio it is a bomb, and reading stops. Our own choice.
MAX_UNPACK_RATIO = 200

_UTF8_MARK = b"\xef\xbb\xbf"


class Stream:
    """One file. `note` says in words what was not read; size and hash are known once it was read to its end."""

    def __init__(self, path: str, *, max_bytes: int = MAX_STREAM_BYTES) -> None:
        self.path = path
        self.note: str | None = None
        self.ended_in_a_line = False
        """The last byte was no line end: the last line may be cut."""
        self._max_bytes = max_bytes
        self._is_longer = False
        self._num_bytes: int | None = None
        self._sha256: str | None = None

    def input_file(self, kind: str, *, why_not: str | None = None) -> InputFile:
        """What a report says of this file; `why_not` says why it was not read at all."""
        return InputFile(
            path=self.path,
            kind=kind,
            bytes=self._num_bytes,
            sha256=self._sha256,
            read=why_not is None,
            why_not=why_not or self.note,
        )

    def chunks(self) -> Iterator[bytes]:
        """Its bytes in pieces of at most 1 MiB, unpacked when gzip. Raises InputError."""
        total = 0
        raw = self._raw()
        first = next(raw, b"")
        pieces = _unpack(first, raw, self) if first[:2] == b"\x1f\x8b" else _chain(first, raw)
        for piece in pieces:
            total += len(piece)
            if total > self._max_bytes:
                self._is_longer = True
                self.note = f"only the first {format_bytes(self._max_bytes)} were read"
                return
            yield piece

    def lines(self) -> Iterator[bytes]:
        """Its lines without their ends, empty ones left out. Raises InputError."""
        rest = b""
        dropped = 0
        is_first = True
        for chunk in self.chunks():
            piece = chunk.removeprefix(_UTF8_MARK) if is_first else chunk
            is_first = False
            parts = (rest + piece).split(b"\n")
            rest = parts.pop()
            if len(rest) > MAX_LINE_BYTES:
                rest = b""
                dropped += 1
            for line in parts:
                if line and line != b"\r":
                    yield line
        if dropped:
            self.note = f"a line longer than {format_bytes(MAX_LINE_BYTES)} was left out"
        if rest.strip():
            self.ended_in_a_line = True
            yield rest

    def whole(self) -> bytes:
        """All its bytes. Raises InputError when there are more than allowed, or none."""
        data = b"".join(self.chunks())
        if self._is_longer:
            raise InputError(f"`{self.path}` holds more than {format_bytes(self._max_bytes)}")
        if not data.strip():
            raise InputError(f"`{self.path}` is empty")
        return data.removeprefix(_UTF8_MARK)

    def _raw(self) -> Iterator[bytes]:
        if self.path == STDIN:
            yield read_evidence(STDIN).text.encode()
            return
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            raise InputError(f"`{self.path}` is not there") from None
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read `{self.path}`: {getattr(error, 'strerror', None) or error}"
            ) from None
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            os.close(descriptor)
            what = "a folder" if stat.S_ISDIR(info.st_mode) else "no regular file"
            raise InputError(f"`{self.path}` is {what}")
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            self._num_bytes = info.st_size
            digest = hashlib.sha256() if info.st_size <= MAX_HASHED_BYTES else None
            while True:
                try:
                    chunk = file.read(CHUNK_BYTES)
                except OSError as error:
                    raise InputError(f"cannot read `{self.path}`: {error.strerror or error}") from None
                if not chunk:
                    break
                if digest is not None:
                    digest.update(chunk)
                yield chunk
            if digest is not None:
                self._sha256 = digest.hexdigest()


def size_of(path: str) -> int | None:
    """Bytes on disk; None for standard input and for what cannot be looked at."""
    try:
        return None if path == STDIN else Path(path).stat().st_size
    except (OSError, ValueError):
        return None


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
        yield from rest


def _unpack(first: bytes, rest: Iterator[bytes], stream: Stream) -> Iterator[bytes]:
    """gzip, one member after another; what comes before a torn end is kept."""
    machine = zlib.decompressobj(wbits=31)
    packed = total = 0
    is_between = False
    for chunk in _chain(first, rest):
        todo = chunk
        packed += len(chunk)
        while todo:
            if is_between and todo[:2] != b"\x1f\x8b":
                # Padding behind the last member; read to the end all the same, so that the hash is of the whole file.
                for _ in rest:
                    pass
                return
            is_between = False
            try:
                piece = machine.decompress(todo, CHUNK_BYTES)
            except zlib.error as error:
                if not total:
                    raise InputError(
                        f"`{stream.path}` looks like gzip but does not unpack: {error}"
                    ) from None
                stream.note = "the compressed data is broken; what came before was read"
                return
            total += len(piece)
            if total > MAX_UNPACK_RATIO * packed + MAX_LINE_BYTES:
                stream.note = (
                    f"it unpacks to more than {MAX_UNPACK_RATIO} times its size; the rest was left out"
                )
                return
            if piece:
                yield piece
            todo = machine.unconsumed_tail
            if machine.eof:
                todo = machine.unused_data
                machine = zlib.decompressobj(wbits=31)
                is_between = True
    if is_between:
        return
    if last := machine.flush():
        yield last
    if not machine.eof:
        stream.note = "the compressed data ends too early; what came before was read"

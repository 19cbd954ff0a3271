"""How a file given as evidence becomes text: bounded, decoded, and with one clear line when it cannot be.

Evidence is untrusted and may be anything: a 2 GB log, a gzip bomb, a core file, UTF-16 from PowerShell, a log
with a run of NUL bytes from a power cut.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from distdoctor.errors import InputError
from distdoctor.evidence_bytes import (
    CHUNK_BYTES,
    SAMPLE_BYTES,
    decode,
    head_and_tail,
    looks_binary,
    plain,
    unpack_head,
    unpacked,
)
from distdoctor.report.model import InputFile
from distdoctor.units import MIB, format_bytes

STDIN = "-"

# Whole files up to this size get a checksum; beyond it reading everything would cost more than it tells.
MAX_HASHED_BYTES = 64 * MIB

# Of a longer text we keep this much of its start and of its end. Our own choice: incidents are at the end,
# versions and set-up at the start, and 2 x 16 MiB of text is read in about a second.
KEEP_BYTES = 16 * MIB

# A pipe may never end (`journalctl -f`, /dev/zero); reading stops here. Our own choice: some seconds of reading.
MAX_PIPE_BYTES = 1024 * MIB

# Of a text with more lines than this the first and the last half are kept; every line costs some microseconds.
# Our own choice: logs have some 100 characters a line, so 32 MiB of them stay whole.
MAX_LINES = 400_000

# Longer lines are cut: no tool that we read prints them, and a regular expression must not meet them.
MAX_LINE_CHARACTERS = 16_384

# A folder given as evidence is walked down to this many files. Our own choice.
MAX_FILES = 5000


# First bytes of formats that are no text, with what to do about them.
_PACKED = (
    (b"\xfd7zXZ\x00", "compressed with xz", "unpack it first: `xz -d FILE`"),
    (b"BZh", "compressed with bzip2", "unpack it first: `bzip2 -d FILE`"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it first: `zstd -d FILE`"),
    (b"PK\x03\x04", "a zip archive", "unpack it first and give the folder"),
    (b"\x7fELF", "an ELF binary or core file", None),
    (b"%PDF-", "a PDF", "copy its text into a file"),
    (b"\x89PNG", "an image", "paste the text instead of a screenshot"),
    (b"\xff\xd8\xff", "an image", "paste the text instead of a screenshot"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceText:
    """Text of one file. `left_out_bytes` in its middle were not kept; `note` says so in words."""

    path: str
    text: str
    num_bytes: int | None
    """Size on disk; None for a pipe that was not read to its end."""
    sha256: str | None
    left_out_bytes: int = 0
    note: str | None = None

    def input_file(self, kind: str) -> InputFile:
        """What a report says about this file once its kind is known."""
        return InputFile(
            path=self.path, kind=kind, bytes=self.num_bytes, sha256=self.sha256, why_not=self.note
        )


def find_files(paths: Sequence[str], *, max_files: int = MAX_FILES) -> list[str]:
    """The files that `paths` stand for: files as given, folders walked (sorted, links not followed), `-` kept.

    Raises InputError for a path that is not there or cannot be listed, for an empty folder, and when there are
    more than `max_files` files.
    """
    files: list[str] = []
    for path in paths:
        if path != STDIN and os.path.isdir(path):  # noqa: PTH112 - False, not an error, where we may not look
            inside = _walk(Path(path), max_files)
            if not inside:
                raise InputError(f"no files in folder `{path}`")
            files += inside
        else:
            files.append(path)
    if len(files) > max_files:
        raise InputError(f"{len(files)} files are more than {max_files}", hint="give the folders that matter")
    return files


def read_bounded(path: str | Path, max_bytes: int) -> bytes:
    """The first `max_bytes` + 1 bytes of a file or pipe: one byte more than allowed shows that it is too large.

    For files that a command line names beside the evidence: a report, a key, a site file. Neither a device that
    never ends nor a FIFO that nobody writes to holds it up. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        os.close(descriptor)
        what = "a folder" if stat.S_ISDIR(mode) else "a device or socket"
        raise OSError(errno.EINVAL, f"it is {what}, not a file")
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(max_bytes + 1)


def read_head(path: str, *, max_bytes: int = SAMPLE_BYTES) -> bytes:
    """The first bytes of a file (or of standard input), unpacked when it is gzip. Raises InputError."""
    if path == STDIN:
        return _once(_stdin(), path, KEEP_BYTES)[0][:max_bytes]
    with open_evidence(path) as stream:
        if _size(stream) is None:
            return _once(stream, path, KEEP_BYTES)[0][:max_bytes]
        data = _guarded_read(stream, path, max(max_bytes, SAMPLE_BYTES))
    if data[:2] == b"\x1f\x8b":
        data = unpack_head(data, max_bytes)
    return data[:max_bytes]


def read_ends(path: str, *, head_bytes: int, tail_bytes: int) -> bytes:
    """The first bytes of a file, and of a longer text its last lines too: a log's error stands at its end.

    What is packed, binary or a pipe gives its first bytes only. Raises InputError.
    """
    head = read_head(path, max_bytes=head_bytes)
    if path == STDIN or len(head) < head_bytes or looks_binary(head):
        return head
    with open_evidence(path) as stream:
        size = _size(stream)
        if size is None or size <= head_bytes or _guarded_read(stream, path, 2) == b"\x1f\x8b":
            return head
        stream.seek(max(head_bytes, size - tail_bytes))
        tail = _guarded_read(stream, path, tail_bytes)
    # No half line is taken for a whole one.
    return head + b"\n" + tail[tail.find(b"\n") + 1 :]


def read_evidence(path: str, *, keep_bytes: int = KEEP_BYTES) -> EvidenceText:
    """Text of `path` (or of standard input for `-`), decoded, at most 2 x `keep_bytes` of it.

    gzip is unpacked. Raises InputError with one line when the file is missing, unreadable, empty, or no text.
    """
    if path == STDIN:
        return _text_of(STDIN, _once(_stdin(), path, keep_bytes))
    with open_evidence(path) as stream:
        size = _size(stream)
        if size is None:
            return _text_of(path, _once(stream, path, keep_bytes))
        magic = _guarded_read(stream, path, 8)
        refuse_packed(path, magic)
        stream.seek(0)
        sha256 = None
        if size <= MAX_HASHED_BYTES:
            sha256 = _digest(stream)
            stream.seek(0)
        if magic[:2] == b"\x1f\x8b":
            ends = head_and_tail(unpacked(chunks_of(stream, path), path), keep_bytes)
        else:
            ends = _ends_of_file(stream, size, keep_bytes)
    return _text_of(path, ends, size, sha256)


# A pipe can be read once, and both whoever tells what it is and whoever reads it want it. The stream itself is kept
# beside its text, so that no later stream takes its place.
_pipes: dict[tuple[object, ...], tuple[BinaryIO, tuple[bytes, bytes, int]]] = {}


def _stdin() -> BinaryIO:
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("standard input is closed")
    return sys.stdin.buffer


def _once(stream: BinaryIO, path: str, keep_bytes: int) -> tuple[bytes, bytes, int]:
    """Both ends of what a pipe gives, read when it is first asked for."""
    try:
        info = os.fstat(stream.fileno())
        key: tuple[object, ...] = (path, info.st_dev, info.st_ino)
    except (OSError, ValueError):  # standard input that is no file, as in tests
        key = (path, id(stream))
    if key not in _pipes:
        chunks = islice(chunks_of(stream, path), MAX_PIPE_BYTES // CHUNK_BYTES)
        _pipes[key] = (stream, head_and_tail(plain(chunks, path), keep_bytes))
    return _pipes[key][1]


def _digest(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _walk(folder: Path, max_files: int) -> list[str]:
    found: list[str] = []
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise InputError(f"cannot list folder `{folder}`: {error.strerror}") from None
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(parent) / name
            if not name.startswith(".") and file.is_file():
                found.append(str(file))
        if len(found) > max_files:
            break
    return found


def open_evidence(path: str) -> BinaryIO:
    """A file or FIFO, open for reading; a FIFO without waiting for a writer that may never come.

    Raises InputError for what is missing or unreadable, for folders, devices and sockets.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
        os.set_blocking(descriptor, True)
        stream = os.fdopen(descriptor, "rb", buffering=0)
    except FileNotFoundError:
        raise InputError(f"`{path}` is not there") from None
    except IsADirectoryError:
        raise InputError(f"`{path}` is a folder") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read `{path}`: {getattr(error, 'strerror', None) or error}") from None
    mode = os.fstat(stream.fileno()).st_mode
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
        return io.BufferedReader(stream)
    stream.close()
    what = "a folder" if stat.S_ISDIR(mode) else "a device or socket"
    raise InputError(f"`{path}` is {what}, not a file")


def _size(stream: BinaryIO) -> int | None:
    info = os.fstat(stream.fileno())
    # Files below /proc say 0 and still have content; read those to their end.
    return info.st_size if stat.S_ISREG(info.st_mode) and info.st_size else None


def _guarded_read(stream: BinaryIO, path: str, num_bytes: int) -> bytes:
    try:
        return stream.read(num_bytes)
    except OSError as error:
        raise InputError(f"cannot read `{path}`: {error.strerror or error}") from None


def chunks_of(stream: BinaryIO, path: str) -> Iterator[bytes]:
    """What is left of an open file, 1 MiB at a time. Raises InputError."""
    while chunk := _guarded_read(stream, path, CHUNK_BYTES):
        yield chunk


def _ends_of_file(stream: BinaryIO, size: int, keep_bytes: int) -> tuple[bytes, bytes, int]:
    stream.seek(0)
    if size <= 2 * keep_bytes:
        return stream.read(2 * keep_bytes), b"", 0
    head = stream.read(keep_bytes)
    stream.seek(size - keep_bytes)
    return head, stream.read(keep_bytes), size - 2 * keep_bytes


def _text_of(
    path: str, ends: tuple[bytes, bytes, int], size: int | None = None, sha256: str | None = None
) -> EvidenceText:
    head, tail, left_out = ends
    name = "standard input" if path == STDIN else f"`{path}`"
    if not head.strip():
        raise InputError(f"{name} is empty")
    refuse_packed(path, head)
    if looks_binary(head):
        raise InputError(f"{name} is no text", hint="give the text that a tool printed, or a report in JSON")
    if not left_out:
        text, num_lines = _fewer_lines(decode(head + tail))
        note = f"{num_lines:,} lines in the middle were left out" if num_lines else None
        return EvidenceText(path=path, text=text, num_bytes=size, sha256=sha256, note=note)
    # Cut at line ends, so that no half line is read as a whole one.
    head = head[: head.rfind(b"\n") + 1] or head
    tail = tail[tail.find(b"\n") + 1 :] or tail
    note = (
        f"only the first {format_bytes(len(head))} and the last {format_bytes(len(tail))} were read; "
        f"{format_bytes(left_out)} between them were left out"
    )
    text, num_lines = _fewer_lines(decode(head) + "\n" + decode(tail))
    if num_lines:
        note += f", and {num_lines:,} lines of what was read"
    return EvidenceText(
        path=path,
        text=text,
        num_bytes=size,
        sha256=sha256,
        left_out_bytes=left_out,
        note=note,
    )


def _fewer_lines(text: str) -> tuple[str, int]:
    """At most `MAX_LINES` lines, from both ends, and how many were left out."""
    count = text.count("\n") + text.count("\r")
    if count <= MAX_LINES:
        return text, 0
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    left_out = text.count("\n") - MAX_LINES
    if left_out <= 0:
        return text, 0
    start, end = 0, text.rindex("\n")
    for _ in range(MAX_LINES // 2):
        start = text.index("\n", start) + 1
        end = text.rindex("\n", 0, end)
    return text[:start] + text[end + 1 :], left_out


def refuse_packed(path: str, head: bytes) -> None:
    """Raises InputError, with what to do, when the first bytes of a file are those of an archive or another format."""
    name = "standard input" if path == STDIN else f"`{path}`"
    for start, what, hint in _PACKED:
        if head.startswith(start):
            raise InputError(f"{name} is {what}, not text", hint=hint)
    if head[257:262] == b"ustar":
        raise InputError(f"{name} is a tar archive", hint="unpack it first and give the folder")

"""Which files are memory snapshots, and all that are given, read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from distdoctor.errors import InputError
from distdoctor.oom.facts.snapshot import Snapshot
from distdoctor.oom.snapshots.machine import DEFAULT_MAX_BYTES
from distdoctor.oom.snapshots.read import KIND, read_snapshot
from distdoctor.report.model import InputFile

# The outermost keys stand at the file's beginning; those of a bare list of segments a little later.
_KEYS_WITHIN = 4096


def sniff_snapshot(path: str, head: bytes) -> float:
    """How sure we are, from 0 to 1, that a file with these first bytes (unpacked when gzip) is a memory snapshot."""
    start = head[:_KEYS_WITHIN]
    is_pickle = start[:1] == b"\x80" or start[:2] in (b"(d", b"(l", b"}q", b"]q", b"}(", b"](")
    if is_pickle and b"segments" in start[:128]:
        return 0.95
    if is_pickle and b"total_size" in start and b"blocks" in start:
        return 0.9
    # Named as one, but a zip or another pickle: its reader says what it is instead.
    named = (
        "memory_snapshot" in PurePath(path).name.lower() or "memory-snapshot" in PurePath(path).name.lower()
    )
    return 0.4 if named and start[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") else 0.0


def snapshots_from_files(
    paths: Sequence[str], *, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[tuple[Snapshot, ...], tuple[InputFile, ...]]:
    """The snapshots in `paths`, in that order, and what a report says of every file.

    One file after the other is read, each within `max_bytes` of memory. A file that cannot be read is in the second
    part with the reason. Raises InputError when none can be read.
    """
    snapshots: list[Snapshot] = []
    files: list[InputFile] = []
    errors: list[InputError] = []
    for path in paths:
        try:
            snapshot, file = read_snapshot(path, max_bytes=max_bytes)
        except InputError as error:
            errors.append(error)
            files.append(InputFile(path=path, kind=KIND, read=False, why_not=error.message))
        else:
            snapshots.append(snapshot)
            files.append(file)
    if not snapshots:
        raise errors[0] if errors else InputError("no memory snapshot was given")
    return tuple(snapshots), tuple(files)

"""One pass over the bytes of a file of any size: gzip unpacked, counted and hashed on the way, memory bounded.

`distdoctor.evidence` keeps the two ends of a long text; timings need all of it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from distdoctor.evidence import MAX_HASHED_BYTES, STDIN, chunks_of, open_evidence, read_evidence
from distdoctor.evidence_bytes import plain
from distdoctor.report.model import InputFile
from distdoctor.units import GIB, format_bytes

# Of one file at most so much is read, unpacked. 10 million records of 350 bytes are 3.5 GB; our own choice.
MAX_FILE_BYTES = 16 * GIB

# Lines that differ in a number or two pack 50 to 1; what packs better than this and is large is a bomb. Our own choice.
MAX_UNPACK_RATIO = 200


class FileBytes:
    """One file. Size, hash and `note` are known once it was read to its end."""

    def __init__(self, path: str, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.path = path
        self.num_bytes: int | None = None
        """Size on disk; None for standard input and pipes."""
        self.sha256: str | None = None
        """Of what is on disk, up to `MAX_HASHED_BYTES`."""
        self.note: str | None = None
        """In words, what was not read."""
        self.is_longer = False
        """It holds more than `max_bytes`."""
        self.max_bytes = max_bytes

    def tell(self, what: str) -> None:
        """Adds to what `note` says."""
        self.note = what if self.note is None else f"{self.note}; {what}"

    def input_file(self, kind: str, why_not: str | None = None) -> InputFile:
        """What a report says of this file; `why_not` says why it was not read at all."""
        return InputFile(
            path=self.path,
            kind=kind,
            bytes=self.num_bytes,
            sha256=self.sha256,
            read=why_not is None,
            why_not=why_not or self.note,
        )

    def pieces(self) -> Iterator[bytes]:
        """Its bytes, unpacked when gzip, in pieces of at most 1 MiB (a pipe in one). Raises InputError."""
        stored = self._stored()
        total = 0
        for piece in plain(stored, self.path, max_ratio=MAX_UNPACK_RATIO, tell=self.tell):
            if total + len(piece) > self.max_bytes:
                self.is_longer = True
                self.tell(f"only the first {format_bytes(self.max_bytes)} were read")
                yield piece[: self.max_bytes - total]
                break
            total += len(piece)
            if piece:
                yield piece
        if self.num_bytes is not None and self.num_bytes <= MAX_HASHED_BYTES:
            # The hash is of the whole file, also of what is behind packed data.
            for _ in stored:
                pass

    def _stored(self) -> Iterator[bytes]:
        """Its bytes as they are on disk."""
        if self.path == STDIN or not os.path.isfile(self.path):  # noqa: PTH113 - False, not an error, where we may not look
            # A pipe can be read once, and who told what it is has read it: its text is kept there. What is missing, a
            # folder or a device is refused there, in words.
            evidence = read_evidence(self.path)
            if evidence.note:
                self.tell(evidence.note)
            yield evidence.text.encode()
            return
        with open_evidence(self.path) as stream:
            self.num_bytes = os.fstat(stream.fileno()).st_size
            digest = hashlib.sha256() if self.num_bytes <= MAX_HASHED_BYTES else None
            for chunk in chunks_of(stream, self.path):
                if digest is not None:
                    digest.update(chunk)
                yield chunk
        if digest is not None:
            self.sha256 = digest.hexdigest()


def size_of(path: str) -> int | None:
    """Bytes on disk; None for standard input, pipes and what cannot be looked at."""
    try:
        return Path(path).stat().st_size if path != STDIN and Path(path).is_file() else None
    except (OSError, ValueError):
        return None

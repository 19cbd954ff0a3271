"""Large text evidence piece by piece: whole lines, gzip unpacked, NUL bytes taken out, never all of it at once."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from distdoctor.errors import InputError
from distdoctor.evidence import MAX_HASHED_BYTES, STDIN, read_evidence
from distdoctor.evidence_bytes import CHUNK_BYTES, decode, looks_binary, plain
from distdoctor.report.model import InputFile
from distdoctor.units import MIB

# A line of a table is some hundred bytes; what is longer is no table. Our own bound.
MAX_LINE_BYTES = 4 * MIB

# Text in UTF-16, as PowerShell writes it, is decoded as a whole; larger ones are refused.
MAX_UTF16_BYTES = 256 * MIB

# Lines are handed on in blocks of at least this size: large enough that the work per block does not count.
BLOCK_BYTES = 4 * MIB


@dataclass(slots=True)
class TextFile:
    """One text file that is read from its start to its end once."""

    path: str
    num_bytes: int | None = None
    num_nul: int = 0
    """NUL bytes that were taken out, as after a power cut."""
    is_cut: bool = False
    """The last line has no line end."""
    _digest: str | None = None
    notes: list[str] = field(default_factory=list)

    def blocks(self) -> Iterator[bytes]:
        """Whole lines, some MiB at a time; the last block may lack its line end. Raises InputError."""
        rest = b""
        for chunk in self._text():
            num_nul = chunk.count(0)
            self.num_nul += num_nul
            rest += chunk.replace(b"\0", b"") if num_nul else chunk
            if len(rest) < BLOCK_BYTES:
                continue
            end = rest.rfind(b"\n") + 1
            if end:
                yield rest[:end]
                rest = rest[end:]
            elif len(rest) > 16 * MAX_LINE_BYTES:
                raise InputError(f"`{self.path}` has a line of more than {16 * MAX_LINE_BYTES // MIB} MiB")
        if rest:
            self.is_cut = not rest.endswith(b"\n")
            yield rest

    def input_file(self, kind: str, why_not: str | None = None) -> InputFile:
        """What a report says of this file; `why_not` when it was not read."""
        return InputFile(
            path=self.path,
            kind=kind,
            bytes=self.num_bytes,
            sha256=self._digest,
            read=why_not is None,
            why_not=why_not,
        )

    def _text(self) -> Iterator[bytes]:
        if self.path == STDIN:
            yield read_evidence(STDIN).text.encode()
            return
        chunks = plain(self._raw(), self.path)
        first = next(chunks, b"")
        if not first.strip(b"\0 \t\r\n") and not any(chunk.strip(b"\0 \t\r\n") for chunk in chunks):
            raise InputError(f"`{self.path}` is empty")
        if looks_binary(first) and first.strip(b"\0"):
            stripped = first.replace(b"\0", b"")
            if looks_binary(stripped) or not stripped:
                raise InputError(f"`{self.path}` is no text")
        if first[:2] in (b"\xff\xfe", b"\xfe\xff"):
            yield self._utf16(first, chunks)
            return
        yield first.removeprefix(b"\xef\xbb\xbf")
        yield from chunks

    def _utf16(self, first: bytes, chunks: Iterator[bytes]) -> bytes:
        whole = bytearray(first)
        for chunk in chunks:
            whole += chunk
            if len(whole) > MAX_UTF16_BYTES:
                raise InputError(f"`{self.path}` is UTF-16 and too large", hint="save it as UTF-8")
        return decode(bytes(whole)).encode()

    def _raw(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
            mode = os.fstat(descriptor).st_mode
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read `{self.path}`: {getattr(error, 'strerror', None) or error}"
            ) from None
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            os.close(descriptor)
            raise InputError(f"`{self.path}` is no file")
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            os.set_blocking(descriptor, True)
            self.num_bytes = os.fstat(descriptor).st_size if stat.S_ISREG(mode) else None
            is_hashed = self.num_bytes is not None and self.num_bytes <= MAX_HASHED_BYTES
            try:
                while chunk := stream.read(CHUNK_BYTES):
                    if is_hashed:
                        digest.update(chunk)
                    yield chunk
            except OSError as error:
                raise InputError(f"cannot read `{self.path}`: {error.strerror or error}") from None
        if is_hashed:
            self._digest = digest.hexdigest()


def one_line(error: InputError) -> str:
    """Why a file was not read, with what to do about it."""
    return f"{error.message}; {error.hint}" if error.hint else error.message

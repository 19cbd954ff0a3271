"""The text of a file of any size, in UTF-8: byte order marks taken off, what is no text refused.

A power cut leaves runs of NUL bytes. Before a line they are taken out; within a line one of them stays, so that two
halves of numbers are not read as one.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain

from distdoctor.errors import InputError
from distdoctor.evidence import refuse_packed
from distdoctor.evidence_bytes import SAMPLE_BYTES, looks_binary, utf16_without_mark
from distdoctor.straggler.readers.file_bytes import FileBytes
from distdoctor.units import format_bytes

_NUL_BEFORE_A_LINE = re.compile(rb"(?<=\n)\0+")
_NUL_WITHIN = re.compile(rb"\0+")

_UTF8_MARK = codecs.BOM_UTF8
_UTF16_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def text_start(head: bytes) -> bytes:
    """What is left of the first bytes of a file behind a byte order mark, white space and NUL bytes."""
    return head.lstrip(_UTF8_MARK + b" \t\r\n\0")


class FileText(FileBytes):
    """One file of text. `num_nul` is known once it was read to its end."""

    num_nul = 0
    """NUL bytes in it, as after a power cut."""
    _begins_a_line = True

    def text(self) -> Iterator[bytes]:
        """Its text in pieces of some MiB at most. Raises InputError when it is empty, packed or no text."""
        pieces = self.pieces()
        first = _first(pieces)
        refuse_packed(self.path, first)
        is_blank = True
        for piece in map(self._without_nul, _in_utf8(first, pieces)):
            if is_blank and piece.strip(b"\0 \t\r\n"):
                if looks_binary(piece):
                    raise InputError(f"`{self.path}` is no text")
                is_blank = False
            yield piece
        if is_blank:
            raise InputError(f"`{self.path}` is empty")
        if self.num_nul:
            self.tell(
                f"it holds {self.num_nul:,} NUL bytes, as after a power cut; lines that they hit were left out"
            )

    def whole(self) -> bytes:
        """All its text at once. Raises InputError also when it is longer than allowed."""
        data = b"".join(self.text())
        if self.is_longer:
            raise InputError(f"`{self.path}` holds more than {format_bytes(self.max_bytes)}")
        return data

    def _without_nul(self, piece: bytes) -> bytes:
        if b"\0" in piece:  # counting takes ten times as long as looking
            self.num_nul += piece.count(0)
            piece = _NUL_BEFORE_A_LINE.sub(b"", piece.lstrip(b"\0") if self._begins_a_line else piece)
            piece = _NUL_WITHIN.sub(b"\0", piece)
        self._begins_a_line = piece.endswith(b"\n") or (self._begins_a_line and not piece)
        return piece


def _first(pieces: Iterator[bytes]) -> bytes:
    """Enough to tell what it is: packed data may begin with pieces of some bytes."""
    first = b""
    for piece in pieces:
        first += piece
        if len(first) >= SAMPLE_BYTES:
            break
    return first


def _in_utf8(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    wide = _UTF16_MARKS.get(first[:2]) or utf16_without_mark(first[:SAMPLE_BYTES])
    pieces: Iterator[bytes] = chain((first,), others)
    if wide is not None:
        pieces = _recoded(pieces, wide)
    yield next(pieces, b"").removeprefix(_UTF8_MARK)
    yield from pieces


def _recoded(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", "replace")

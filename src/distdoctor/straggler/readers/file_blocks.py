"""A text file of any size in blocks of whole lines, large enough that the work for each block does not count."""

from __future__ import annotations

from collections.abc import Iterator

from distdoctor.errors import InputError
from distdoctor.straggler.readers.file_text import FileText
from distdoctor.units import MIB, format_bytes

# A line of a table is some hundred bytes; what is longer is no row. Our own bound.
MAX_LINE_BYTES = 4 * MIB

# What has no line end within so much is no table at all. Our own bound.
MAX_WITHOUT_END_BYTES = 64 * MIB

# Blocks have at least this size, but for the last one.
BLOCK_BYTES = 4 * MIB


class FileBlocks(FileText):
    """One file of text. `is_cut` is known with its last block."""

    is_cut = False
    """The last line has no line end."""

    def blocks(self) -> Iterator[bytes]:
        """Whole lines, some MiB at a time; the last block may lack its line end. Raises InputError.

        Lines that NUL bytes hit are empty.
        """
        rest = b""
        for piece in self.text():
            rest += piece
            if len(rest) < BLOCK_BYTES:
                continue
            end = rest.rfind(b"\n") + 1
            if end:
                yield _undamaged(rest[:end])
                rest = rest[end:]
            elif len(rest) > MAX_WITHOUT_END_BYTES:
                raise InputError(
                    f"`{self.path}` has a line of more than {format_bytes(MAX_WITHOUT_END_BYTES)}"
                )
        if rest:
            self.is_cut = not rest.endswith(b"\n")
            yield _undamaged(rest)


def _undamaged(block: bytes) -> bytes:
    if b"\0" not in block:
        return block
    return b"\n".join(b"" if b"\0" in line else line for line in block.split(b"\n"))

"""Line after line of a text file of any size."""

from __future__ import annotations

from collections.abc import Iterator

from distdoctor.straggler.readers.file_text import FileText
from distdoctor.units import MIB, format_bytes

# A longer line is no record of any tool that writes one a line; it is dropped. Our own choice.
MAX_LINE_BYTES = 16 * MIB


class FileLines(FileText):
    """One file of text. `ended_in_a_line` is known once it was read to its end."""

    ended_in_a_line = False
    """The last byte was no line end: the last line may be cut."""

    def lines(self) -> Iterator[bytes]:
        """Its lines without their ends; empty ones and those that NUL bytes hit left out. Raises InputError."""
        rest = b""
        num_dropped = 0
        is_dropping = False
        for piece in self.text():
            parts = (rest + piece).split(b"\n")
            rest = parts.pop()
            if is_dropping and parts:
                del parts[0]
                is_dropping = False
            if len(rest) > MAX_LINE_BYTES or is_dropping:
                num_dropped += not is_dropping
                rest, is_dropping = b"", True
            for line in parts:
                if line and line != b"\r" and b"\0" not in line:
                    yield line
        if num_dropped:
            what = "1 line was" if num_dropped == 1 else f"{num_dropped} lines were"
            self.tell(f"{what} longer than {format_bytes(MAX_LINE_BYTES)} and left out")
        if rest.strip(b"\0 \t\r\n"):
            self.ended_in_a_line = True
            yield rest

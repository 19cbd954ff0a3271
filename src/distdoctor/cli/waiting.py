"""What is being done, on a terminal, while nothing else can be seen."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

START_OF_LINE = "\r\033[K"


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """One line on stderr until the work is done; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    # A line that the terminal breaks cannot be cleared.
    columns = shutil.get_terminal_size(fallback=(80, 24)).columns
    print(text[: columns - 1], end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(START_OF_LINE, end="", file=sys.stderr, flush=True)

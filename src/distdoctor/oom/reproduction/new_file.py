"""A file of its own for each snapshot: what is there already, perhaps of an earlier run, stays."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

# Somebody else fills the folder. Our own bound.
_MOST = 1000


def create_new_file(folder: Path, name: str, suffix: str) -> Path:
    """Create `name.suffix`, or `name-2.suffix` and so on where that is taken; empty, and ours alone. No link that lies
    there is followed. Raises OSError."""
    for number in count(1):
        path = folder / f"{name}{f'-{number}' if number > 1 else ''}{suffix}"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            if number >= _MOST:
                raise
            continue
        return path
    raise AssertionError("count() does not end")

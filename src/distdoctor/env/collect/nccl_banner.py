"""The NCCL version inside a library file, by the banner that NCCL would print; nothing is loaded or run."""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from distdoctor.env.elf import section_range

# NCCL keeps "NCCL version 2.28.9+cuda13.0" as one string constant (src/init.cc, VERSION_STRING); RCCL
# does the same with its own name.
_BANNER = re.compile(rb"CCL version (\d{1,3}\.\d{1,3}\.\d{1,3})(?:\+(?:cuda|hip)(\d{1,3}\.\d{1,3}))?")
_MARK = b"CCL version "

# Constants live in .rodata, a few MiB in libnccl; GPU code (hundreds of MiB) is not looked at. Without a
# section table the head of the file is searched, where linkers put constants.
MAX_SCAN_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Banner:
    """Version of NCCL, and of the CUDA that it was built for."""

    version: str
    cuda: str | None


def read_nccl_banner(path: Path) -> Banner | None:
    """The banner in the file, or None when it holds no NCCL. Raises OSError when it cannot be read."""
    status = path.stat()
    return _scan(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _scan(path: Path, size: int, _mtime_ns: int) -> Banner | None:
    if size == 0:
        return None
    try:
        where = section_range(path, ".rodata")
    except ValueError:
        where = None
    start, length = where if where is not None and where[0] < size else (0, size)
    end = min(start + min(length, MAX_SCAN_BYTES), size)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
        at = view.find(_MARK, start, end)
        while at >= 0:
            match = _BANNER.match(view[at : at + 64])
            if match is not None:
                return Banner(match[1].decode(), match[2].decode() if match[2] else None)
            at = view.find(_MARK, at + 1, end)
    return None

"""Numbers with units as people read them. GiB is 2^30 bytes (as torch prints), GB/s is 10^9 (as nccl-tests)."""

from __future__ import annotations

import re

from distdoctor.errors import UsageError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:(k|m|g|t|p)(?:i?b)?|b)?", re.IGNORECASE)
_UNIT = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB, "p": 1024 * 1024 * GIB}

# No buffer or limit of one rank is larger; a longer number is a slip.
MAX_SIZE_BYTES = 1024 * GIB

# Of what was typed, in an error.
_MAX_SHOWN = 40


def format_bytes(num_bytes: int | float) -> str:
    """`num_bytes` in the largest binary unit that keeps it, rounded, at or above 1: '64 MiB', '1.5 GiB'."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        # What rounds to 1024 is one of the next unit.
        if abs(value) < 1023.5 or unit == "TiB":
            break
        value /= 1024
    text = f"{value:.1f}".removesuffix(".0") if abs(value) < 100 else f"{value:.0f}"
    return f"{text} {unit}"


def parse_bytes(text: str, *, option: str = "") -> int:
    """Bytes of "1024", "64K", "64 KiB", "1.5G". Raises UsageError, which names the option where there is one."""
    where = f"{option}: " if option else ""
    shown = text.strip() if len(text.strip()) <= _MAX_SHOWN else f"{text.strip()[:_MAX_SHOWN]}…"
    hint = "write 1024, 64K, 16M or 1.5G (powers of 1024)"
    if not shown:
        raise UsageError(f"{where}no size is given", hint=hint)
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{where}`{shown}` is no size", hint=hint)
    size = float(match[1]) * _UNIT[(match[2] or "").lower()]
    if size > MAX_SIZE_BYTES:
        raise UsageError(f"{where}`{shown}` is larger than 1 TiB, more than any rank has")
    if size != int(size) or size < 1:
        raise UsageError(f"{where}`{shown}` is not a whole number of bytes, at least 1", hint=hint)
    return int(size)


def format_seconds(seconds: float) -> str:
    """`seconds` in the unit a person would say: '35 ms', '1.5 s', '12 min', '3.2 h'."""
    if abs(seconds) < 1:
        return f"{seconds * 1e3:.0f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    if abs(seconds) < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def fold_ints(numbers: list[int] | tuple[int, ...]) -> str:
    """Integers as sorted ranges: `0-3,8,10-11`. Empty input gives an empty string."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    start = 0
    for index in range(1, len(ordered) + 1):
        if index < len(ordered) and ordered[index] == ordered[index - 1] + 1:
            continue
        first, last = ordered[start], ordered[index - 1]
        parts.append(f"{first}" if first == last else f"{first}-{last}")
        start = index
    return ",".join(parts)

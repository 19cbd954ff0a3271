"""Sizes as messages print them: `1.96 GiB`, `0 bytes`, `768.00 MB`, `1,96 GiB`."""

from __future__ import annotations

import re

# PyTorch divides by 1024 and wrote "GB" for it in older MPS messages; nobody prints powers of ten here.
_FACTORS = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}

NUMBER = r"(?<!\d)(?<!\d[.,'])(\d[\d.,']{0,31})"
"""One group: a number that some tool may have printed. Longer ones are none, and take no time."""

SIZE = NUMBER + r"\s{0,40}(bytes?\b|[KMGTPE]i?B\b|B\b)"
"""Two groups: number and unit."""


# No machine holds more in one address space today; 2^48 bytes is what x86-64 addresses with four levels of pages.
ABSURD_BYTES = 1 << 48

# Sizes are printed from 64-bit integers; what is larger was garbled on its way.
_MAX_BYTES = 1 << 64


def parse_size(number: str, unit: str) -> int | None:
    """Bytes of `number` `unit`; None when no 64-bit integer is that size. A comma before one or two last digits is a
    decimal one."""
    number = number.rstrip(".,'").replace("'", "")
    if re.fullmatch(r"\d+,\d{1,2}", number):
        number = number.replace(",", ".")
    try:
        value = float(number.replace(",", ""))
    except ValueError:
        return None
    factor: int = 1024 ** _FACTORS[unit[0].lower()]
    num_bytes = value * factor
    return round(num_bytes) if num_bytes <= _MAX_BYTES else None


def whole_bytes(digits: str) -> int | None:
    """Bytes of a plain number; None when no 64-bit integer is that large."""
    return int(digits) if len(digits) <= 20 and int(digits) <= _MAX_BYTES else None


def size_in(pattern: re.Pattern[str], text: str) -> int | None:
    """Bytes of the first match of a pattern that ends in, or holds, the two groups of `SIZE`."""
    match = pattern.search(text)
    if match is None:
        return None
    groups: list[str] = [each for each in match.groups() if each is not None]
    return parse_size(groups[0], groups[1])

"""Numbers as a table prints them: a value and how far rounding may have moved it."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Beyond this no time in microseconds and no bandwidth in GB/s is meant; what is printed so is damage. Our own choice.
MAX_VALUE = 1e15

# An integer of more digits is no size and no count: 2^63 has 19.
MAX_DIGITS = 19

_NUMBER = re.compile(
    r"(?P<mantissa>[+-]?\d{1,30}(?:\.(?P<decimals>\d{0,30}))?)(?:[eE](?P<exponent>[+-]?\d{1,4}))?"
)
_NOT_A_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed number; the true one lies within `half` of `value`."""

    value: float
    half: float

    @property
    def is_coarse(self) -> bool:
        """Rounding alone may be more than half a percent of it."""
        return self.half > 0.005 * abs(self.value)


def is_number(word: str) -> bool:
    """True for whatever printf prints for a double: `12`, `1.2e+06`, `nan`, `-inf`."""
    return bool(_NUMBER.fullmatch(word) or _NOT_A_NUMBER.fullmatch(word))


def parse_number(word: str) -> Printed | None:
    """The number in `word`; None when it is none, not finite, negative or beyond reason."""
    match = _NUMBER.fullmatch(word)
    if match is None:
        return None
    value = float(word)
    if not 0 <= value <= MAX_VALUE:
        return None
    exponent = int(match["exponent"] or 0)
    decimals = len(match["decimals"] or "")
    return Printed(value, 0.5 * 10.0 ** max(-300, min(300, exponent - decimals)))


def parse_count(word: str) -> int | None:
    """A whole number as `size`, `count` and `root` are printed; None when it is none."""
    digits = word[1:] if word[:1] == "-" else word
    if not digits.isascii() or not digits.isdigit() or len(digits) > MAX_DIGITS:
        return None
    return int(word)

"""Version texts as tuples that compare: "2.28.9+cuda13.0" → (2, 28, 9)."""

from __future__ import annotations

import re

Version = tuple[int, ...]

_NUMBERS = re.compile(r"\s*v?(\d+(?:\.\d+)*)")


def parse_version(text: str | None) -> Version | None:
    """The leading dotted numbers of `text`; None when it does not begin with one.

    What follows the numbers ("+cu128", "-1", "rc1", "a0+git…") is dropped: no rule here needs it.
    """
    match = _NUMBERS.match(text or "")
    if match is None:
        return None
    return tuple(int(part[:9]) for part in match[1].split(".")[:6])


def at_least(version: str | Version | None, bound: str) -> bool | None:
    """True when `version` is `bound` or newer, as far as `bound` spells it; None when unknown.

    "2.9" as a bound admits 2.9.0 and 2.10.
    """
    have = parse_version(version) if isinstance(version, str) or version is None else version
    want = parse_version(bound)
    if have is None or want is None:
        return None
    return (
        have[: len(want)] >= want if len(have) >= len(want) else have + (0,) * (len(want) - len(have)) >= want
    )


def below(version: str | Version | None, bound: str) -> bool | None:
    """True when `version` is older than `bound`; None when unknown."""
    reached = at_least(version, bound)
    return None if reached is None else not reached

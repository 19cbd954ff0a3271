"""Times of day as tables write them: seconds since 1970 in some unit, or ISO 8601 with or without a zone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import numpy as np
from numpy.typing import NDArray

# From 2001 to 2100: an epoch in seconds, milliseconds, micro- or nanoseconds can be told by its size alone, since
# these ranges do not touch, and no duration is that long.
EPOCH_FROM_S = 978_307_200.0
EPOCH_TO_S = 4_102_444_800.0

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}

_ISO = re.compile(
    r"^\s*(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?\s*"
    r"(Z|UTC|GMT|[+-]\d\d:?\d\d|[+-]\d\d)?\s*$",
    re.IGNORECASE,
)


def epoch_unit(values: NDArray[np.float64], unit: str | None) -> str | None:
    """The unit in which most of the values are times of day between 2001 and 2100; None: they are none."""
    known = values[np.isfinite(values) & (values != 0)]
    if not len(known):
        return None
    middle = float(np.median(known))
    for candidate in (unit,) if unit else _SECONDS:
        if EPOCH_FROM_S <= middle * _SECONDS[candidate] < EPOCH_TO_S:
            return candidate
    return None


def utc_seconds(values: NDArray[np.float64], unit: str) -> NDArray[np.float64]:
    """Seconds since 1970; NaN for what is no time between 2001 and 2100."""
    seconds = values * _SECONDS[unit]
    with np.errstate(invalid="ignore"):
        return np.where((seconds >= EPOCH_FROM_S) & (seconds < EPOCH_TO_S), seconds, np.nan)


def parse_iso(text: str) -> tuple[float, bool] | None:
    """(seconds since 1970 UTC, whether the text has a zone); without a zone the time is taken as UTC."""
    match = _ISO.match(text[:64])
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=timezone.utc
        )
    except ValueError:
        return None
    seconds = moment.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        if int(digits[:2]) > 23 or int(digits[2:]) > 59:
            return None
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:])).total_seconds()
        seconds -= offset if zone[0] == "+" else -offset
    return seconds, bool(zone)


def utc_seconds_of_texts(texts: Sequence[str]) -> tuple[NDArray[np.float64], bool]:
    """As `parse_iso` for each text (NaN where it is none), and whether all that were read have a zone."""
    seconds = np.full(len(texts), np.nan)
    has_zone = True
    for index, text in enumerate(texts):
        parsed = parse_iso(text) if text else None
        if parsed is not None:
            seconds[index] = parsed[0]
            has_zone = has_zone and parsed[1]
    return seconds, has_zone

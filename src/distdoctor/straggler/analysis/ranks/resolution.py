"""How finely are times told? Milliseconds without a fraction, or seconds with one digit, hide what lies below."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.steps import Times

# Two ranks that take the same may be told one unit apart, on either side of where numbers are rounded. So a difference
# must be more than one unit of each part that was added up. Our own choice.
UNITS_APART = 1.5

# Of sums of float32 values, closer ones are the same value.
_SAME = 1e-5

# From so many different values on their least distance is the unit. Our own choice.
_MANY_VALUES = 5

# Ranks and steps that are looked at.
_MAX_ROWS = 64
_MAX_COLUMNS = 1024


def least_difference(times: Times, *, num_parts: int, scale_ms: float | None) -> float:
    """The least difference between ranks that rounding cannot make, relative to `scale_ms`, else to the usual time.

    `times`: (ranks, steps), ms, sums of `num_parts` parts each rounded by itself.
    """
    rows, columns = (
        max(1, size // most) for size, most in zip(times.shape, (_MAX_ROWS, _MAX_COLUMNS), strict=True)
    )
    sample = times[::rows, ::columns].astype(np.float64)
    known = sample[np.isfinite(sample) & (sample > 0)]
    if not len(known):
        return 0.0
    scale = scale_ms or float(np.median(known))
    return UNITS_APART * math.sqrt(max(num_parts, 1)) * unit_of(known) / scale


def unit_of(known: NDArray[np.float64]) -> float:
    """The least distance of two different values, all positive: the unit of rounded ones.

    Few different values may be far apart by what they are. Then trailing zeros tell too: 300 may have been rounded to
    hundreds, 300 and 450 to tens.
    """
    values = np.unique(known)
    gaps = np.diff(values)
    apart = gaps > _SAME * float(np.median(values))
    gap = float(np.min(gaps[apart])) if apart.any() else math.inf
    if int(apart.sum()) + 1 >= _MANY_VALUES:
        return gap
    return min(gap, _power_of_ten_in(values))


def _power_of_ten_in(values: NDArray[np.float64]) -> float:
    """The largest power of ten of which all are multiples, down to microseconds; 0 when there is none."""
    for power in range(6, -7, -1):
        times = values / 10.0**power
        if np.all((times > 1 - _SAME) & (np.abs(times - np.round(times)) < _SAME * times)):
            return float(10.0**power)
    return 0.0

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

    Where all are the same number only its trailing zeros tell: 300 may have been rounded to hundreds.
    """
    values = np.unique(known)
    typical = float(np.median(values))
    gaps = np.diff(values)
    gaps = gaps[gaps > _SAME * typical]
    return float(np.min(gaps)) if len(gaps) else _power_of_ten_in(typical)


def _power_of_ten_in(value: float) -> float:
    """The largest power of ten of which `value` is a multiple, down to microseconds; 0 when there is none."""
    for power in range(6, -7, -1):
        unit = 10.0**power
        times = value / unit
        if times >= 1 and abs(times - round(times)) < _SAME * times:
            return unit
    return 0.0

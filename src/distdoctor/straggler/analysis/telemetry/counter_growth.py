"""By how much did a counter grow that may be reset, or misread now and then?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A counter that falls and is back at its level within so many samples was misread; a reset stays low. Our own.
MISREAD_SAMPLES = 3


def growth(times_s: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, float]:
    """By how much a counter grew, and over how many seconds. What follows a reset counts from there."""
    if len(values) < 2:
        return 0.0, 0.0
    steps = np.diff(values[~misread(values)])
    return float(np.sum(steps[steps > 0])), float(times_s[-1] - times_s[0])


def misread(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Samples of a counter, shape (samples,), that fall below the one before and are soon back at it, or the reverse."""
    wrong = np.zeros(len(values), dtype=bool)
    for fall in np.flatnonzero(np.diff(values) < 0) + 1:
        level = values[fall - 1]
        soon = values[fall : fall + MISREAD_SAMPLES + 1]
        back = np.flatnonzero(soon >= level)
        if len(back):
            wrong[fall : fall + back[0]] = True
        elif fall > 1 and 0 < values[fall - 2] <= values[fall]:
            # It rose for one sample and is where it was before.
            wrong[fall - 1] = True
    return wrong

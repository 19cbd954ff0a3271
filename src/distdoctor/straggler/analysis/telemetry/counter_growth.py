"""By how much did a counter grow that may be reset, or misread now and then?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def growth(times_s: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, float]:
    """By how much a counter grew, and over how many seconds. What follows a reset counts from there."""
    if len(values) < 2:
        return 0.0, 0.0
    steps = np.diff(values)
    return float(np.sum(steps[steps > 0])), float(times_s[-1] - times_s[0])

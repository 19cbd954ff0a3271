"""What is usual around each value of a series, and how much values scatter? Robust, in one pass of windows.

All on logarithms of times: 0.05 is five per cent, and a step of twice the time is as far from usual at 60 ms as it
is at 7 s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

# Values in a window: wide enough for a median that a run of ten stalls does not move, narrow enough to follow a
# schedule. Our own choice.
WINDOW = 31

# In a short series a window holds this share of it, so that its last values are not compared with all before.
SHARE_OF_SHORT = 3
MIN_WINDOW = 5
WIDE_WINDOW = 15

# Where the upper level is read: above it lie at most six of 31 values, so that the slower of two kinds of steps counts
# as usual, and every sixth step being slow does not. Our own choice.
UPPER = 24

# MAD x 1.4826 is the standard deviation of a normal distribution.
MAD_TO_SIGMA = 1.4826

# Steps of one pattern repeat after at most so many; the scatter is that between steps of equal phase.
MAX_LAG = 12

# A value rounded to q is off by q / sqrt(12) on average (standard deviation of a uniform distribution).
ROUNDING = 12**-0.5

# No clock and no machine is steadier than this; keeps a constant series from making every digit significant. Our own
# floor.
LEAST_SIGMA = 5e-4

# Values further from their surroundings than so many sigma are drawn in before levels are compared. Our own choice:
# it leaves 99.7 % of a normal distribution alone.
DRAWN_IN_AT = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Of each value, shape (values,), in logarithms of time."""

    middle: Values
    """Median of the window."""
    upper: Values
    """The level that about a fifth of the window exceeds."""
    sigma: float
    """Scatter of single values about what their phase usually takes: one number for the whole series."""
    drawn_in: Values
    """The series with what lies far off drawn to the edge of its surroundings."""


def surroundings_of(logs: Values, *, rounding: float = 0.0) -> Surroundings:
    """Surroundings of at least one value.

    logs: logarithms of times, shape (values,), finite. rounding: the step of rounding relative to the typical value.
    """
    size = min(WINDOW, max(MIN_WINDOW, len(logs) // SHARE_OF_SHORT))
    middle, upper = _windows(logs, size)
    sigma = scatter(logs, rounding=rounding)
    # In a series of two kinds of steps both are usual, so the reach is that of the values, not only of one phase.
    reach = DRAWN_IN_AT * max(sigma, MAD_TO_SIGMA * float(np.median(np.abs(logs - middle))))
    # What a fifth of a wide window does is no outlier: slow steps that come more often are a change of level.
    usual = upper if size >= WIDE_WINDOW else middle
    drawn_in: Values = np.clip(logs, middle - reach, usual + reach)
    return Surroundings(middle=middle, upper=upper, sigma=sigma, drawn_in=drawn_in)


def scatter(logs: Values, *, rounding: float = 0.0) -> float:
    """Robust standard deviation of single values, blind to changes of level, to drift and to repeating patterns."""
    floor = max(LEAST_SIGMA, ROUNDING * rounding)
    lags = range(1, min(MAX_LAG, len(logs) // 3) + 1)
    spreads = [float(np.median(np.abs(logs[lag:] - logs[:-lag]))) for lag in lags]
    return max(floor, min(spreads, default=0.0) * MAD_TO_SIGMA / 2**0.5)


def running_median(values: Values) -> Values:
    """Median of the 31 values around each, shape (values,), at least one."""
    return _windows(values, WINDOW)[0]


def _windows(logs: Values, size: int) -> tuple[Values, Values]:
    """Median and upper level of the window around each value; at the ends it holds the values that there are."""
    total = len(logs)
    half = min(size // 2, (total - 1) // 2)
    middle, upper = np.empty_like(logs), np.empty_like(logs)
    inner = slice(half, total - half)
    middle[inner], upper[inner] = _levels(np.lib.stride_tricks.sliding_window_view(logs, 2 * half + 1))
    for at in [*range(half), *range(total - half, total)]:
        window = logs[max(0, at - half) : at + half + 1]
        middle[at : at + 1], upper[at : at + 1] = _levels(window[None, :])
    return middle, upper


def _levels(windows: NDArray[np.float64]) -> tuple[Values, Values]:
    size = windows.shape[1]
    low, high, above = (size - 1) // 2, size // 2, (size - 1) * (UPPER - 1) // (WINDOW - 1)
    ordered = np.partition(windows, sorted({low, high, above}), axis=1)
    return (ordered[:, low] + ordered[:, high]) / 2, ordered[:, above].copy()

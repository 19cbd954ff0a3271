"""How much longer than its peers each rank works, how noisy that is, and how far both can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import row_medians
from distdoctor.straggler.facts.steps import Times

# MAD of a normal distribution times this is its standard deviation.
MAD_TO_SD = 1.4826

# Standard error of a median of n independent normal values: 1.2533 sd / sqrt(n).
MEDIAN_SE = 1.2533

# Autocorrelation is taken of values within so many standard deviations: a single stall would hide it.
_CLIP_SDS = 3.0

# A run is looked at in so many stretches of equal length, so that a rank that became slow late is seen: at least
# MIN_WINDOW_STEPS each. Our own choice.
MAX_WINDOWS = 8
MIN_WINDOW_STEPS = 20

# The scatter of fewer stretches says nothing.
_MIN_WINDOWS_TO_WANDER = 4

# Rows at once: working copies stay below some 20 MB for 5,000 steps.
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """One value a rank, shape (ranks,); relative to the peers' time: 0.05 is 5 % longer."""

    effect: NDArray[np.float32]
    """Median over steps."""
    noise: NDArray[np.float32]
    """Standard deviation around the medians of stretches, robust: a change of level is no noise."""
    autocorrelation: NDArray[np.float32]
    """Of neighbouring steps."""
    num_steps: NDArray[np.int64]
    """Steps with a value."""
    standard_error: NDArray[np.float32]
    """Of `effect`, with autocorrelation; infinite below 2 steps."""
    halves: NDArray[np.float32]
    """Median of the first and of the second half, shape (ranks, 2)."""
    windows: NDArray[np.float32]
    """Median of each stretch, shape (ranks, windows)."""
    wander: float
    """How much more the medians of stretches differ than the noise from step to step explains, 1 where it explains all:
    times that go up and down slowly. In `standard_error` already."""
    window_edges: NDArray[np.intp]
    """Columns where stretches begin, and the end; shape (windows + 1,)."""


def effects_of(excess: Times) -> Effects:
    """`excess`: shape (ranks, steps), relative to peers, NaN where not measured."""
    num_ranks, num_steps = excess.shape
    num_windows = int(np.clip(num_steps // MIN_WINDOW_STEPS, 1, MAX_WINDOWS))
    edges = np.linspace(0, num_steps, num_windows + 1).astype(np.intp)
    effect, noise, rho = (np.full(num_ranks, np.nan, dtype=np.float32) for _ in range(3))
    halves = np.full((num_ranks, 2), np.nan, dtype=np.float32)
    windows = np.full((num_ranks, num_windows), np.nan, dtype=np.float32)
    count = np.zeros(num_ranks, dtype=np.int64)
    middle = num_steps // 2
    for start in range(0, num_ranks, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        block = excess[rows]
        effect[rows] = row_medians(block)
        for window in range(num_windows):
            columns = slice(edges[window], edges[window + 1])
            windows[rows, window] = row_medians(block[:, columns])
        around = block - np.repeat(windows[rows], np.diff(edges), axis=1)
        noise[rows] = row_medians(np.abs(around)) * MAD_TO_SD
        rho[rows] = _autocorrelation(around, noise[rows])
        count[rows] = np.sum(~np.isnan(block), axis=1)
        halves[rows, 0] = row_medians(block[:, :middle])
        halves[rows, 1] = row_medians(block[:, middle:])
    error = standard_error(noise, rho, count)
    wander = _wander(windows, error)
    return Effects(
        effect=effect,
        noise=noise,
        autocorrelation=rho,
        num_steps=count,
        standard_error=error * np.float32(wander),
        wander=wander,
        halves=halves,
        windows=windows,
        window_edges=edges,
    )


def _wander(windows: NDArray[np.float32], error: NDArray[np.float32]) -> float:
    """Of the median rank, so that a rank that really changed does not count: standard error by the scatter of stretches
    over the one by noise and autocorrelation. Within stretches a slow wander does not show.
    """
    num_windows = windows.shape[1]
    if num_windows < _MIN_WINDOWS_TO_WANDER:
        return 1.0
    known = np.isfinite(windows).all(axis=1) & np.isfinite(error) & (error > 0)
    if not known.any():
        return 1.0
    by_windows = windows[known].std(axis=1, ddof=1) / np.sqrt(num_windows)
    return max(1.0, float(np.median(by_windows / error[known])))


def standard_error(
    noise: NDArray[np.float32], autocorrelation: NDArray[np.float32], count: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Of a median of `count` steps: neighbours that resemble one another count as fewer, n (1 − r) / (1 + r)."""
    r = np.clip(autocorrelation, 0.0, 0.95)
    effective = np.maximum(count * (1 - r) / (1 + r), 1.0)
    return np.asarray(np.where(count < 2, np.inf, MEDIAN_SE * noise / np.sqrt(effective)), dtype=np.float32)


def _autocorrelation(around: Times, noise: NDArray[np.float32]) -> NDArray[np.float32]:
    bound = _CLIP_SDS * noise[:, None]
    clipped = np.clip(np.nan_to_num(around), -bound, bound)
    power = np.einsum("ij,ij->i", clipped, clipped)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.einsum("ij,ij->i", clipped[:, 1:], clipped[:, :-1]) / power
    return np.asarray(np.nan_to_num(rho), dtype=np.float32)

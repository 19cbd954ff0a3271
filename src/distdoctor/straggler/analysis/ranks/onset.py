"""Since which step is a rank slow? One change in the level of a noisy series, found by its cumulated sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.ranks.effects import MEDIAN_SE
from distdoctor.straggler.facts.steps import Times

# A stretch shorter than this is no regime: a burst is told by `bursts`. Our own choice.
MIN_STRETCH = 8

# Values are cut at so many standard deviations around the median: one stall of a minute must not pass for a change.
_CLIP_SDS = 3.0

# Values so far above the median of a rank are no noise. Our own threshold.
_LARGE_SDS = 6.0

# The law of the largest cumulated sum holds for long series of independent normal values; short ones with heavy tails
# and neighbours that resemble one another exceed it. Factor found on development seeds.
_SAFETY = 1.15

_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Columns [start, end) in which a rank differs."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """Steps."""
        return self.end - self.start


def changed_rows(
    excess: Times,
    centre: NDArray[np.float32],
    noise: NDArray[np.float32],
    autocorrelation: NDArray[np.float32],
    *,
    row_error: float,
    wander: float = 1.0,
) -> NDArray[np.bool_]:
    """Which rows have a change of level, each with error probability `row_error`; shape (ranks,).

    The largest cumulated deviation over sqrt(n) follows Kolmogorov's law, P(> x) = 2 exp(−2 x²), with the long-run
    standard deviation, sd sqrt((1 + r) / (1 − r)), times `wander` (`Effects.wander`).
    """
    bound = _SAFETY * math.sqrt(math.log(2 / max(row_error, 1e-300)) / 2)
    num_steps = excess.shape[1]
    changed = np.zeros(len(excess), dtype=bool)
    if num_steps < 2 * MIN_STRETCH:
        return changed
    r = np.clip(autocorrelation, 0, 0.9)
    long_run = np.maximum(noise, 1e-6) * np.sqrt((1 + r) / (1 - r)) * wander
    for start in range(0, len(excess), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        sums = _bridge(_clipped(excess[rows], centre[rows, None], noise[rows, None]))
        changed[rows] = np.abs(sums).max(axis=1) > bound * long_run[rows] * math.sqrt(num_steps)
    for row in _with_large_values(excess, centre, noise):
        if not changed[row]:
            around = _clipped_around_change(excess[row], float(centre[row]), float(noise[row]))
            sums = _bridge(around[None, :])
            changed[row] = np.abs(sums).max() > bound * long_run[row] * math.sqrt(num_steps)
    return changed


def _with_large_values(
    excess: Times, centre: NDArray[np.float32], noise: NDArray[np.float32]
) -> NDArray[np.intp]:
    """Rows that a short stretch of far longer steps may have changed, which counts for little where values are cut."""
    far = np.zeros(len(excess), dtype=np.int64)
    for start in range(0, len(excess), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        limit = (centre[rows] + _LARGE_SDS * np.maximum(noise[rows], 1e-6))[:, None]
        with np.errstate(invalid="ignore"):
            far[rows] = np.sum(excess[rows] > limit, axis=1)
    return np.flatnonzero(far >= MIN_STRETCH)


def stretches_of(values: Times, noise: float) -> list[Stretch]:
    """The stretches of equal level in one row, at most three: before, during and after. Shape of values: (steps,)."""
    first = change_point(values, noise)
    if first is None:
        inside = _stretch_inside(values, noise)
        if inside is None:
            return [Stretch(start=0, end=len(values))]
        edges = [0, inside.start, inside.end, len(values)]
        return [Stretch(start=a, end=b) for a, b in pairwise(edges)]
    cuts = {0, first, len(values)}
    for part in (Stretch(start=0, end=first), Stretch(start=first, end=len(values))):
        inner = change_point(values[part.start : part.end], noise)
        if inner is not None:
            cuts.add(part.start + inner)
    edges = sorted(cuts)
    return [Stretch(start=a, end=b) for a, b in pairwise(edges)]


def change_point(values: Times, noise: float) -> int | None:
    """The step (index) at which the level changes most, or None when there is no change worth the name.

    The change must be larger than the noise of both sides' medians by far; `changed_rows` holds the error rate.
    """
    n = len(values)
    if n < 2 * MIN_STRETCH:
        return None
    centre = float(np.nanmedian(values)) if not np.all(np.isnan(values)) else 0.0
    clipped = _clipped_around_change(values, centre, noise)
    sums = np.cumsum(clipped - clipped.mean())[:-1]
    k = np.arange(1, n)
    weight = np.sqrt(k * (n - k) / n)
    inside = slice(MIN_STRETCH - 1, n - MIN_STRETCH)
    at = int(np.argmax(np.abs(sums[inside]) / weight[inside])) + MIN_STRETCH
    return at if _differ(values[:at], values[at:], noise) else None


def _stretch_inside(values: Times, noise: float) -> Stretch | None:
    """The stretch in the middle whose level differs most from the rest; None when it does not by far.

    One change alone does not show it: where it is shorter than what follows, the medians of both sides are equal. Its
    ends are where the cumulated sums are least and largest.
    """
    n = len(values)
    if n < 3 * MIN_STRETCH or np.all(np.isnan(values)):
        return None
    clipped = _clipped_around_change(values, float(np.nanmedian(values)), noise)
    sums = np.concatenate([[0.0], np.cumsum(clipped - clipped.mean())])
    start, end = sorted((int(np.argmin(sums)), int(np.argmax(sums))))
    if start < MIN_STRETCH or n - end < MIN_STRETCH or end - start < MIN_STRETCH:
        return None
    outside = np.concatenate([values[:start], values[end:]])
    return Stretch(start=start, end=end) if _differ(values[start:end], outside, noise) else None


def _differ(one: Times, other: Times, noise: float) -> bool:
    """The medians are apart by more than their noise by far."""
    if np.all(np.isnan(one)) or np.all(np.isnan(other)):
        return False
    jump = abs(float(np.nanmedian(one)) - float(np.nanmedian(other)))
    sides = noise * math.sqrt(1 / len(one) + 1 / len(other))
    return jump > max(4 * MEDIAN_SE * sides, 0.01)


def _clipped(block: Times, centre: NDArray[np.float32], noise: NDArray[np.float32]) -> NDArray[np.float64]:
    bound = _CLIP_SDS * noise
    return np.asarray(np.clip(np.nan_to_num(block - centre), -bound, bound), dtype=np.float64)


def _clipped_around_change(values: Times, centre: float, noise: float) -> NDArray[np.float64]:
    """Cut only what lies outside the range of a moving median: a large jump is kept, a single stall is not."""
    filled = np.where(np.isnan(values), np.float32(centre), values).astype(np.float64)
    width = 2 * (MIN_STRETCH // 2) + 1
    padded = np.pad(filled, width // 2, mode="edge")
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
    bound = _CLIP_SDS * max(noise, 1e-6)
    return np.asarray(np.clip(filled, smooth - bound, smooth + bound))


def _bridge(deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.cumsum(deviations - deviations.mean(axis=1, keepdims=True), axis=1))

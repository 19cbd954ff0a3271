"""Which ranks are slow now and then: more often than their peers, and in what rhythm?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.steps import Times

# A step counts when a rank is so much slower than its peers in it, and by so many standard deviations of the usual
# noise. Our own thresholds: below 10 % a single step does not matter.
MIN_BURST = 0.10
BURST_SDS = 5.0

# Three bursts may be chance.
MIN_ONSETS = 4

# Bursts come in clusters where neighbouring steps resemble one another, so counts scatter more than Poisson's law says.
# Found on development seeds.
MIN_DISPERSION = 1.5

# Share of the gaps between bursts that must agree with a period before it is called one.
PERIOD_SHARE = 0.8
_MAX_PERIOD_SHARE_OF_RUN = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Counts a rank, shape (ranks,)."""

    limit: float
    """From which excess on a step counts."""
    onsets: NDArray[np.int64]
    """Bursts; neighbouring steps are one."""
    steps: NDArray[np.int64]
    """Steps in bursts."""
    usual_rate: float
    """Onsets a rank and step, over all ranks."""


def count_bursts(excess: Times, noise: float) -> Bursts:
    """`excess`: shape (ranks, steps), relative to peers. `noise`: the usual one from step to step."""
    limit = max(MIN_BURST, BURST_SDS * noise)
    onsets = np.zeros(len(excess), dtype=np.int64)
    steps = np.zeros(len(excess), dtype=np.int64)
    for start in range(0, len(excess), 256):
        rows = slice(start, start + 256)
        with np.errstate(invalid="ignore"):
            above = excess[rows] > limit
        steps[rows] = above.sum(axis=1)
        onsets[rows] = above[:, 0] + np.sum(above[:, 1:] & ~above[:, :-1], axis=1)
    # The tenth that stands out (one rank at least) does not make its own base rate; half a burst is added, since no
    # burst among few ranks does not mean that there never is one.
    kept = np.sort(onsets)[: max(1, len(onsets) - max(1, len(onsets) // 10))]
    rate = (float(kept.sum()) + 0.5) / len(kept) / max(excess.shape[1], 1)
    return Bursts(limit=limit, onsets=onsets, steps=steps, usual_rate=rate)


def bursting_rows(bursts: Bursts, num_steps: int, *, rank_error: float) -> NDArray[np.intp]:
    """Rows with more bursts than chance gives any of the ranks, by Poisson's law with the ranks' own scatter.

    The scatter (variance over mean) covers ranks that differ a little for good reasons.
    """
    mean = bursts.usual_rate * num_steps
    usual = bursts.onsets[bursts.onsets <= np.quantile(bursts.onsets, 0.9)]
    scatter = float(usual.var()) / max(float(usual.mean()), 1e-3) if len(usual) > 1 else 0.0
    dispersion = max(MIN_DISPERSION, scatter)
    limit = _poisson_limit(mean / dispersion, rank_error) * dispersion
    return np.flatnonzero((bursts.onsets >= MIN_ONSETS) & (bursts.onsets > limit))


def _poisson_limit(mean: float, error: float) -> int:
    """The smallest k with P(X > k) < error."""
    term = math.exp(-mean)
    below, k = term, 0
    while 1 - below >= error and k < 10_000:
        k += 1
        term *= mean / k
        below += term
        if term < error * 1e-3 and k > mean:
            break
    return k


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Bursts that come every `period` steps."""

    period: int
    share: float
    """Of the gaps that agree."""


def rhythm_of(columns: NDArray[np.intp], num_steps: int) -> Rhythm | None:
    """The period of events at `columns`; None when there are fewer than 4 or the gaps do not agree."""
    starts = columns[np.concatenate([[True], np.diff(columns) > 1])] if len(columns) else columns
    if len(starts) < 4:
        return None
    gaps = np.diff(starts)
    values, counts = np.unique(gaps, return_counts=True)
    period = int(values[np.argmax(counts)])
    if period < 2 or period > num_steps * _MAX_PERIOD_SHARE_OF_RUN:
        return None
    # A burst may be missed or be a step early or late, so a gap near a multiple agrees too.
    off = np.abs(gaps - period * np.maximum(np.round(gaps / period), 1))
    share = float(np.mean(off <= max(0.0, 0.05 * period)))
    return Rhythm(period=period, share=share) if share >= PERIOD_SHARE else None

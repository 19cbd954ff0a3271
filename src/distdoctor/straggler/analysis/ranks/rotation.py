"""Somebody is slow in every step, but each time somebody else: the work differs, not the machines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.steps import Times

# The slowest rank of a step must be so much slower than its peers, in the median step. Jitter of 5 % among 8 ranks
# gives less. Our own threshold.
MIN_EXCESS = 0.15

# Forward and backward that are long in the same steps of the same rank point to longer input, from this correlation
# on; the ByteDance study used 0.9 for sequence lengths alone. Ours is lower: their times have noise of their own.
MIN_CORRELATION = 0.7

# Working copies of 16,384 ranks stay below 20 MB.
_STEPS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How the slowest rank changes."""

    excess: float
    """Of the slowest rank of a step over its peers and over what it takes longer all the time, median over steps."""
    num_different: int
    """How many ranks were the slowest one at least once."""
    most_often: float
    """Share of steps in which the most frequent one was the slowest."""
    correlation: float | None
    """Of forward and backward excess within ranks; None: not told apart."""


def rotation_of(
    excess: Times,
    forward: Times | None = None,
    backward: Times | None = None,
    *,
    levels: NDArray[np.float32] | None = None,
) -> Rotation | None:
    """`excess`: (ranks, steps) relative to peers. `forward`, `backward`: their own excess, on some of the rows.

    `levels`: (ranks,), what each rank has of the excess all the time, which does not rotate and is taken out.
    """
    num_steps = excess.shape[1]
    slowest, largest = np.zeros(num_steps, dtype=np.intp), np.full(num_steps, -np.inf)
    level = np.float32(0) if levels is None else np.nan_to_num(levels)[:, None]
    for start in range(0, num_steps, _STEPS_AT_ONCE):
        columns = slice(start, start + _STEPS_AT_ONCE)
        block = excess[:, columns] - level
        block[np.isnan(block)] = -np.inf
        slowest[columns] = np.argmax(block, axis=0)
        largest[columns] = block.max(axis=0)
    known = np.isfinite(largest)
    if not known.any():
        return None
    slowest, largest = slowest[known], largest[known]
    counts = np.bincount(slowest, minlength=len(excess))
    return Rotation(
        excess=float(np.median(largest)),
        num_different=int(np.count_nonzero(counts)),
        most_often=float(counts.max() / counts.sum()),
        correlation=None if forward is None or backward is None else _correlation(forward, backward),
    )


def _correlation(first: Times, second: Times) -> float | None:
    rows = np.isfinite(first).any(axis=1) & np.isfinite(second).any(axis=1)
    first, second = first[rows], second[rows]
    a = (first - np.nanmean(first, axis=1, keepdims=True)).ravel()
    b = (second - np.nanmean(second, axis=1, keepdims=True)).ravel()
    known = np.isfinite(a) & np.isfinite(b)
    if known.sum() < 20:
        return None
    x, y = a[known].astype(np.float64), b[known].astype(np.float64)
    # Ranks are compared by their ranks in order, so that one stall does not make the correlation.
    x, y = _ordered(x), _ordered(y)
    spread = x.std() * y.std()
    return float(np.mean((x - x.mean()) * (y - y.mean())) / spread) if spread > 0 else None


def _ordered(values: NDArray[np.float64]) -> NDArray[np.float64]:
    order = np.empty(len(values))
    order[np.argsort(values)] = np.arange(len(values))
    return order

"""At which values does the level of a series change? Binary segmentation over seeded intervals.

Each interval of a fixed, nested family is searched for the split whose two means differ most against the noise of
means (D. Kovacs, P. Bühlmann, H. Li, A. Munk, "Seeded binary segmentation", Biometrika 2023): O(n log n), and a short
stretch in the middle is found as well as a change for good. The noise is that of means of neighbouring stretches,
measured at several lengths, so neighbours that resemble one another (autocorrelation) do not pass for a change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.series.running import MAD_TO_SIGMA, Values

# Longer series are cut into so many blocks, and the onset is then sought among single values.
MAX_BLOCKS = 1000

# Fewer values than this are a stall, not a level. Our own choice.
MIN_LENGTH = 4

# ... and what is shorter than this in the middle of a series is one too.
MIN_INNER = 8

# Fewer values than this are too few to find a change in.
MIN_VALUES = 8

# How far two means must be apart, in standard errors: `THRESHOLD` for long series, more for short ones, where the
# noise itself is known badly. Chosen on simulated flat series (Student's t with 3 degrees of freedom, AR 0.5) so that
# fewer than one in 200 shows a change; benchmarks/straggler_regimes.py counts them.
THRESHOLD = 5.0
THRESHOLD_SHORT = 170.0
MAX_THRESHOLD = 12.0

# Stretches whose means are compared to learn the noise: so many at least, in each of several lengths.
MIN_STRETCHES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A change of level at one value."""

    index: int
    """The first value of the new level."""
    score: float
    """Difference of the levels in standard errors."""


def threshold_for(num_blocks: int) -> float:
    """Standard errors that two levels must be apart in a series of so many values (or blocks)."""
    return min(MAX_THRESHOLD, THRESHOLD + THRESHOLD_SHORT / num_blocks)


def noise_of_means(values: Values, *, floor: float) -> float:
    """Standard deviation of one value as means see it: larger than the scatter where neighbours resemble each other.

    Robust: a few changes of level do not count.
    """
    return _noise(
        values, floor, lambda steps: MAD_TO_SIGMA * float(np.median(np.abs(steps - np.median(steps))))
    )


def _noise(values: Values, floor: float, spread_of: Callable[[Values], float]) -> float:
    """The largest of the noises that means of stretches of several lengths show."""
    found = [floor]
    length = 2 if len(values) >= 2 * MIN_STRETCHES else 1
    while len(values) // length >= MIN_STRETCHES or not found[1:]:
        # About their middle: steady growth from stretch to stretch is drift, not noise.
        found.append(spread_of(np.diff(_means_of_blocks(values, length))) * (length / 2) ** 0.5)
        length *= 2
    return max(found)


def splits_of(values: Values, *, sigma: float, least: float = 0.0) -> tuple[Split, ...]:
    """Where the level changes, in order.

    values: shape (values,), drawn in (no far outliers). sigma: scatter of single values, a floor of the noise of means.
    least: smaller differences are not told apart.
    """
    if len(values) < MIN_VALUES:
        return ()
    size = -(-len(values) // MAX_BLOCKS)
    size += size % 2 if size > 1 else 0
    blocks = _means_of_blocks(values, size)
    noise = noise_of_means(blocks, floor=sigma / size**0.5)
    limit = threshold_for(len(blocks))
    found = _kept(
        blocks,
        _search(blocks, noise, limit),
        noise=noise,
        limit=limit,
        least=least,
        shortest=-(-MIN_INNER // size),
    )
    edges = [0, *(index * size for index, _ in found), len(values)]
    return tuple(
        Split(index=_onset(values, edges[at], edges[at + 1], edges[at + 2], reach=2 * size + 3), score=score)
        for at, (_, score) in enumerate(found)
    )


def _means_of_blocks(values: Values, size: int) -> Values:
    count = len(values) // size
    means: Values = values[: count * size].reshape(count, size).mean(axis=1)
    return means


def _search(blocks: Values, noise: float, limit: float) -> list[int]:
    """Splits over the limit, the clearest first; each rules out the intervals that it lies in."""
    starts, ends, at, scores = _candidates(blocks, noise)
    found: list[int] = []
    open_ = scores >= limit
    while open_.any():
        best = int(np.argmax(np.where(open_, scores, 0.0)))
        split = int(at[best])
        found.append(split)
        open_ &= (ends <= split) | (starts >= split)
    return sorted(found)


def _candidates(
    blocks: Values, noise: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Values]:
    """Of each interval: its start and end, its best split and that split's score."""
    sums = np.concatenate([[0.0], np.cumsum(blocks - blocks.mean())])
    total = len(blocks)
    shortest = min(MIN_LENGTH, total // 2)
    columns: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Values]] = []
    length = float(total)
    while length >= 2 * shortest:
        size = int(length)
        count = max(1, -(-2 * (total - size) // size) + 1)
        starts = np.unique(np.linspace(0, total - size, count).astype(np.int64))
        inside = np.arange(shortest, size - shortest + 1)
        before = sums[starts[:, None] + inside] - sums[starts][:, None]
        whole = (sums[starts + size] - sums[starts])[:, None]
        gaps = before / inside - (whole - before) / (size - inside)
        scores = np.abs(gaps) / (noise * np.sqrt(1 / inside + 1 / (size - inside)))
        best = scores.argmax(axis=1)
        columns.append((starts, starts + size, starts + inside[best], scores[np.arange(len(starts)), best]))
        length /= 2**0.5
    return tuple(np.concatenate(column) for column in zip(*columns, strict=True))  # type: ignore[return-value]


def _kept(
    blocks: Values, found: list[int], *, noise: float, limit: float, least: float, shortest: int
) -> list[tuple[int, float]]:
    """Splits that still stand out between levels of some length; the weakest goes first."""
    sums = np.concatenate([[0.0], np.cumsum(blocks - blocks.mean())])
    found = list(found)
    while found:
        edges = np.array([0, *found, len(blocks)])
        sizes = np.diff(edges)
        gaps = np.abs(np.diff(np.diff(sums[edges]) / sizes))
        errors = _noise_by_level(blocks, edges, noise) / np.sqrt(sizes)
        scores = gaps / np.hypot(errors[1:], errors[:-1])
        strength = np.minimum(scores / limit, gaps / max(least, 1e-9))
        if strength.min() < 1:
            del found[int(strength.argmin())]
        elif (sizes[1:-1] < shortest).any():
            short = int(np.argmax(sizes[1:-1] < shortest))
            del found[short + int(gaps[short + 1] < gaps[short])]
        else:
            return [(split, float(score)) for split, score in zip(found, scores, strict=True)]
    return []


def _noise_by_level(blocks: Values, edges: NDArray[np.int64], noise: float) -> Values:
    """The noise within each level where it is more than that of the whole: a job may become unsteady.

    Not robust: within a level nothing changes, and slow steps that come now and then are noise.
    """
    own = np.array(
        [
            _noise(blocks[start:end], noise, lambda steps: float(steps.std()))
            if end - start >= MIN_STRETCHES
            else noise
            for start, end in pairwise(edges.tolist())
        ]
    )
    # A level too short to know its noise has that of its neighbours.
    around = np.maximum(np.concatenate([own[1:], own[-1:]]), np.concatenate([own[:1], own[:-1]]))
    return np.where(np.diff(edges) >= MIN_STRETCHES, own, np.maximum(own, around))


def _onset(values: Values, start: int, near: int, end: int, *, reach: int) -> int:
    """The value at which the new level begins, sought around `near` by least absolute deviations."""
    before, after = np.median(values[start:near]), np.median(values[near:end])
    low, high = max(start + MIN_LENGTH, near - reach), min(end - MIN_LENGTH, near + reach)
    if low >= high:
        return near
    window = values[low:high]
    # Each value belongs to the level that it is closer to; the sum over those moved is least at the onset.
    cost = np.abs(window - before) - np.abs(window - after)
    return low + int(np.argmin(np.concatenate([[0.0], np.cumsum(cost)])))

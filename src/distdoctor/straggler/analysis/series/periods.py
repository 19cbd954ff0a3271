"""Do slow steps come in a rhythm: every k-th step, by turns, or as two kinds of steps?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.series.running import (
    DRAWN_IN_AT,
    MAD_TO_SIGMA,
    WINDOW,
    Values,
    running_median,
    scatter,
)

# Patterns of so many steps at most are read from autocorrelation; rarer slow steps are counted one by one.
MAX_PATTERN = 12
MIN_AUTOCORRELATION = 0.5
MIN_ABOVE_SHORTER = 0.3
MIN_CYCLES = 5

# Patterns whose slowest step is less than this above the fastest are not told. Our own floor.
MIN_PATTERN = 0.02
MIN_PATTERN_SIGMAS = 3.0

# In a short series: values two apart differ by less than this share of what neighbours differ by. Our own threshold.
BY_TURNS = 0.35

# Rarer slow steps than this are told as a rhythm.
MIN_SLOW_SHARE = 1 / 6

# A window that holds whole cycles of 2, 3, 4, 6, 8 and 12 steps.
CYCLES = 24

# A rhythm needs so many slow steps, on this share of the places where the rhythm puts one. Our own thresholds: four at
# equal distances come about by chance once in a hundred logs with four. Three do when there are no others, and far apart.
MIN_BEATS = 4
MIN_BEATS_ALONE = 3
MIN_PERIOD_ALONE = 20
MIN_COVERAGE = 0.7
MAX_BY_CHANCE = 0.35
MIN_BEATS_LOOSE = 6
MAX_LOOSE = 0.25

# Gaps by the clock are this much steadier than gaps in steps: something outside the job keeps the time.
CLOCK_STEADIER = 0.3
MAX_CLOCK_VARIATION = 0.1

# Two kinds of steps: each has this share, they lie so many sigma apart, and next to nothing lies between.
MIN_KIND = 0.1
MIN_KINDS_APART = 0.05
KINDS_SIGMAS = 6.0
KINDS_ROUNDINGS = 2.0
MAX_BETWEEN = 0.03
MIN_VALUES_KINDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Two kinds of steps, by turns or mixed."""

    every: int | None
    """Steps after which it repeats; None: in no order."""
    ratio: float
    """Time of the slow kind over time of the fast kind."""
    slow_share: float
    """Of the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Slow steps at equal distances."""

    every: float
    """Steps from one to the next."""
    beats: tuple[int, ...]
    """Which of the stalls belong to it."""
    is_exact: bool
    """False: the distances vary."""
    every_s: float | None = None
    """Set where the distance is steadier by the clock than in steps."""


def pattern_of(logs: Values) -> tuple[Pattern | None, Values]:
    """A repeating pattern of 2 to 12 steps, and what it adds to each value; zeros where there is none.

    logs: logarithms of times, shape (values,), as the offsets. What has no pattern less the offsets is even.
    """
    even = np.zeros_like(logs)
    if len(logs) < 2 * MIN_CYCLES:
        return None, even
    every = _repeats_after(_without_slow_changes(logs))
    if every is None:
        return None, even
    offsets = _offsets(logs, every)
    cycles = offsets[: len(offsets) // every * every].reshape(-1, every)
    low, high = np.median(cycles.min(axis=1)), np.median(cycles.max(axis=1))
    slow = float((offsets > (low + high) / 2).mean())
    steadier = scatter(logs - offsets)
    if high - low < max(MIN_PATTERN, MIN_PATTERN_SIGMAS * steadier) or slow < MIN_SLOW_SHARE:
        return None, even
    return Pattern(every=every, ratio=float(np.exp(high - low)), slow_share=slow), offsets


def _without_slow_changes(logs: Values) -> Values:
    if len(logs) < 2 * CYCLES:
        residual = logs - np.median(logs)
    else:
        residual = logs - _centred_mean(logs, CYCLES)
    # One stall must not outweigh the pattern.
    reach = DRAWN_IN_AT * MAD_TO_SIGMA * float(np.median(np.abs(residual)))
    clipped: Values = np.clip(residual, -reach, reach)
    return clipped


def _centred_mean(logs: Values, every: int) -> Values:
    """Mean over whole cycles around each value; the two ends of an even cycle weigh half."""
    weights = np.full(every + 1 - every % 2, 1 / every)
    if every % 2 == 0:
        weights[[0, -1]] /= 2
    half = len(weights) // 2
    mean: Values = np.convolve(np.pad(logs, half, mode="reflect"), weights, "valid")
    return mean


def _offsets(logs: Values, every: int) -> Values:
    """What a place in the cycle adds, as the median over cycles around: it may change along the series."""
    if len(logs) // every <= WINDOW:
        return _offsets_of_few(logs, every)
    residual = logs - _centred_mean(logs, every)
    offsets = np.empty_like(logs)
    for phase in range(every):
        offsets[phase::every] = running_median(residual[phase::every])
    return offsets


def _offsets_of_few(logs: Values, every: int) -> Values:
    """The same for few cycles, from what neighbours differ by: a jump then spoils one difference, no more."""
    differences = np.diff(logs)
    rises = np.array([np.median(differences[phase::every]) for phase in range(every)])
    # Around the cycle they add up to nothing but for noise, which is spread.
    levels = np.cumsum(rises - rises.mean())
    return np.resize(np.roll(levels - levels.mean(), 1), len(logs))


def _repeats_after(residual: Values) -> int | None:
    size = len(residual)
    centred = residual - residual.mean()
    power = float(centred @ centred)
    if power <= 0:
        return None
    longest = min(MAX_PATTERN, size // MIN_CYCLES)
    if size < 2 * CYCLES and _goes_by_turns(residual):
        return 2
    similar = np.array(
        [
            1.0,
            *(centred[lag:] @ centred[:-lag] / power * size / (size - lag) for lag in range(1, longest + 1)),
        ]
    )
    for lag in range(2, longest + 1):
        if similar[lag] >= MIN_AUTOCORRELATION and similar[lag] >= similar[1:lag].max() + MIN_ABOVE_SHORTER:
            return lag
    return None


def _goes_by_turns(values: Values) -> bool:
    """Whether neighbours differ and values two apart do not: told by medians, which a change of level leaves alone."""
    neighbours, second = (float(np.median(np.abs(values[lag:] - values[:-lag]))) for lag in (1, 2))
    return second < BY_TURNS * neighbours


def kinds_of(residual: Values, rounding: float = 0.0) -> tuple[Pattern, float] | None:
    """Two kinds of steps in no order, and where the slow kind lies.

    residual: logarithms of times about their level, shape (values,). rounding: relative; two neighbouring roundings
    of one time are no two kinds.
    """
    size = len(residual)
    if size < MIN_VALUES_KINDS:
        return None
    ordered = np.sort(residual)
    count = np.arange(1, size)
    sums = np.cumsum(ordered)
    # The cut whose two means lie furthest apart, weighted by how many there are (N. Otsu, 1979).
    between = count * (size - count) * (sums[:-1] / count - (sums[-1] - sums[:-1]) / (size - count)) ** 2
    cut = int(between.argmax()) + 1
    low, high = ordered[:cut], ordered[cut:]
    if min(len(low), len(high)) < MIN_KIND * size:
        return None
    middles = float(np.median(low)), float(np.median(high))
    apart = middles[1] - middles[0]
    sigma = max(MAD_TO_SIGMA * float(np.median(np.abs(kind - np.median(kind)))) for kind in (low, high))
    third = apart / 3
    inside = float(((ordered > middles[0] + third) & (ordered < middles[1] - third)).mean())
    if apart < max(MIN_KINDS_APART, KINDS_SIGMAS * sigma, KINDS_ROUNDINGS * rounding) or inside > MAX_BETWEEN:
        return None
    return Pattern(every=None, ratio=float(np.exp(apart)), slow_share=len(high) / size), middles[1]


def rhythm_of(stalled: Sequence[int], steps: NDArray[np.int64], utc_s: Values | None = None) -> Rhythm | None:
    """The rhythm of stalls. stalled: their values, ascending. steps: of all values, shape (values,)."""
    if len(stalled) < MIN_BEATS_ALONE:
        return None
    at = np.asarray(stalled)
    unit = max(1, int(np.median(np.diff(steps))))
    places = steps // unit
    exact = _exact(places[at], places)
    if exact is not None:
        every, beats = exact
        return Rhythm(every=every * unit, beats=tuple(at[beats].tolist()), is_exact=True)
    return _loose(at, steps, utc_s)


def _exact(beats: NDArray[np.int64], places: NDArray[np.int64]) -> tuple[int, NDArray[np.bool_]] | None:
    gaps = Counter([*np.diff(beats).tolist(), *(beats[2:] - beats[:-2]).tolist()])
    best: tuple[int, NDArray[np.bool_]] | None = None
    for every, _ in gaps.most_common(6):
        if every < 2 or len(beats) * every < 2:
            continue
        phases, counts = np.unique(beats % every, return_counts=True)
        phase = phases[counts.argmax()]
        member = beats % every == phase
        num = int(member.sum())
        first, last = beats[member][[0, -1]]
        inside = (places >= first) & (places <= last)
        slots = int(((places % every == phase) & inside).sum())
        by_chance = len(beats) / max(1, int(inside.sum()))
        enough = num >= MIN_BEATS or (num == len(beats) == MIN_BEATS_ALONE and every >= MIN_PERIOD_ALONE)
        regular = enough and num >= MIN_COVERAGE * slots and by_chance <= MAX_BY_CHANCE
        if regular and (best is None or num > best[1].sum()):
            best = every, member
    return best


def _loose(at: NDArray[np.int64], steps: NDArray[np.int64], utc_s: Values | None) -> Rhythm | None:
    if len(at) < MIN_BEATS_LOOSE:
        return None
    gaps = np.diff(steps[at])
    every = float(np.median(gaps))
    variation = _variation(gaps)
    if utc_s is not None and not np.isnan(utc_s[at]).any():
        by_clock = _variation(np.diff(utc_s[at]))
        if by_clock <= MAX_CLOCK_VARIATION and by_clock <= CLOCK_STEADIER * variation:
            seconds = float(np.median(np.diff(utc_s[at])))
            return Rhythm(every=every, beats=tuple(at.tolist()), is_exact=False, every_s=seconds)
    if variation > MAX_LOOSE:
        return None
    return Rhythm(every=every, beats=tuple(at.tolist()), is_exact=False)


def _variation(gaps: NDArray[np.int64] | Values) -> float:
    mean = float(gaps.mean())
    return float(gaps.std()) / mean if mean > 0 else float("inf")

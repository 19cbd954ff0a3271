"""What does a series of step times show: warm-up, changes of level, drift, single stalls, rhythms?

One pass of analysis over one series, of one rank's log or of the whole job (the median over ranks). Everything is a
ratio of times; nothing here knows which rank is slow, and nothing can: in synchronous training all wait for one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distdoctor.straggler.analysis.series.changes import MIN_VALUES, splits_of
from distdoctor.straggler.analysis.series.first_values import num_warm_up
from distdoctor.straggler.analysis.series.levels import Change, Level, levels_of
from distdoctor.straggler.analysis.series.periods import Pattern, Rhythm, kinds_of, pattern_of, rhythm_of
from distdoctor.straggler.analysis.series.running import Values, surroundings_of
from distdoctor.straggler.analysis.series.spells import Schedule, Spell, rescaling_of, schedule_of, spells_of
from distdoctor.straggler.analysis.series.spikes import Stall, stalls_of

# Levels closer than this are one. Half of what is told, so that two halves of a told change are not lost.
MIN_LEVEL_GAP = 0.015

# Steps between neighbouring values, over the usual distance, from which on values are missing there. Our own choice.
MISSING_FROM = 5

# In a running mean values eight apart differ 2.8 times as much as neighbours; independent ones equally, and with an
# autocorrelation of 0.8 twice as much. Our own threshold.
AVERAGED_LAG = 8
AVERAGED = 2.4
MIN_AVERAGED = 32

# What lies outside is no time in any unit, and would overflow sums.
LEAST_TIME = 1e-12
MOST_TIME = 1e15

# Roundings that are looked for: powers of ten in the unit of the series.
_DECIMALS = range(-3, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesShape:
    """All that one series shows. Arrays have shape (values,); every index is into them; times are in their unit."""

    steps: NDArray[np.int64]
    times: Values
    utc_s: Values | None
    num_dropped: int
    """Values that are no times: NaN, infinite, zero, negative, absurd."""
    quantum: float
    """What times are rounded to; 0: not visibly."""
    num_warm_up: int
    """Values at the start that are left out of everything below."""
    warmup_ratio: float
    """The longest of them over what follows; 1 without warm-up."""
    sigma: float
    """Robust scatter of single values about what is usual around them, relative."""
    levels: tuple[Level, ...]
    """In order, covering all values after warm-up; empty when there are too few."""
    changes: tuple[Change, ...]
    """Jumps between levels, one fewer."""
    spells: tuple[Spell, ...]
    schedule: Schedule | None
    stalls: tuple[Stall, ...]
    """Those outside the rhythm."""
    beats: tuple[Stall, ...]
    """Those that `rhythm` explains."""
    rhythm: Rhythm | None
    pattern: Pattern | None
    is_averaged: bool
    """Each value looks like a mean over many steps: stalls are hidden, and changes smeared."""

    @property
    def num_judged(self) -> int:
        """Values after warm-up."""
        return len(self.times) - self.num_warm_up

    @property
    def too_few(self) -> bool:
        """Fewer values than a change can be found in."""
        return not self.levels

    @property
    def total(self) -> float:
        """Sum of the values after warm-up."""
        return float(self.times[self.num_warm_up :].sum())

    def missing_before(self, index: int) -> int | None:
        """The step of the last value before `index` when values are missing between the two; else None."""
        if index == 0 or len(self.steps) < 2:
            return None
        usual = max(1.0, float(np.median(np.diff(self.steps))))
        before = int(self.steps[index - 1])
        return before if int(self.steps[index]) - before > MISSING_FROM * usual else None


def shape_of(
    steps: ArrayLike, times: ArrayLike, *, utc_s: ArrayLike | None = None, quantum: float | None = None
) -> SeriesShape:
    """What a series of times shows.

    steps: step numbers, shape (values,). times: of one step each, any unit, same shape, in the order in which they
    were taken; what is not finite and positive, or absurd, is left out. utc_s: when, seconds since 1970, NaN where not known.
    quantum: what times are rounded to; None: found from them. Raises ValueError when shapes differ.
    """
    all_steps, all_times = np.asarray(steps, dtype=np.int64), np.asarray(times, dtype=np.float64)
    clock = None if utc_s is None else np.asarray(utc_s, dtype=np.float64)
    if all_steps.shape != all_times.shape or (clock is not None and clock.shape != all_times.shape):
        raise ValueError(f"{all_steps.shape} steps, {all_times.shape} times")
    good = (all_times > LEAST_TIME) & (all_times < MOST_TIME)
    if clock is not None:
        clock = clock[good]
    return _shape(all_steps[good], all_times[good], clock, int((~good).sum()), quantum)


def _shape(
    steps: NDArray[np.int64], times: Values, utc_s: Values | None, num_dropped: int, quantum: float | None
) -> SeriesShape:
    quantum = rounding_of(times) if quantum is None else quantum
    logs = np.log(times)
    rounding = quantum / float(np.median(times)) if len(times) else 0.0
    pattern, offsets = pattern_of(logs)
    by_turns = pattern is not None
    warmup = num_warm_up(logs - offsets, rounding=rounding)
    judged, offsets = (logs - offsets)[warmup:], offsets[warmup:]
    ratio = float(np.exp(logs[:warmup].max() - np.median(judged))) if warmup else 1.0
    unjudged = SeriesShape(
        steps=steps,
        times=times,
        utc_s=utc_s,
        num_dropped=num_dropped,
        quantum=quantum,
        num_warm_up=warmup,
        warmup_ratio=ratio,
        sigma=0.0,
        levels=(),
        changes=(),
        spells=(),
        schedule=None,
        stalls=(),
        beats=(),
        rhythm=None,
        pattern=None,
        is_averaged=False,
    )
    if len(judged) < MIN_VALUES:
        return unjudged
    around = surroundings_of(judged, rounding=rounding)
    splits = splits_of(around.drawn_in, sigma=around.sigma, least=max(MIN_LEVEL_GAP, rounding))
    levels, changes = levels_of(around.drawn_in, splits, warmup)
    by_level = np.concatenate([np.full(each.size, np.log(each.time)) for each in levels])
    find = partial(
        stalls_of,
        times[warmup:],
        around.middle + offsets,
        sigma=around.sigma,
        rounding=rounding,
        offset=warmup,
    )
    stalls = find(around.upper + offsets)
    rhythm = rhythm_of([each.index for each in stalls], steps, utc_s)
    if pattern is None and rhythm is None:
        kinds = kinds_of(judged - by_level, rounding)
        if kinds is not None:
            pattern, slow = kinds
            stalls = find(np.maximum(around.upper, by_level + slow))
    beats = set(rhythm.beats) if rhythm else set()
    return replace(
        unjudged,
        sigma=around.sigma,
        levels=levels,
        changes=changes,
        spells=spells_of(levels, changes),
        schedule=_schedule(levels, changes, around.sigma, logs if by_turns else None),
        stalls=tuple(each for each in stalls if each.index not in beats),
        beats=tuple(each for each in stalls if each.index in beats),
        rhythm=rhythm,
        pattern=pattern,
        is_averaged=_is_averaged(around.drawn_in),
    )


def _schedule(
    levels: tuple[Level, ...], changes: tuple[Change, ...], sigma: float, of_two_kinds: Values | None
) -> Schedule | None:
    if of_two_kinds is not None and len(changes) == 1:
        before, after = (of_two_kinds[level.start : level.end] for level in levels)
        return rescaling_of(changes[0], before, after)
    return schedule_of(levels, changes, sigma)


def rounding_of(values: Values) -> float:
    """The power of ten that values are rounded to, from 0.0001 to 1000; 0 where none shows.

    All are multiples of it, and some are neighbours.
    """
    distinct = np.unique(values)
    if len(distinct) < 2:
        return 0.0
    least = float(np.diff(distinct).min())
    for decimals in _DECIMALS:
        scaled = distinct * 10.0**decimals
        if np.all(np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(1e3, np.abs(scaled))):
            quantum = 10.0**-decimals
            return quantum if abs(least - quantum) <= 0.01 * quantum else 0.0
    return 0.0


def _is_averaged(values: Values) -> bool:
    if len(values) < MIN_AVERAGED:
        return False
    near, far = (float(np.median(np.abs(values[lag:] - values[:-lag]))) for lag in (1, AVERAGED_LAG))
    return far > AVERAGED * near > 0

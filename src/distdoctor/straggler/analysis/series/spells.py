"""What the levels of a series mean: a slow spell that lasts, one that ended, a faster level, or a schedule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from distdoctor.straggler.analysis.series.levels import Change, Level
from distdoctor.straggler.analysis.series.running import Values

# Throughput of a 16,384-GPU run swung by 1-2 % over the day with the temperature of the halls (The Llama 3 herd of
# models, section 3.3.4): less than this is not told.
MIN_SHIFT = 0.03

# A spell has ended when no more than this share of its slowdown is left. Our own threshold.
LEFT_WHEN_OVER = 0.3

# So many clean jumps to so many new levels are a schedule: a fault seldom comes in three even steps. Two must be large.
# Our own thresholds.
SCHEDULE_JUMPS = 3
SCHEDULE_LARGE = 1.2
SCHEDULE_SIGMAS = 3.0

# One jump of a series with two kinds of steps: from this size on, where both grow by factors this close (as a share of
# the jump) and the kinds differ by so much. Our own thresholds.
RESCALED_FROM = 1.3
RESCALED_APART = 0.2
MIN_KINDS_SPREAD = 0.1

# Levels of equal length (up to this share of it) point at a schedule.
EQUAL_LENGTHS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """Values slower than those before. Times in the unit of the series."""

    start: int
    """The first slow value."""
    end: int | None
    """One past the last; None: it lasts to the end."""
    before: float
    """What a step took before, and below meanwhile."""
    during: float
    num_before: int
    """Values of the level before, and below of the spell."""
    num_during: int
    num_after: int
    """Values after it; 0 where it lasts."""
    score: float
    """How clear its onset is, in standard errors."""

    @property
    def ratio(self) -> float:
        """Time meanwhile over time before."""
        return self.during / self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Changes of level that look planned."""

    num_levels: int
    is_likely: bool
    """More than a guess."""
    why: str
    """What points at a plan, as a clause."""


def spells_of(levels: Sequence[Level], changes: Sequence[Change]) -> tuple[Spell, ...]:
    """Slow spells in order; one that lasts is the last."""
    found = []
    at = 0
    while at < len(changes):
        if changes[at].ratio < 1 + MIN_SHIFT:
            at += 1
            continue
        base = levels[at].last
        over = _end_of_spell(levels, at, base)
        inside = levels[at + 1 : over]
        size = sum(level.size for level in inside)
        during = math.exp(sum(level.size * math.log(level.time) for level in inside) / size)
        end = levels[over].start if over < len(levels) else None
        found.append(
            Spell(
                start=inside[0].start,
                end=end,
                before=base,
                during=during,
                num_before=levels[at].size,
                num_during=size,
                num_after=0 if end is None else levels[over].size,
                score=changes[at].score,
            )
        )
        at = over
    return tuple(found)


def _end_of_spell(levels: Sequence[Level], at: int, base: float) -> int:
    """The first level after the jump at `at` that is back where it was; the number of levels when none is."""
    worst = 1.0
    for later in range(at + 1, len(levels)):
        ratio = levels[later].time / base
        worst = max(worst, ratio)
        if later > at + 1 and ratio - 1 <= max(MIN_SHIFT / 2, LEFT_WHEN_OVER * (worst - 1)):
            return later
    return len(levels)


def schedule_of(levels: Sequence[Level], changes: Sequence[Change], sigma: float) -> Schedule | None:
    """The schedule that clean jumps between flat, ever new levels point at; None for anything else.

    sigma: scatter of single values, in logarithms.
    """
    if len(changes) < SCHEDULE_JUMPS - 1:
        return None
    clean = all(
        abs(math.log(change.ratio)) >= max(SCHEDULE_SIGMAS * sigma, math.log1p(MIN_SHIFT))
        for change in changes
    )
    flat = all(abs(math.log(level.drift)) < math.log1p(MIN_SHIFT) for level in levels)
    if not clean or not flat or not _all_differ(levels):
        return None
    if len(changes) >= SCHEDULE_JUMPS:
        return Schedule(num_levels=len(levels), is_likely=True, why="so many clean jumps are seldom a fault")
    if all(change.ratio >= SCHEDULE_LARGE for change in changes):
        even = _equally_long(levels)
        why = "the levels are equally long" if even else "both jumps are large and clean"
        return Schedule(num_levels=len(levels), is_likely=even, why=why)
    return None


def rescaling_of(change: Change, before: Values, after: Values) -> Schedule | None:
    """One large jump that made both kinds of steps longer in proportion: more work in each, not a wait added to each.

    before, after: logarithms of times of a series that has two kinds of steps, shapes (values of a level,).
    """
    jump = math.log(change.ratio)
    if change.ratio < RESCALED_FROM:
        return None
    low, high = (np.quantile(after, at) - np.quantile(before, at) for at in (0.25, 0.75))
    spread = float(np.quantile(before, 0.75) - np.quantile(before, 0.25))
    if spread < MIN_KINDS_SPREAD or abs(high - low) > RESCALED_APART * jump:
        return None
    why = (
        f"both kinds of steps became longer in proportion, {math.exp(low):.2f} and {math.exp(high):.2f} times"
    )
    return Schedule(num_levels=2, is_likely=False, why=why)


def _all_differ(levels: Sequence[Level]) -> bool:
    ordered = sorted(level.time for level in levels)
    return all(high / low >= 1 + MIN_SHIFT for low, high in pairwise(ordered))


def _equally_long(levels: Sequence[Level]) -> bool:
    """The last one may be cut off by the end of the log."""
    sizes = [level.size for level in levels[:-1]]
    even = max(sizes) - min(sizes) <= EQUAL_LENGTHS * max(sizes)
    return even and levels[-1].size <= (1 + EQUAL_LENGTHS) * max(sizes)

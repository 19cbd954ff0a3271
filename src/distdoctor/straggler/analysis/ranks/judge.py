"""Which ranks are slow, by how much, and is it sure? Which looks are taken, and what of them counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distdoctor.straggler.analysis.ranks.judgement import Judgement, Suspect
from distdoctor.straggler.analysis.ranks.look import look_at
from distdoctor.straggler.analysis.ranks.own_time import (
    MIN_OWN_SHARE,
    Basis,
    OwnTime,
    own_time_of,
    wall_time_of,
    whole_own_time_of,
)
from distdoctor.straggler.analysis.ranks.parts import parts_even_out
from distdoctor.straggler.analysis.ranks.suspects import worst_first
from distdoctor.straggler.facts.sections import Role, Section, role_of
from distdoctor.straggler.facts.steps import StepTimings

# What parts and waiting leave open of a step, at most, before the whole step less waiting is taken for own time. Our
# own threshold: data, forward, backward, waiting and optimizer of plain loops leave 2 to 5 %.
MAX_UNTOLD = 0.15

# Ranks that stand for all, evenly chosen.
_SAMPLED_ROWS = 64

# A rank that is accused by its parts is told by the whole step instead where that shows so many times as much.
MUCH_MORE = 1.5


def judge(timings: StepTimings) -> Judgement | None:
    """The judgement; None when there is no time of any kind. Reads sections one at a time."""
    own_time = own_time_of(timings) if timings.num_steps else None
    if own_time is None:
        return None
    untold = _untold_share(timings, own_time)
    first = replace(look_at(timings, own_time), untold=untold)
    if first.basis is Basis.SECTIONS and not first.accused and not first.hosts:
        parts = (timings.sections[section] for section in first.own_sections)
        first = replace(first, parts_even_out=parts_even_out(parts))
    whole = whole_own_time_of(timings) if untold is not None and untold < MAX_UNTOLD else None
    if whole is None:
        return _by_walls(timings, first)
    second = look_at(timings, whole)
    known = {each.row: each.excess_ms for each in first.suspects if each.is_accused}
    # What only the whole step shows is slow outside of all parts; its waiting must say so too.
    more = [
        _outside(each)
        for each in second.suspects
        if each.is_accused and each.excess_ms > MUCH_MORE * known.get(each.row, 0.0)
    ]
    if not more:
        return first
    if not known:
        return replace(second, suspects=tuple(more), own_sections=first.own_sections)
    return _joined(first, second, more)


def _by_walls(timings: StepTimings, first: Judgement) -> Judgement:
    """By wall times of parts where hardly any own work is timed and accuses nobody.

    Walls that differ in the long run end in no collective, and so show own work; walls that are equal show nothing.
    """
    few = first.own_share is not None and first.own_share < MIN_OWN_SHARE
    has_parts = Section.FORWARD_WALL in timings.sections or Section.BACKWARD_WALL in timings.sections
    if first.accused or first.hosts or not few or not has_parts:
        return first
    walls = wall_time_of(timings)
    if walls is None:
        return first
    second = look_at(timings, walls)
    return replace(second, untold=first.untold) if second.accused else first


def _joined(first: Judgement, second: Judgement, more: list[Suspect]) -> Judgement:
    """The first look with those whom only the second one accuses, each rank once."""
    rows = {each.row for each in more}
    suspects = [*(each for each in first.suspects if each.row not in rows), *more]
    accused = {each.row for each in suspects if each.is_accused}
    costs_all = second.cost is not None and accused <= second.cost.alone.keys()
    return replace(
        first,
        suspects=tuple(sorted(suspects, key=worst_first)),
        cost=second.cost if costs_all else first.cost,
    )


def _untold_share(timings: StepTimings, own_time: OwnTime) -> float | None:
    """What own parts, waiting, transfers and idle time leave open of a step; None where it cannot be told.

    A pipeline has bubbles that nobody times.
    """
    stages = {place.coords.get("pp", 0) for place in timings.places}
    if own_time.wait is None or own_time.own_share is None or not own_time.step_ms or len(stages) > 1:
        return None
    if own_time.wait_is_derived:
        # The rest of the step was called waiting; where a pass was not timed, its work is in there as well.
        return None if _times_computing(own_time) else 1 - own_time.own_share
    rows = slice(None, None, max(1, timings.num_ranks // _SAMPLED_ROWS))
    waiting = own_time.wait[rows]
    if Section.COMM in timings.sections:
        # Where waiting is told apart from it, communication holds the transfers too.
        waiting = np.fmax(waiting, timings.sections[Section.COMM][rows])
    told = own_time.own[rows] + waiting
    # Beside work of the device idle time lies in no other part; beside a CPU's it does.
    more = (Section.TRANSFER, Section.IDLE) if Section.COMPUTE in timings.sections else (Section.TRANSFER,)
    for section in more:
        if section in timings.sections:
            told = told + np.nan_to_num(timings.sections[section][rows])
    step = timings.sections[Section.STEP][rows]
    with np.errstate(invalid="ignore", divide="ignore"):
        # Of each step of each rank: who works waits less, so that medians of parts do not add up.
        share = told / np.where(step > 0, step, np.nan)
    return float(1 - np.nanmedian(share)) if np.isfinite(share).any() else None


def _times_computing(own_time: OwnTime) -> bool:
    own = set(own_time.own_sections)
    return bool(own & {Section.COMPUTE, Section.UNSPLIT}) or {Section.FORWARD, Section.BACKWARD} <= own


def _outside(suspect: Suspect) -> Suspect:
    """With what its sections leave unexplained, as a section of its own."""
    told = sum(ms for section, ms in suspect.sections.items() if role_of(section) is Role.OWN)
    rest = suspect.excess_ms - told
    return replace(suspect, sections={**suspect.sections, Section.OTHER: rest}) if rest > 0 else suspect

"""Did the whole job become slower, since when, and does it last? Levels and drift of one series."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.straggler.analysis.series.levels import Level
from distdoctor.straggler.analysis.series.regimes import SeriesShape
from distdoctor.straggler.analysis.series.spells import MIN_SHIFT, Spell
from distdoctor.straggler.checks.series.around import around_words, nearest_change
from distdoctor.straggler.checks.series.words import (
    Told,
    change_words,
    evidence,
    find_who,
    level_time,
    names_nobody,
    share_words,
    step_words,
    subject_words,
    too_few,
    value_words,
    warmup_words,
    when_words,
    with_time,
)
from distdoctor.straggler.facts.series import SeriesKind

REGIME_ID = "straggler-regime"

# A lasting slowdown of so much is worth a ticket, and a drift of so much. Our own thresholds.
WARN_SHIFT = 0.05
WARN_DRIFT = 0.10

# A spell that is over counts when it cost so much of the time. Our own threshold.
WARN_COST = 0.01

# Values on both sides of a change for full confidence, and below which it is only a lead. Our own thresholds.
SURE_VALUES = 30
FEW_VALUES = 8

# From this size on a larger batch or longer sequences come to mind.
MAYBE_PLANNED = 1.3

# A throughput that changes by less than this share of the jump in step time did not change: the step does more work.
RATE_UNCHANGED = 0.25

# A change in the first part of a log is a slow start. Our own choice.
START = 1 / 3


def regime_outcomes(shape: SeriesShape, told: Told | None = None) -> Sequence[Outcome]:
    """Level shifts and drift of a series, the one nearest to the time asked about first."""
    told = told or Told()
    if shape.too_few:
        return [too_few(shape, "changes of speed over time")]
    found = [
        *(_spell(shape, told, each) for each in shape.spells if not is_planned(shape, told, each.start)),
        *(_drift(shape, told, each) for each in shape.levels if each.drift >= 1 + MIN_SHIFT),
        *_speed_ups(shape, told),
    ]
    nearest = nearest_change(shape, told)
    if nearest is not None:
        found.sort(key=lambda each: each.key != _key(shape, nearest))
    return found or [Passed(detail=_flat(shape, told))]


def is_planned(shape: SeriesShape, told: Told, index: int) -> bool:
    """Whether the change at `index` looks like a schedule, or is a larger batch by an unchanged throughput."""
    ratio = told.rate_ratios.get(index)
    if ratio is not None:
        jump = next(each.ratio for each in shape.changes if each.index == index)
        return abs(math.log(ratio)) < RATE_UNCHANGED * abs(math.log(jump))
    return shape.schedule is not None


def _key(shape: SeriesShape, index: int) -> str:
    return f"step-{int(shape.steps[index])}"


def _spell(shape: SeriesShape, told: Told, spell: Spell) -> Found:
    cost = spell.num_during * (spell.during - spell.before) / shape.total
    start = step_words(shape, spell.start)
    slower = f"{subject_words(told)} is {change_words(spell.ratio, told)}"
    if spell.end is None:
        title = f"{slower} since {start}"
        is_warning = spell.ratio >= 1 + WARN_SHIFT
    else:
        last = f"{int(shape.steps[spell.end - 1]):,}"
        title = f"{slower.replace(' is ', ' was ')} from {start} to {last}"
        is_warning = cost >= WARN_COST
    after = () if spell.end is None else (f"{spell.num_after} values after it",)
    return Found(
        key=_key(shape, spell.start),
        title=with_time(title, when_words(shape, spell.start, told)),
        severity=Severity.WARNING if is_warning else Severity.INFO,
        confidence=_confidence(shape, min(spell.num_before, spell.num_during)),
        evidence=(
            evidence(
                f"{told.what} {value_words(spell.before, told)} before ({spell.num_before} values), "
                f"{value_words(spell.during, told)} since ({', '.join([f'{spell.num_during} values', *after])})",
                told,
                value=round((spell.ratio - 1) * 100, 1),
                unit="% more time a step",
                expected=f"less than {share_words(MIN_SHIFT)} apart",
                expected_source="our own threshold; 1-2 % a day is normal (Llama 3 report)",
            ),
            *_missing(shape, told, spell.start),
            *_parts(shape, told, spell),
            *_common(shape, told),
            Evidence(
                text=f"it costs {cost:.1%} of the time in this log", value=round(cost * 100, 2), unit="%"
            ),
        ),
        explanation=_why(told, spell),
        actions=(*_look(shape, told, spell), *find_who(told)),
        cause_class="job_wide",
        fault=Fault.UNKNOWN,
    )


def _why(told: Told, spell: Spell) -> str:
    words = (
        "The level of the whole job changed at one step: a GPU that is held back by heat or power, a link or a disk that "
        "lost speed, another job on the same network or file system, or different work in each step."
    )
    if told.rate_ratios.get(spell.start) is not None:
        words += " The throughput in the same log fell too, so each step does not simply do more work."
    elif spell.ratio >= MAYBE_PLANNED:
        words += (
            " A larger batch or longer sequences from that step on look the same; the tokens or samples per second in "
            "the log would decide: unchanged means more work in each step."
        )
    if min(spell.num_before, spell.num_during) < FEW_VALUES:
        words += " Few values show it, so it may be chance or the end of an epoch."
    return words + names_nobody(told)


def _look(shape: SeriesShape, told: Told, spell: Spell) -> tuple[Action, ...]:
    when = when_words(shape, spell.start, told)
    place = f"{step_words(shape, spell.start)}{f', {when}' if when else ''}"
    text = f"See what changed at {place}: batch, sequence length, evaluation, data set; restarts"
    return (
        Action(team=Team.JOB_OWNER, text=text),
        Action(
            team=Team.PLATFORM,
            text=f"Look at clocks, throttling, kernel logs and shared storage from {place} on",
        ),
    )


def _drift(shape: SeriesShape, told: Told, level: Level) -> Found:
    lasts = level.end == len(shape.times)
    first, last = step_words(shape, level.start), f"{int(shape.steps[level.end - 1]):,}"
    title = (
        f"{subject_words(told)} {'becomes' if lasts else 'became'} slowly {change_words(level.drift, told)}"
    )
    return Found(
        key=f"drift-{_key(shape, level.start)}",
        title=with_time(f"{title}, {first} to {last}", when_words(shape, level.start, told)),
        severity=Severity.WARNING if lasts and level.drift >= 1 + WARN_DRIFT else Severity.INFO,
        confidence=_confidence(shape, level.size // 2),
        evidence=(
            evidence(
                f"{told.what} {value_words(level.first, told)} at its beginning, {value_words(level.last, told)} at its "
                f"end ({level.size} values, no jump between)",
                told,
                value=round((level.drift - 1) * 100, 1),
                unit="% more time a step",
            ),
            *_common(shape, told),
        ),
        explanation=(
            "The speed changes little by little: a machine that warms up, memory that fragments, data or sequences that "
            "grow, a log or cache that fills; a schedule in small steps."
            + ("" if lasts else " It did not last to the end of the log.")
        )
        + names_nobody(told),
        actions=(
            Action(
                team=Team.JOB_OWNER, text="See whether sequence lengths or the data change over these steps"
            ),
            Action(
                team=Team.PLATFORM, text="Compare clocks and temperatures at its beginning and at its end"
            ),
            *find_who(told),
        ),
        cause_class="job_wide:drift",
    )


def _speed_ups(shape: SeriesShape, told: Told) -> list[Found]:
    """Faster from some step on, other than back from a slow spell."""
    ends = {spell.end for spell in shape.spells}
    jumps = [
        _speed_up(shape, told, each.index, each.ratio, min(each.num_before, each.num_after))
        for each in shape.changes
        if each.ratio <= 1 / (1 + MIN_SHIFT)
        and each.index not in ends
        and not is_planned(shape, told, each.index)
    ]
    return [
        *jumps,
        *(_drift(shape, told, each) for each in shape.levels if each.drift <= 1 / (1 + MIN_SHIFT)),
    ]


def _speed_up(shape: SeriesShape, told: Told, index: int, ratio: float, num: int) -> Found:
    at_start = index - shape.num_warm_up <= START * shape.num_judged
    title = f"{subject_words(told)} is {change_words(ratio, told)} since {step_words(shape, index)}"
    words = "a slow start, not a slowdown" if at_start else "not a slowdown"
    return Found(
        key=_key(shape, index),
        title=with_time(f"{title}: {words}", when_words(shape, index, told)),
        severity=Severity.INFO,
        confidence=_confidence(shape, num),
        evidence=(
            evidence(f"{told.what} is {change_words(ratio, told)} from {step_words(shape, index)} on", told),
            *_missing(shape, told, index),
            *_common(shape, told),
        ),
        explanation="Compilation, caches, a schedule, or a disturbance that ended." + names_nobody(told),
        actions=(),
        cause_class="job_wide",
    )


def _confidence(shape: SeriesShape, num: int) -> Confidence:
    if num < FEW_VALUES or shape.num_judged < SURE_VALUES or shape.is_averaged:
        return Confidence.LOW
    return Confidence.HIGH if num >= SURE_VALUES else Confidence.MEDIUM


def _missing(shape: SeriesShape, told: Told, index: int) -> tuple[Evidence, ...]:
    before = shape.missing_before(index)
    if before is None:
        return ()
    text = f"values are missing between step {before:,} and {step_words(shape, index)}: it may have changed anywhere there"
    return (evidence(text, told),)


def _parts(shape: SeriesShape, told: Told, spell: Spell) -> tuple[Evidence, ...]:
    """Which part of the step grew, where the same lines tell parts."""
    if told.kind is not SeriesKind.TIME or not told.parts:
        return ()
    before = slice(max(shape.num_warm_up, spell.start - spell.num_before), spell.start)
    during = slice(spell.start, spell.start + spell.num_during)
    grown = []
    for name, times in told.parts.items():
        if np.isnan(times[before]).all() or np.isnan(times[during]).all():
            continue
        grown.append((float(np.nanmedian(times[during]) - np.nanmedian(times[before])), name))
    if not grown:
        return ()
    more, name = max(grown)
    whole = level_time(shape, during.start, during.stop) - level_time(shape, before.start, before.stop)
    text = f"of {value_words(abs(whole), told)} more, `{name}` has {value_words(abs(more), told)}"
    return (evidence(text, told),) if more > 0 and whole > 0 else ()


def _common(shape: SeriesShape, told: Told) -> tuple[Evidence, ...]:
    lines = [around_words(shape, told)]
    if shape.num_warm_up:
        lines.append(f"not counted: {warmup_words(shape)}")
    if shape.is_averaged:
        lines.append(
            "neighbouring values hardly differ, as in a running mean: stalls are hidden and changes smeared"
        )
    if (told.steps_per_value or 1) > 1:
        lines.append(f"each value is the mean of {told.steps_per_value} steps")
    return tuple(evidence(line, told) for line in lines if line)


def _flat(shape: SeriesShape, told: Told) -> str:
    usual = level_time(shape, shape.num_warm_up, len(shape.times))
    drift = "no lasting change of speed" if not shape.schedule else "changes of speed look planned"
    words = [
        f"{told.what} {value_words(usual, told)}, {drift} in {shape.num_judged} values",
        *([warmup_words(shape)] if shape.num_warm_up else []),
        *(["few values: low confidence"] if shape.num_judged < SURE_VALUES else []),
    ]
    around = around_words(shape, told)
    return "; ".join([*words, *([around] if around else [])])

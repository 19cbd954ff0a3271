"""Do slow steps come in a rhythm, by turns, or with a schedule? By design as a rule, and so not a straggler."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.straggler.analysis.series.periods import Pattern, Rhythm
from distdoctor.straggler.analysis.series.regimes import SeriesShape
from distdoctor.straggler.checks.series.regime import is_planned
from distdoctor.straggler.checks.series.stall import since_evidence
from distdoctor.straggler.checks.series.words import (
    MAX_TITLE,
    Told,
    evidence,
    find_who,
    names_nobody,
    percent,
    share_words,
    step_words,
    times_words,
    too_few,
    value_words,
)
from distdoctor.units import format_seconds

PERIODIC_ID = "straggler-periodic"

# Two kinds of steps that differ by less are noted, not told as a finding. Intervals of a log whose ends fall before or
# after a pause differ by 3 % by turns (MLPerf BERT logs). Our own threshold.
MIN_TOLD = 1.05

# A rhythm that wavers, or that a clock outside the job keeps, counts when it costs so much. Our own thresholds.
WARN_LOOSE_COST = 0.05
WARN_CLOCK_COST = 0.01

MAX_LEVELS_NAMED = 6


def periodic_outcomes(shape: SeriesShape, told: Told | None = None) -> Sequence[Outcome]:
    """Schedules, rhythms of slow steps, and steps of two kinds."""
    told = told or Told()
    if shape.too_few:
        return [too_few(shape, "rhythms of slow steps")]
    found: list[Outcome] = []
    planned = [each for each in shape.changes if is_planned(shape, told, each.index)]
    if planned:
        found.append(_schedule(shape, told, by_rate=any(each.index in told.rate_ratios for each in planned)))
    if shape.rhythm is not None:
        found.append(_rhythm(shape, told, shape.rhythm))
    if shape.pattern is not None and shape.pattern.ratio >= MIN_TOLD:
        found.append(_pattern(shape, told, shape.pattern))
    if found:
        return found
    small = ""
    if shape.pattern is not None:
        small = f"; steps alternate by {shape.pattern.ratio - 1:.1%}, which is usual"
    return [Passed(detail=f"no rhythm of slow steps in {shape.num_judged} values{small}")]


def _schedule(shape: SeriesShape, told: Told, *, by_rate: bool) -> Found:
    schedule = shape.schedule
    sure = by_rate or (schedule is not None and schedule.is_likely)
    why = "throughput stays while the step time changes" if by_rate or schedule is None else schedule.why
    levels = shape.levels[:MAX_LEVELS_NAMED]
    named = ", ".join(
        f"{value_words(each.time, told)} from {step_words(shape, each.start)}" for each in levels
    )
    more = len(shape.levels) - len(levels)
    decide = (
        "" if by_rate else " Tokens or samples per second would decide: unchanged, each step does more work."
    )
    return Found(
        key="schedule",
        title=f"{told.what} changes by plan or by configuration: {len(shape.levels)} levels"[:MAX_TITLE],
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM if sure else Confidence.LOW,
        evidence=(
            evidence(f"levels: {named}{f' and {more} more' if more else ''}", told),
            Evidence(text=why),
        ),
        explanation=(
            "Clean jumps between flat levels are what a schedule of batch size, sequence length or context makes. That "
            f"it is one, the log does not say.{decide}"
        )
        + names_nobody(told),
        actions=(
            Action(team=Team.JOB_OWNER, text="Compare with the schedule of batch size and sequence length"),
            *([] if sure else find_who(told)),
        ),
        cause_class="periodic:schedule",
        fault=Fault.CONFIG,
    )


def _rhythm(shape: SeriesShape, told: Told, rhythm: Rhythm) -> Found:
    share = sum(each.lost for each in shape.beats) / shape.total
    worst = max(shape.beats, key=lambda each: each.factor)
    if rhythm.every_s is not None:
        every = f"every {format_seconds(rhythm.every_s)} by the clock"
        limit, design = WARN_CLOCK_COST, "not from the job"
    elif rhythm.is_exact:
        every = f"every {rhythm.every:,.0f} steps"
        limit, design = math.inf, "by design or by a worker count"
    else:
        every, limit, design = f"about every {rhythm.every:,.0f} steps", WARN_LOOSE_COST, "in a loose rhythm"
    factors = sorted(each.factor for each in shape.beats)
    return Found(
        key="rhythm",
        title=f"a slow step {every}, {share_words(share)} of the time: {design}"[:MAX_TITLE],
        severity=Severity.WARNING if share >= limit else Severity.INFO,
        confidence=Confidence.HIGH if rhythm.is_exact else Confidence.MEDIUM,
        evidence=(
            evidence(
                f"{len(shape.beats)} slow steps, {every}: {times_words(factors[len(factors) // 2])} as long as usual, "
                f"at most {value_words(worst.longest, told)}",
                told,
                value=round(share * 100, 2),
                unit="% of the time",
            ),
            *since_evidence(shape, told, shape.beats),
        ),
        explanation=_rhythm_words(rhythm) + names_nobody(told),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text=f"See what the job does {every}: optimizer, checkpoint, evaluation, logging; data-loader workers",
            ),
            *([] if rhythm.is_exact else find_who(told)),
        ),
        cause_class="periodic",
    )


def _rhythm_words(rhythm: Rhythm) -> str:
    if rhythm.every_s is not None:
        return (
            "The gaps are even by the clock and uneven in steps, so the cause runs beside the job: a cron job, a monitoring "
            "agent, a snapshot of a file system, one host or all."
        )
    if not rhythm.is_exact:
        return (
            "Slow steps recur at similar, not equal distances: checkpoints or evaluation by time, Python's garbage "
            "collector, buffers that fill and drain."
        )
    return (
        "Slow steps at equal distances are part of the program: an optimizer that updates its preconditioner, a checkpoint, "
        "evaluation, logging, collecting garbage by hand. A distance equal to the number of data-loader workers means that "
        "loading is slower than training. All ranks do it together, so it is not a straggler."
    )


def _pattern(shape: SeriesShape, told: Told, pattern: Pattern) -> Found:
    slow = f"{percent(pattern.ratio)} %"
    if pattern.every == 2:
        title = f"every second step takes {slow} longer: two kinds of steps by turns"
    elif pattern.every is not None and round(pattern.slow_share * pattern.every) == 1:
        title = f"one step in {pattern.every} takes {slow} longer: by design or by a worker count"
    elif pattern.every is not None:
        title = f"steps repeat a pattern of {pattern.every}; the slow ones take {slow} longer"
    else:
        title = f"two kinds of steps, one takes {slow} longer, in no order"
    low, high = _kinds(shape, pattern)
    return Found(
        key="pattern",
        title=title,
        severity=Severity.INFO,
        confidence=Confidence.HIGH if pattern.every is not None else Confidence.MEDIUM,
        evidence=(
            evidence(
                f"two speeds: {value_words(low, told)} and {value_words(high, told)} in the last level; "
                f"{share_words(pattern.slow_share)} of the steps are of the slow kind (bimodal)",
                told,
                value=round(pattern.ratio, 3),
                unit="times",
            ),
        ),
        explanation=(
            "The program does two kinds of steps: optimizers by turns, accumulation of gradients, logging intervals, batches "
            "of two shapes. A median over single steps means little here, and slow ones are not stragglers."
            f"{_workers(pattern)}"
        )
        + names_nobody(told),
        actions=(),
        cause_class="periodic",
    )


def _workers(pattern: Pattern) -> str:
    if (pattern.every or 0) <= 2:
        return ""
    return f" If the data loader has {pattern.every} workers, it is slower than training."


def _kinds(shape: SeriesShape, pattern: Pattern) -> tuple[float, float]:
    level = shape.levels[-1]
    ordered = sorted(shape.times[level.start : level.end].tolist())
    cut = min(len(ordered) - 1, max(1, round(len(ordered) * (1 - pattern.slow_share))))
    return ordered[cut // 2], ordered[(cut + len(ordered)) // 2]

"""Did single steps take far longer than those around them, and what did that cost in all?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Severity, Team
from distdoctor.straggler.analysis.series.regimes import SeriesShape
from distdoctor.straggler.analysis.series.spikes import FEW, Stall, since
from distdoctor.straggler.checks.series.words import (
    MAX_TITLE,
    Told,
    evidence,
    find_who,
    longer_words,
    names_nobody,
    share_words,
    step_words,
    too_few,
    value_words,
    when_words,
    with_time,
)
from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.units import format_seconds

STALL_ID = "straggler-stall"

# Stalls that cost so much of the time are worth a ticket. Our own threshold; a share of few values says nothing.
WARN_COST = 0.01

MAX_NAMED = 5


def stall_outcomes(shape: SeriesShape, told: Told | None = None) -> Sequence[Outcome]:
    """Isolated slow steps, outside any rhythm."""
    told = told or Told()
    if shape.too_few:
        return [too_few(shape, "single slow steps")]
    if not shape.stalls:
        hidden = _hidden(shape, told)
        return [
            Passed(
                detail=f"no single slow steps in {shape.num_judged} values{f'; {hidden}' if hidden else ''}"
            )
        ]
    return [_found(shape, told)]


def _found(shape: SeriesShape, told: Told) -> Found:
    worst = max(shape.stalls, key=lambda each: each.factor)
    share = sum(each.lost for each in shape.stalls) / shape.total
    hidden = _hidden(shape, told)
    return Found(
        title=_title(shape, told, worst, share),
        severity=Severity.WARNING if share >= WARN_COST and shape.num_judged >= FEW else Severity.INFO,
        confidence=Confidence.HIGH if shape.num_judged >= FEW else Confidence.LOW,
        evidence=(
            *(_evidence(shape, told, each) for each in _named(shape.stalls)),
            Evidence(
                text=f"{len(shape.stalls)} of {shape.num_judged} values; {_lost(shape, told, share)}",
                value=round(share * 100, 3),
                unit="%",
                expected=f"below {share_words(WARN_COST)} of the time",
                expected_source="our own threshold",
            ),
            *since_evidence(shape, told, shape.stalls),
            *(evidence(line, told) for line in (_gaps(shape), hidden) if line),
        ),
        explanation=(
            "The step after a stall is as fast as the one before it, so nothing became slower for good. Usual reasons: "
            "a checkpoint or evaluation, Python's garbage collector, a page or file that had to be fetched, a packet "
            "that was sent again, another process on one host."
        )
        + names_nobody(told),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="See what the job did at these steps: checkpoint, evaluation, logging",
            ),
            *find_who(told),
        ),
        cause_class="stalls",
    )


def since_evidence(shape: SeriesShape, told: Told, stalls: Sequence[Stall]) -> tuple[Evidence, ...]:
    """A line when slow steps began at some step, and did not come before."""
    start = since(stalls, shape.num_warm_up, len(shape.times))
    if start is None:
        return ()
    when = when_words(shape, start, told)
    at = f"{step_words(shape, start)}{f' ({when})' if when else ''}"
    return (evidence(f"none of them before {at}: something began there", told),)


def _title(shape: SeriesShape, told: Told, worst: Stall, share: float) -> str:
    num = len(shape.stalls)
    is_step = (told.steps_per_value or 1) == 1 and told.kind is SeriesKind.TIME
    place = step_words(shape, worst.index)
    if told.kind is SeriesKind.RATE:
        dip = f"{100 / worst.factor:.0f} % of the usual throughput"
        one, many, most = f"one value at {dip}", f"{num} single low values", f"one at {dip}"
    else:
        unit = "step" if is_step else "value"
        one = f"one {unit} took {longer_words(worst.factor)} usual"
        many = f"{num} single slow {unit}s"
        most = f"one {longer_words(worst.factor)} usual"
    if num == 1:
        return with_time(f"{one}, {place}", when_words(shape, worst.index, told))
    if share >= WARN_COST:
        return f"{many} cost {share_words(share)} of the time, {most}"[:MAX_TITLE]
    return f"{many}, {most}, {place}"[:MAX_TITLE]


def _named(stalls: Sequence[Stall]) -> list[Stall]:
    worst = sorted(stalls, key=lambda each: -each.lost)[:MAX_NAMED]
    return sorted(worst, key=lambda each: each.index)


def _evidence(shape: SeriesShape, told: Told, stall: Stall) -> Evidence:
    when = when_words(shape, stall.index, told)
    run = f", {stall.num_values} values in a row" if stall.num_values > 1 else ""
    return evidence(
        f"{step_words(shape, stall.index)}{f' ({when})' if when else ''}: {value_words(stall.longest, told)}, usually "
        f"{value_words(stall.usual, told)}{run}",
        told,
        value=round(stall.factor, 2),
        unit="times the usual time",
    )


def _lost(shape: SeriesShape, told: Told, share: float) -> str:
    if told.kind is SeriesKind.RATE or told.unit != "ms":
        return f"they cost {share_words(share)} of the time"
    lost_s = sum(each.lost for each in shape.stalls) * (told.steps_per_value or 1) / 1e3
    return f"they cost {format_seconds(lost_s)}, {share_words(share)} of the time"


def _gaps(shape: SeriesShape) -> str:
    num = sum(_after_gap(shape, each) for each in shape.stalls)
    return f"{num} right after a gap in the log: a restart or a pause" if num else ""


def _after_gap(shape: SeriesShape, stall: Stall) -> bool:
    goes_back = stall.index > 0 and shape.steps[stall.index] <= shape.steps[stall.index - 1]
    return bool(goes_back) or shape.missing_before(stall.index) is not None


def _hidden(shape: SeriesShape, told: Told) -> str:
    if shape.is_averaged:
        return "values look like a running mean, which hides single stalls"
    if (told.steps_per_value or 1) > 1:
        return f"each value is the mean of {told.steps_per_value} steps, so a stall looks {told.steps_per_value} times smaller"
    return ""

"""Is one rank slow now and then, more often than its peers? In which rhythm, and by what?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.report.model import Confidence, Evidence, Scope, Severity
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.causes import Cause, explain_suspect
from distdoctor.straggler.analysis.ranks.judgement import Gate, Pattern, Suspect
from distdoctor.straggler.checks.base import Found, Outcome, Passed, StragglerCheck, not_seen
from distdoctor.straggler.checks.cause_words import FAULTS, actions_for, why
from distdoctor.straggler.checks.own_work import is_own_work_of_first_rank
from distdoctor.straggler.checks.slow_rank import CRITICAL_COST, confidence_of, evidence_of
from distdoctor.straggler.checks.unjudged import why_not_judged, why_silence_says_nothing
from distdoctor.straggler.words import gpu_of, ms, percent, place_words, utc_of, when

MAX_SINGLE = 8


def check_intermittent(facts: Analysed) -> Sequence[Outcome]:
    """A finding for each rank with more slow steps than chance gives any."""
    if not facts.judged:
        reason, how = why_not_judged(facts)
        return [not_seen(reason, how=how)]
    outcomes: list[Outcome] = []
    for judged in facts.judged:
        found = [
            _found(judged, each)
            for each in judged.judgement.suspects
            if each.pattern is Pattern.INTERMITTENT
            and set(each.failed) <= {Gate.SHARE}
            and not is_own_work_of_first_rank(each)
        ]
        outcomes += found[:MAX_SINGLE] or [_nothing(judged)]
    return outcomes


def _nothing(judged: Judged) -> Outcome:
    reason = why_silence_says_nothing(judged)
    if reason is not None:
        return not_seen(reason[0], how=reason[1])
    return Passed(detail="no rank has more slow steps than the others")


def _found(judged: Judged, suspect: Suspect) -> Found:
    explained = explain_suspect(suspect)
    place = judged.timings.places[suspect.row]
    minor = not suspect.is_accused
    cost = judged.judgement.cost.alone.get(suspect.row) if judged.judgement.cost is not None else None
    rhythm = f"every {suspect.rhythm.period} {judged.unit}s" if suspect.rhythm is not None else "now and then"
    what = {
        Cause.DATA: "waits for its data loader",
        Cause.GC: "collects garbage",
        Cause.CHECKPOINT: "writes a checkpoint",
    }.get(explained.cause, "stalls")
    return Found(
        key=f"{judged.label}rank-{suspect.rank}",
        title=judged.titled(
            f"{'minor: ' if minor else ''}{place_words(place)} {what} {rhythm}, {ms(suspect.excess_ms)} each time"
        ),
        severity=_severity(minor=minor, cost=cost),
        confidence=Confidence.LOW if minor else confidence_of(judged, suspect),
        evidence=(*evidence_of(judged, suspect), *_where(judged, suspect)),
        explanation=f"{_rhythm_words(judged, suspect, explained.cause)}{why(explained.cause)}",
        actions=() if minor else actions_for(explained.cause, place),
        scope=Scope(ranks=(suspect.rank,), hosts=(place.host,) if place.host else (), gpus=gpu_of(place)),
        cause_class=f"intermittent:{explained.cause.value}",
        fault=FAULTS[explained.cause],
    )


def _severity(*, minor: bool, cost: float | None) -> Severity:
    if minor:
        return Severity.INFO
    return Severity.CRITICAL if cost is not None and cost >= CRITICAL_COST else Severity.WARNING


def _where(judged: Judged, suspect: Suspect) -> tuple[Evidence, ...]:
    steps = [int(judged.judgement.steps[column]) for column in suspect.burst_columns]
    if not steps:
        return ()
    shown = ", ".join(f"{step:,}" for step in steps[:8]) + (", …" if len(steps) > 8 else "")
    at = utc_of(judged, suspect.burst_columns[0])
    share = len(steps) / max(judged.judgement.num_steps, 1)
    text = f"{when(judged, suspect)}: {judged.unit}s {shown}, {percent(share)} of them"
    return (Evidence(text=text + (f"; the first at {at}" if at else ""), source=judged.source),)


def _rhythm_words(judged: Judged, suspect: Suspect, cause: Cause) -> str:
    if suspect.rhythm is None:
        return ""
    text = f"It comes every {suspect.rhythm.period} {judged.unit}s"
    if cause is Cause.DATA:
        return (
            f"{text}: a period equal to the number of loader workers means that one worker's batch is late. "
        )
    return f"{text}, so something is done on purpose at that interval, or something fills up. "


CHECK = StragglerCheck(
    id="straggler-intermittent",
    title="ranks that are slow now and then",
    run=check_intermittent,
)

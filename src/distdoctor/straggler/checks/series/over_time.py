"""Changes over time of the whole job: a new level, single stalls, a rhythm. They name no rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from distdoctor.report.checking import Found
from distdoctor.report.model import Severity
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.analysis.ranks.judgement import Pattern
from distdoctor.straggler.analysis.series.regimes import SeriesShape
from distdoctor.straggler.checks.base import NotApplicable, Outcome, Passed, StragglerCheck
from distdoctor.straggler.checks.series.periodic import periodic_outcomes
from distdoctor.straggler.checks.series.regime import regime_outcomes
from distdoctor.straggler.checks.series.stall import stall_outcomes
from distdoctor.straggler.checks.series.words import Told

_Look = Callable[[SeriesShape, Told], Sequence[Outcome]]


def _run(facts: Analysed, look: _Look, patterns: tuple[Pattern, ...]) -> Sequence[Outcome]:
    if not facts.series:
        return [NotApplicable(detail="no step time of the whole job in the evidence")]
    outcomes: list[Outcome] = []
    for each in facts.series:
        if each.of_ranks and _is_explained(facts, patterns):
            outcomes.append(Passed(detail="what changes over time is told with the rank that causes it"))
        else:
            outcomes += look(each.shape, each.told)
    return outcomes


def _is_explained(facts: Analysed, patterns: tuple[Pattern, ...]) -> bool:
    """A rank is accused whose slowness has this course over time: then all others wait for it."""
    return any(
        suspect.is_accused and suspect.pattern in patterns
        for judged in facts.judged
        for suspect in judged.judgement.suspects
    )


def check_regime(facts: Analysed) -> Sequence[Outcome]:
    """Changes of level and drift."""
    return _run(facts, regime_outcomes, (Pattern.SINCE, Pattern.UNTIL, Pattern.STRETCH))


def check_stall(facts: Analysed) -> Sequence[Outcome]:
    """Single slow steps; to know where somebody is accused, whom all wait for in every step."""
    outcomes = _run(facts, stall_outcomes, (Pattern.INTERMITTENT,))
    if not any(each.judgement.accused or each.judgement.hosts for each in facts.judged):
        return outcomes
    return [replace(each, severity=Severity.INFO) if isinstance(each, Found) else each for each in outcomes]


def check_periodic(facts: Analysed) -> Sequence[Outcome]:
    """Slow steps in a rhythm, alternating steps, planned schedules."""
    return _run(facts, periodic_outcomes, (Pattern.INTERMITTENT,))


REGIME = StragglerCheck(id="straggler-regime", title="changes of the whole job's speed", run=check_regime)
STALL = StragglerCheck(id="straggler-stall", title="single stalls of the whole job", run=check_stall)
PERIODIC = StragglerCheck(
    id="straggler-periodic", title="rhythms in the whole job's steps", run=check_periodic
)

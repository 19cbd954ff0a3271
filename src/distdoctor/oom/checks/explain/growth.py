"""Did memory grow from step to step before it was refused?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.causes.growth import trend_words
from distdoctor.oom.explain.devices import record_history
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import ON_HOST, MemoryKind
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_growth(facts: Explained) -> Sequence[Outcome]:
    """Critical where memory rose steadily over many steps; passed where the step lines show the same all along."""
    return outcomes(replace(_TOPIC, unread=_unread(facts)), facts)


def _unread(facts: Explained) -> str:
    for each in facts.judged:
        trend = each.event.memory_trend
        if trend is not None and trend.is_grown:
            return f"{trend.kind.value} rose {trend_words(trend)}, not steadily: batches of other lengths do that too"
        if trend is not None:
            return "only what PyTorch reserves is printed: it stays while what is in use grows"
    return "no step lines with memory stand before the message"


def _decides(judged: Judged) -> bool:
    trend = judged.event.memory_trend
    if trend is None or trend.is_grown:
        return False
    return trend.kind is not MemoryKind.RESERVED


def _passed(told: Sequence[Judged]) -> str:
    trend = told[0].event.memory_trend
    if trend is None:
        return "no growth"
    return f"{trend.kind.value} did not grow: {trend_words(trend)}"


def _explanation(judged: Judged) -> str:
    del judged
    return (
        "It fitted for many steps, and each left something behind. Usual reasons: a loss or metric kept with its graph "
        "(`total += loss`), outputs appended to a list, a cache without bound, a hook or closure that holds tensors, `retain_graph`. "
        "Sequences that grow over the run look the same."
    )


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    return (
        Action(
            team=Team.JOB_OWNER,
            text="find what is kept: two snapshots some steps apart, compared; then `.item()` or `.detach()` what is kept, and clear "
            "lists each step. A smaller batch only delays it",
            command=record_history(judged.event.family),
        ),
    )


_TOPIC = Topic(
    causes=(Cause.LEAK,),
    applies=lambda judged: judged.event.family not in ON_HOST,
    decides=_decides,
    passed=_passed,
    not_applicable="no message is about a GPU",
    unread="",
    how="print torch.cuda.memory_allocated() with every step, and give the log from the first step on",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-growth", title="memory that grows from step to step", run=check_growth)

"""Checks of `oom explain`: outcomes over events whose cause is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.evidence import numbers_of, phase_of, why_of
from distdoctor.oom.explain.imbalance import uneven_words
from distdoctor.oom.explain.judged import Explained, is_consequence
from distdoctor.oom.explain.words import CAUSE_WORDS, FAULT_OF, cause_title, scope_of
from distdoctor.report import checking
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, Confidence, Severity, SkipCause

__all__ = ["ExplainCheck", "Topic", "outcomes"]

ExplainCheck = checking.Check[Explained]

_ORDER = {Confidence.HIGH: 0, Confidence.MEDIUM: 1, Confidence.LOW: 2}


@dataclass(frozen=True, kw_only=True)
class Topic:
    """One question about events: which causes answer it with yes, and when it can be answered at all."""

    causes: tuple[Cause, ...]
    applies: Callable[[Judged], bool]
    """Whether an event could be of this kind."""
    decides: Callable[[Judged], bool]
    """Whether an event holds what it takes to say no."""
    passed: Callable[[Sequence[Judged]], str]
    """What was seen when the answer is no."""
    not_applicable: str
    unread: str
    how: str
    explanation: Callable[[Judged], str]
    actions: Callable[[Judged, Explained], tuple[Action, ...]]


def outcomes(topic: Topic, facts: Explained) -> Sequence[Outcome]:
    """One finding for each cause of the topic, over all ranks that show it; else passed, not applicable or not seen."""
    found: list[Outcome] = []
    for cause in topic.causes:
        group = [each for each in facts.of((cause,)) if not is_consequence(each, facts.facts)]
        if group:
            found.append(_finding(topic, cause, group, facts))
    if found:
        return found
    asked = [each for each in facts.judged if topic.applies(each)]
    if not asked:
        return [NotApplicable(detail=topic.not_applicable)]
    told = [each for each in asked if topic.decides(each)]
    if not told:
        unread = Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason=topic.unread, how=topic.how)
        return [NotSeen(unread=unread)]
    return [Passed(detail=topic.passed(told))]


def _finding(topic: Topic, cause: Cause, group: Sequence[Judged], facts: Explained) -> Found:
    ordered = sorted(group, key=lambda each: (_ORDER[each.confidence], each.event.order))
    lead = facts.lead if facts.lead is not None and facts.lead.cause is cause else ordered[0]
    ordered = [lead, *(each for each in ordered if each is not lead)]
    explanation = topic.explanation(lead)
    if lead.alternative is not None:
        explanation += f" It may also be {CAUSE_WORDS[lead.alternative]}: the message fits both."
    if uneven := uneven_words(lead, facts.facts):
        explanation += f" {uneven}"
    if all(each.event.went_on for each in ordered):
        explanation += (
            " The log shows the job at work after it: the error was caught, and what it cost is that step."
        )
    return Found(
        key=cause.value,
        title=cause_title(ordered),
        severity=Severity.WARNING if all(each.event.went_on for each in ordered) else Severity.CRITICAL,
        confidence=lead.confidence,
        evidence=(*numbers_of(ordered), why_of(lead), *phase_of(ordered)),
        explanation=explanation,
        actions=topic.actions(lead, facts),
        scope=scope_of([each.event for each in ordered]),
        cause_class=cause.value,
        fault=FAULT_OF[cause],
    )

"""Facts with the cause of every event: what the checks of `oom explain` look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from distdoctor.oom.explain.cause import Cause, Judged, judge
from distdoctor.oom.explain.causes.peers import with_peers
from distdoctor.oom.explain.imbalance import less_sure
from distdoctor.oom.facts.events import ON_HOST, ExplainFacts, Family, OomEvent
from distdoctor.report.model import Confidence

# Consequences rather than causes, when anything else is there.
_SECONDARY = frozenset((Cause.CORRUPT_SIZE, Cause.UNKNOWN))


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Every event judged, and the one that speaks for the failure."""

    facts: ExplainFacts
    judged: tuple[Judged, ...]
    lead: Judged | None

    def of(self, causes: Iterable[Cause]) -> tuple[Judged, ...]:
        """Events of these causes, in order."""
        wanted = frozenset(causes)
        return tuple(each for each in self.judged if each.cause in wanted)


def explained(facts: ExplainFacts) -> Explained:
    """Judge every event. The lead is the first to fail where the order is known, else the commonest cause's first."""
    judged = tuple(
        less_sure(each, facts) for each in with_peers([judge(event, facts) for event in facts.events])
    )
    return Explained(facts=facts, judged=judged, lead=_lead(judged, facts))


def is_consequence(judged: Judged, facts: ExplainFacts) -> bool:
    """A process that was killed with nothing said of memory, in a job where another rank ran out of GPU memory first:
    launchers end the others."""
    event = judged.event
    return event.family is Family.HOST_KILL and not event.is_certain_kill and bool(facts.on_gpu)


def _lead(judged: tuple[Judged, ...], facts: ExplainFacts) -> Judged | None:
    candidates = [
        each for each in judged if each.cause not in _SECONDARY and not is_consequence(each, facts)
    ] or list(judged)
    if not candidates:
        return None
    # What a job got over is not what ended it.
    candidates = [each for each in candidates if not each.event.went_on] or candidates
    first_ranks = {row.rank for row in facts.failures if row.is_first}
    for each in candidates:
        if each.event.rank is not None and each.event.rank in first_ranks and _tells(each):
            return each
    if facts.first_order_known:
        return next((each for each in candidates if _tells(each)), candidates[0])
    counts = Counter(each.cause for each in candidates)
    top = max(counts.values())
    return next(each for each in candidates if counts[each.cause] == top)


def _tells(judged: Judged) -> bool:
    """Whether an event says more than that something is wrong."""
    return (
        judged.confidence is not Confidence.LOW or has_numbers(judged.event) or judged.event.family in ON_HOST
    )


def has_numbers(event: OomEvent) -> bool:
    """Whether the message tells what was asked for and what the GPU held."""
    return event.requested_bytes is not None and event.total_bytes is not None

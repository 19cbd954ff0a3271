"""Why memory was refused, for one event: one cause, how sure, and the numbers that decide. The order of rules is the point."""

from __future__ import annotations

from distdoctor.oom.explain.causes.card import whose_memory
from distdoctor.oom.explain.causes.growth import grown
from distdoctor.oom.explain.causes.host import not_a_size, of_a_library, on_host
from distdoctor.oom.explain.causes.job import of_the_job
from distdoctor.oom.explain.causes.kinds import Cause, Judged
from distdoctor.oom.explain.causes.other_allocators import of_a_server, of_mps
from distdoctor.oom.explain.numbers import account_of
from distdoctor.oom.facts.events import ExplainFacts, OomEvent
from distdoctor.report.model import Confidence

__all__ = ["Cause", "Judged", "judge"]

_RULES = (not_a_size, on_host, of_a_library, of_mps, of_a_server, whose_memory, grown, of_the_job)


def judge(event: OomEvent, facts: ExplainFacts) -> Judged:
    """The cause of one event. Whose it is comes first: other people, limits and wrong sizes before the job itself."""
    account = account_of(event)
    for rule in _RULES:
        found = rule(event, account, facts.hints)
        if found is not None:
            cause, confidence, why, *alternative = found
            return Judged(
                event=event,
                account=account,
                cause=cause,
                confidence=confidence,
                why=why,
                alternative=alternative[0] if alternative else None,
            )
    return Judged(
        event=event,
        account=account,
        cause=Cause.UNKNOWN,
        confidence=Confidence.LOW,
        why="the message holds no sizes",
    )

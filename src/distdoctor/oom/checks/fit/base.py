"""Checks of a search: outcomes over `FitFacts`."""

from __future__ import annotations

from distdoctor.oom.checks.estimate.base import SOURCE, gib, peak_of_role
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.fit import gpu_words
from distdoctor.report import checking
from distdoctor.report.model import Evidence

FitCheck = checking.Check[FitFacts]

__all__ = ["SOURCE", "FitCheck", "card_words", "gib", "need_evidence"]


def card_words(facts: FitFacts) -> str:
    """`h100-80gb`; of a size alone `a GPU of 24.0 GiB`."""
    return gpu_words(facts.cluster.type) if facts.cluster is not None else "the GPU"


def need_evidence(facts: FitFacts) -> tuple[Evidence, ...]:
    """The worst rank's peak today, and the range of its need beside the room."""
    outcome = facts.outcome
    if outcome is None:
        return ()
    fit, room = outcome.start.fit, outcome.room
    others = f", {gib(room.held_by_others)} of it held by other processes" if room.held_by_others else ""
    return (
        *peak_of_role(outcome.start.estimate.worst),
        Evidence(
            text=f"needs {gib(fit.need_low)} to {gib(fit.need_high)} with context, NCCL and allocator slack",
            value=round(fit.need_low),
            unit="B",
            expected=f"at most {gib(room.usable)}",
            expected_source=f"capacity of {card_words(facts)}{others}",
            source=SOURCE,
        ),
    )

"""Checks of a benchmark: the outcomes of `report.checking` over `BenchFacts`."""

from __future__ import annotations

from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.report import checking
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import SkipCause

__all__ = ["BenchCheck", "Found", "NotApplicable", "NotSeen", "Outcome", "Passed", "not_seen"]

BenchCheck = checking.Check[BenchFacts]


def not_seen(facts: BenchFacts, reason: str, *, how: str | None = None, what: str = "") -> NotSeen:
    """The outcome for something that this run did not measure or this file does not hold."""
    cause = SkipCause.NOT_ASKED if facts.origin is Origin.MEASURED else SkipCause.NOT_IN_EVIDENCE
    return NotSeen(unread=Unread(cause=cause, reason=reason, how=how), what=what)

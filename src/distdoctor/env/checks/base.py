"""Checks of one process on one host: the outcomes of `report.checking` over `EnvFacts`."""

from __future__ import annotations

from collections.abc import Iterable

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Section, Unread
from distdoctor.report import checking
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Outcome, Passed, finding_of
from distdoctor.report.model import CheckResult, Finding, SkipCause, Skipped

__all__ = [
    "Check",
    "Found",
    "NotApplicable",
    "NotSeen",
    "Outcome",
    "Passed",
    "finding_of",
    "missing",
    "run_check",
    "run_checks",
]

Check = checking.Check[EnvFacts]


def missing(facts: EnvFacts, path: str, *, what: str = "") -> NotSeen:
    """The outcome for a fact that is None: `missing(facts, "process.shm_total_bytes")`.

    Takes the reason from beside the fact; a whole section that is absent was not asked for or is not in
    the evidence given.
    """
    section_name, _, field = path.partition(".")
    section = getattr(facts, section_name)
    if isinstance(section, Section) and field in section.unread:
        return NotSeen(unread=section.unread[field], what=what)
    if section_name in facts.unread:
        return NotSeen(unread=facts.unread[section_name], what=what)
    if facts.is_live:
        return NotSeen(
            unread=Unread(cause=SkipCause.NOT_ASKED, reason=f"{path} was not collected"), what=what
        )
    return NotSeen(
        unread=Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason=f"{facts.origin} does not show it"), what=what
    )


def run_check(check: Check, facts: EnvFacts) -> tuple[list[Finding], list[Skipped], CheckResult]:
    """Run one check over one process' facts; see `report.checking.run_check`."""
    return checking.run_check(check, facts, hosts=_hosts(facts), is_live=facts.is_live)


def run_checks(
    checks: Iterable[Check], facts: EnvFacts
) -> tuple[list[Finding], list[Skipped], list[CheckResult]]:
    """All findings, skips and one-liners of `checks` over one process' facts, in the tuple's order."""
    return checking.run_checks(checks, facts, hosts=_hosts(facts), is_live=facts.is_live)


def _hosts(facts: EnvFacts) -> tuple[str, ...]:
    return (facts.host_name,) if facts.host_name else ()

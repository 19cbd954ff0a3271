"""What a check is, in every room: a pure function from facts to outcomes, which become findings and skips."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec.structs import replace

from distdoctor.report.model import (
    Action,
    CheckResult,
    CheckState,
    Confidence,
    Evidence,
    Fault,
    Finding,
    Scope,
    Severity,
    SkipCause,
    Skipped,
)

WHOLE_SUBJECT = Scope()

FactsT = TypeVar("FactsT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Why a fact is None."""

    cause: SkipCause
    reason: str
    how: str | None = None
    """The command or step that would supply it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Looked at, and nothing wrong; `detail` says what was seen."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotApplicable:
    """The thing is known to be absent: no GPU here, no RDMA device here."""

    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSeen:
    """May exist, but could not be read."""

    unread: Unread
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Something wrong. The check's own id, severity and so on are filled in by `run_check`."""

    title: str
    evidence: tuple[Evidence, ...]
    explanation: str
    actions: tuple[Action, ...]
    severity: Severity
    confidence: Confidence = Confidence.HIGH
    key: str = ""
    """Distinguishes two findings of one check (a variable's name, a GPU's PCI address); never a host."""
    scope: Scope = WHOLE_SUBJECT
    cause_class: str | None = None
    fault: Fault = Fault.UNKNOWN


Outcome = Passed | NotApplicable | NotSeen | Found


@dataclass(frozen=True, kw_only=True)
class Check(Generic[FactsT]):
    """One topic, one file, one line in the tuple, one docs page (docs/checks/<id>.md)."""

    id: str
    title: str
    """What is looked at, as a noun phrase: "size of /dev/shm"."""
    run: Callable[[FactsT], Sequence[Outcome]]
    preflight: bool = False
    """May run in a prolog: no torch, no root, no CUDA context."""
    essential: bool = False
    """When it cannot be done on this machine the verdict is unknown rather than ok. Text may be about other things."""


def run_check(
    check: Check[FactsT], facts: FactsT, *, hosts: tuple[str, ...] = (), is_live: bool = True
) -> tuple[list[Finding], list[Skipped], CheckResult]:
    """Run one check; its outcomes as findings and skips, and its one line.

    A check that found something is `found` even if part of it was skipped; all skipped is `skipped`; some
    passed and some skipped is `passed` with the skips listed beside it. `hosts` are put on findings that name
    none; skips of evidence (not `is_live`) are never essential.
    """
    outcomes = check.run(facts)
    if not outcomes:
        raise AssertionError(f"check {check.id} returned no outcome")
    findings = [_on_hosts(finding_of(check.id, each), hosts) for each in outcomes if isinstance(each, Found)]
    skipped = [_skip(check, hosts, each, is_live=is_live) for each in outcomes if isinstance(each, NotSeen)]
    details = [each.detail for each in outcomes if isinstance(each, Passed | NotApplicable)]
    if findings:
        state, detail = CheckState.FOUND, findings[0].title
    elif any(isinstance(each, Passed) for each in outcomes):
        state, detail = CheckState.PASSED, "; ".join(details)
    elif skipped:
        state, detail = CheckState.SKIPPED, skipped[0].reason
    else:
        state, detail = CheckState.NOT_APPLICABLE, "; ".join(details)
    result = CheckResult(id=check.id, title=check.title, state=state, detail=detail, hosts=hosts)
    return findings, skipped, result


def run_checks(
    checks: Iterable[Check[FactsT]], facts: FactsT, *, hosts: tuple[str, ...] = (), is_live: bool = True
) -> tuple[list[Finding], list[Skipped], list[CheckResult]]:
    """All findings, skips and one-liners of `checks` over the facts, in the tuple's order."""
    findings: list[Finding] = []
    skips: list[Skipped] = []
    results: list[CheckResult] = []
    for check in checks:
        try:
            found, skipped, result = run_check(check, facts, hosts=hosts, is_live=is_live)
        except Exception as error:
            # Facts that nobody foresaw must not cost the other checks; what went wrong is told, not hidden.
            found, skipped, result = [], *_broken(check, hosts, error, is_live=is_live)
        findings += found
        skips += skipped
        results.append(result)
    return findings, skips, results


def finding_of(check_id: str, found: Found) -> Finding:
    """What a check found, as the report keeps it."""
    return Finding(
        id=check_id,
        severity=found.severity,
        confidence=found.confidence,
        title=found.title,
        fingerprint=f"{check_id}:{found.key}" if found.key else check_id,
        evidence=found.evidence,
        explanation=found.explanation,
        actions=found.actions,
        scope=found.scope,
        cause_class=found.cause_class,
        fault=found.fault,
    )


def _broken(
    check: Check[FactsT], hosts: tuple[str, ...], error: Exception, *, is_live: bool
) -> tuple[list[Skipped], CheckResult]:
    reason = f"a bug in this check: {type(error).__name__}: {error}"
    unread = Unread(cause=SkipCause.FAILED, reason=reason)
    skip = _skip(check, hosts, NotSeen(unread=unread), is_live=is_live)
    return [skip], CheckResult(
        id=check.id, title=check.title, state=CheckState.SKIPPED, detail=reason, hosts=hosts
    )


def _on_hosts(finding: Finding, hosts: tuple[str, ...]) -> Finding:
    """The finding with its hosts, unless the check named hosts itself."""
    if finding.scope.hosts or not hosts:
        return finding
    return replace(finding, scope=replace(finding.scope, hosts=hosts))


def _skip(check: Check[FactsT], hosts: tuple[str, ...], outcome: NotSeen, *, is_live: bool) -> Skipped:
    return Skipped(
        id=check.id,
        what=outcome.what or check.title,
        cause=outcome.unread.cause,
        reason=outcome.unread.reason,
        how=outcome.unread.how,
        hosts=hosts,
        essential=check.essential and is_live and outcome.unread.cause is not SkipCause.NOT_ASKED,
    )

"""What a check is: a pure function from the facts of one process on one host to outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Section, Unread
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

WHOLE_HOST = Scope()


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
    scope: Scope = WHOLE_HOST
    cause_class: str | None = None
    fault: Fault = Fault.UNKNOWN


Outcome = Passed | NotApplicable | NotSeen | Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One topic, one file, one line in the tuple, one docs page (docs/checks/<id>.md)."""

    id: str
    title: str
    """What is looked at, as a noun phrase: "size of /dev/shm"."""
    run: Callable[[EnvFacts], Sequence[Outcome]]
    preflight: bool = False
    """May run in a prolog: no torch, no root, no CUDA context."""
    essential: bool = False
    """When it cannot be done on this machine the verdict is unknown rather than ok. Text may be about other things."""


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
    """Run one check; its outcomes as findings and skips, and its one line.

    A check that found something is `found` even if part of it was skipped; all skipped is `skipped`; some
    passed and some skipped is `passed` with the skips listed beside it.
    """
    outcomes = check.run(facts)
    if not outcomes:
        raise AssertionError(f"check {check.id} returned no outcome")
    hosts = (facts.host_name,) if facts.host_name else ()
    findings = [_on_host(finding_of(check.id, each), hosts) for each in outcomes if isinstance(each, Found)]
    skipped = [_skip(check, facts, hosts, each) for each in outcomes if isinstance(each, NotSeen)]
    details = [each.detail for each in outcomes if isinstance(each, Passed | NotApplicable)]
    if findings:
        state, detail = CheckState.FOUND, findings[0].title
    elif any(isinstance(each, Passed) for each in outcomes):
        state, detail = CheckState.PASSED, "; ".join(details)
    elif skipped:
        state, detail = CheckState.SKIPPED, skipped[0].reason
    else:
        state, detail = CheckState.NOT_APPLICABLE, "; ".join(details)
    return (
        findings,
        skipped,
        CheckResult(id=check.id, title=check.title, state=state, detail=detail, hosts=hosts),
    )


def run_checks(
    checks: Iterable[Check], facts: EnvFacts
) -> tuple[list[Finding], list[Skipped], list[CheckResult]]:
    """All findings, skips and one-liners of `checks` over one process' facts, in the tuple's order."""
    findings: list[Finding] = []
    skips: list[Skipped] = []
    results: list[CheckResult] = []
    for check in checks:
        try:
            found, skipped, result = run_check(check, facts)
        except Exception as error:
            # Facts that nobody foresaw must not cost the other checks; what went wrong is told, not hidden.
            found, skipped, result = [], *_broken(check, facts, error)
        findings += found
        skips += skipped
        results.append(result)
    return findings, skips, results


def _broken(check: Check, facts: EnvFacts, error: Exception) -> tuple[list[Skipped], CheckResult]:
    hosts = (facts.host_name,) if facts.host_name else ()
    reason = f"a bug in this check: {type(error).__name__}: {error}"
    skip = _skip(check, facts, hosts, NotSeen(unread=Unread(cause=SkipCause.FAILED, reason=reason)))
    return [skip], CheckResult(
        id=check.id, title=check.title, state=CheckState.SKIPPED, detail=reason, hosts=hosts
    )


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


def _on_host(finding: Finding, hosts: tuple[str, ...]) -> Finding:
    """The finding with its host, unless the check named hosts itself."""
    if finding.scope.hosts or not hosts:
        return finding
    return replace(finding, scope=replace(finding.scope, hosts=hosts))


def _skip(check: Check, facts: EnvFacts, hosts: tuple[str, ...], outcome: NotSeen) -> Skipped:
    return Skipped(
        id=check.id,
        what=outcome.what or check.title,
        cause=outcome.unread.cause,
        reason=outcome.unread.reason,
        how=outcome.unread.how,
        hosts=hosts,
        essential=check.essential and facts.is_live and outcome.unread.cause is not SkipCause.NOT_ASKED,
    )

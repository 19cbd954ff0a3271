"""From outcomes to a report: equal findings of several hosts become one, and the verdict follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from distdoctor import __version__
from distdoctor.report.model import (
    CheckResult,
    CheckState,
    Confidence,
    Fact,
    Fault,
    Finding,
    InputFile,
    MissingEvidence,
    Report,
    Scope,
    Severity,
    Skipped,
    Status,
    Subject,
    Table,
    Tool,
    Verdict,
)

_SEVERITY_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
_CONFIDENCE_ORDER = {Confidence.HIGH: 0, Confidence.MEDIUM: 1, Confidence.LOW: 2}
_STATE_ORDER = {
    CheckState.FOUND: 0,
    CheckState.PASSED: 1,
    CheckState.SKIPPED: 2,
    CheckState.NOT_APPLICABLE: 3,
}

MAX_TITLE = 80


def clip_title(title: str) -> str:
    """`title` in at most MAX_TITLE characters; what is longer ends behind a whole word, with a mark."""
    if len(title) <= MAX_TITLE:
        return title
    head = title[: MAX_TITLE - 1]
    return f"{head.rsplit(' ', 1)[0] if title[MAX_TITLE - 1] != ' ' else head}…"


def rank_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Worst and surest first; equal ones in the order given. Ignored findings come last."""
    return tuple(
        sorted(
            findings,
            key=lambda each: (
                each.ignored is not None,
                _SEVERITY_ORDER[each.severity],
                _CONFIDENCE_ORDER[each.confidence],
            ),
        )
    )


def fold_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings of one fingerprint, severity and confidence as one, its scope the union; worst first.

    Evidence of the first is kept; lines of the others that differ are added up to eight, so that the
    report shows numbers of several hosts without growing with their number.
    """
    folded: dict[tuple[str, Severity, Confidence], Finding] = {}
    for each in findings:
        key = (each.fingerprint, each.severity, each.confidence)
        folded[key] = _join(folded[key], each) if key in folded else each
    return rank_findings(folded.values())


def fold_checks(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """One line per check: the worst state of all hosts, and whose it is."""
    by_id: dict[str, list[CheckResult]] = {}
    for each in results:
        by_id.setdefault(each.id, []).append(each)
    return tuple(_fold_check(group) for group in by_id.values())


def fold_skips(skips: Iterable[Skipped]) -> tuple[Skipped, ...]:
    """Skips of one check with one reason as one, its hosts the union."""
    folded: dict[tuple[str, str, str], Skipped] = {}
    for each in skips:
        key = (each.id, each.what, each.reason)
        first = folded.get(key)
        folded[key] = _with_hosts(first, each) if first is not None else each
    return tuple(folded.values())


def status_of(
    findings: Iterable[Finding], skipped: Iterable[Skipped], subject: Subject, *, answered: bool = True
) -> Status:
    """Status of the worst finding; else unknown when something essential is missing; else ok."""
    severities = {each.severity for each in findings if each.ignored is None}
    if Severity.CRITICAL in severities:
        return Status.CRITICAL
    if Severity.WARNING in severities:
        return Status.WARNING
    absent = subject.missing_ranks or subject.missing_hosts
    if not answered or absent or any(each.essential for each in skipped):
        return Status.UNKNOWN
    return Status.OK


def coverage(checks: Sequence[CheckResult]) -> str:
    """How much was seen: "21 of 33 checks" done, those that do not apply here left out of both numbers."""
    done = sum(each.state in (CheckState.FOUND, CheckState.PASSED) for each in checks)
    skipped = sum(each.state is CheckState.SKIPPED for each in checks)
    return f"{done} of {done + skipped} checks"


def make_verdict(
    findings: Sequence[Finding],
    checks: Sequence[CheckResult],
    skipped: Sequence[Skipped],
    subject: Subject,
    *,
    about: str,
    answered: bool = True,
) -> Verdict:
    """The verdict of a command that is a list of checks. `about`: "this host", "8 ranks on 2 hosts"."""
    status = status_of(findings, skipped, subject, answered=answered)
    counted = [each for each in findings if each.ignored is None]
    serious = [each for each in counted if each.severity is not Severity.INFO]
    seen = coverage(checks)
    unseen = _unseen(skipped)
    missing = _missing(subject)
    if serious:
        worst = serious[0]
        others = len(serious) - 1
        summary = " ".join(
            part
            for part in (
                f"{about}.",
                worst.explanation,
                f"{others} more finding{'s' if others > 1 else ''} below." if others else "",
                missing,
            )
            if part
        )
        return Verdict(
            status=status,
            title=worst.title[:MAX_TITLE],
            summary=summary,
            confidence=worst.confidence,
            cause_class=worst.cause_class,
            fault=worst.fault,
        )
    notes = f" {len(counted)} note{'s' if len(counted) > 1 else ''} below." if counted else ""
    if status is Status.UNKNOWN:
        essential = [each for each in skipped if each.essential]
        reason = missing or (f"not seen: {essential[0].what} ({essential[0].reason})" if essential else "")
        title = _unknown_title(subject, essential)
        return Verdict(
            status=status,
            title=title[:MAX_TITLE],
            summary=f"{_sentence(reason)} No fault found in {seen}{unseen}.{notes}".lstrip(),
            confidence=Confidence.HIGH,
        )
    title = f"no fault found in {seen}{unseen}"
    return Verdict(
        status=status,
        title=title if len(title) <= MAX_TITLE else f"no fault found in {seen}",
        summary=f"{about}: nothing that stops or hurts a job was found.{notes}",
        confidence=Confidence.MEDIUM if unseen else Confidence.HIGH,
        fault=Fault.UNKNOWN,
    )


def build_report(
    *,
    command: str,
    argv: Sequence[str],
    about: str,
    findings: Iterable[Finding],
    checks: Iterable[CheckResult],
    skipped: Iterable[Skipped],
    subject: Subject,
    facts: Sequence[Fact] = (),
    tables: Sequence[Table] = (),
    inputs: Sequence[InputFile] = (),
    missing_evidence: Sequence[MissingEvidence] = (),
    timings: dict[str, float] | None = None,
    started: datetime | None = None,
    answered: bool = True,
) -> Report:
    """The report of a command that is a list of checks over one or many hosts."""
    now = datetime.now(timezone.utc)
    began = started or now
    folded = fold_findings(findings)
    results = fold_checks(checks)
    skips = fold_skips(skipped)
    return Report(
        tool=Tool(name="distdoctor", version=__version__, command=command, argv=tuple(argv)),
        verdict=make_verdict(folded, results, skips, subject, about=about, answered=answered),
        subject=subject,
        started_utc=began.strftime("%Y-%m-%dT%H:%M:%SZ"),
        duration_s=round((now - began).total_seconds(), 3),
        findings=folded,
        checks=results,
        skipped=skips,
        missing_evidence=tuple(missing_evidence),
        facts=tuple(facts),
        tables=tuple(tables),
        inputs=tuple(inputs),
        timings=timings or {},
    )


def _join(first: Finding, second: Finding) -> Finding:
    known = {each.text for each in first.evidence}
    extra = tuple(each for each in second.evidence if each.text not in known)
    scope = Scope(
        ranks=tuple(sorted({*first.scope.ranks, *second.scope.ranks})),
        hosts=_union(first.scope.hosts, second.scope.hosts),
        gpus=_union(first.scope.gpus, second.scope.gpus),
        links=_union(first.scope.links, second.scope.links),
    )
    kept = max(len(first.evidence), 8)
    return Finding(
        id=first.id,
        severity=first.severity,
        confidence=first.confidence,
        title=first.title,
        fingerprint=first.fingerprint,
        evidence=(*first.evidence, *extra)[:kept],
        explanation=first.explanation,
        actions=first.actions,
        scope=scope,
        cause_class=first.cause_class,
        fault=first.fault,
        ignored=first.ignored,
    )


def _union(first: tuple, second: tuple) -> tuple:  # type: ignore[type-arg]  # any one kind of scope entry
    return tuple(dict.fromkeys((*first, *second)))


def _fold_check(group: list[CheckResult]) -> CheckResult:
    worst = min(group, key=lambda each: _STATE_ORDER[each.state])
    same = [each for each in group if each.state is worst.state]
    hosts = tuple(dict.fromkeys(host for each in same for host in each.hosts))
    return CheckResult(id=worst.id, title=worst.title, state=worst.state, detail=worst.detail, hosts=hosts)


def _with_hosts(first: Skipped, second: Skipped) -> Skipped:
    return Skipped(
        id=first.id,
        what=first.what,
        cause=first.cause,
        reason=first.reason,
        how=first.how or second.how,
        hosts=_union(first.hosts, second.hosts),
        essential=first.essential or second.essential,
    )


def _unseen(skipped: Sequence[Skipped]) -> str:
    """ "; kernel log and 3 others not seen", or nothing."""
    names = list(dict.fromkeys(each.what for each in skipped))
    if not names:
        return ""
    if len(names) == 1:
        return f"; {names[0]} not seen"
    others = len(names) - 1
    return f"; {names[0]} and {others} other{'s' if others > 1 else ''} not seen"


def _missing(subject: Subject) -> str:
    parts = []
    if subject.missing_ranks:
        ranks = ", ".join(str(rank) for rank in subject.missing_ranks[:16])
        more = len(subject.missing_ranks) - 16
        parts.append(f"rank{'s' if len(subject.missing_ranks) > 1 else ''} {ranks}")
        if more > 0:
            parts[-1] += f" and {more} more"
    if subject.missing_hosts:
        parts.append(
            f"host{'s' if len(subject.missing_hosts) > 1 else ''} {', '.join(subject.missing_hosts[:8])}"
        )
    return f"No report from {' and '.join(parts)}." if parts else ""


def _unknown_title(subject: Subject, essential: Sequence[Skipped]) -> str:
    missing = _missing(subject)
    if missing:
        return "cannot tell: " + missing[0].lower() + missing[1:-1]
    if essential:
        return f"cannot tell: {essential[0].what} not seen"
    return "cannot tell: the evidence does not decide"


def _sentence(text: str) -> str:
    if not text:
        return ""
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", ":")) else text + "."

"""What the checks find in all snapshots of an incident, folded: equal findings of many ranks are one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.oom.checks.snapshot.all import SNAPSHOT_CHECKS
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.checking import run_checks
from distdoctor.report.model import CheckResult, CheckState, Evidence, Finding, Scope, Severity, Skipped

# Ranks beyond the first that are shown with their own line.
MAX_OTHERS = 4

_WORST = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_STATES = (CheckState.FOUND, CheckState.PASSED, CheckState.SKIPPED, CheckState.NOT_APPLICABLE)


def first_failure_first(views: Sequence[SnapshotView]) -> tuple[SnapshotView, ...]:
    """The views by the time of their failure; those without one or without times after them, as given."""

    def order(view: SnapshotView) -> tuple[int, int]:
        oom = view.moment.oom
        if oom is None:
            return 2, 0
        return (1, 0) if oom.time_us is None else (0, oom.time_us)

    return tuple(sorted(views, key=order))


def snapshot_findings(
    views: Sequence[SnapshotView],
) -> tuple[tuple[Finding, ...], tuple[Skipped, ...], tuple[CheckResult, ...]]:
    """Findings, skips and one line for each check, over all views; the rank that failed first leads."""
    findings: list[Finding] = []
    skips: list[Skipped] = []
    results: list[CheckResult] = []
    for view in first_failure_first(views):
        found, skipped, done = run_checks(SNAPSHOT_CHECKS, view, is_live=False)
        findings += found
        skips += skipped
        results += done
    return _folded(findings), _folded_skips(skips), _folded_results(results)


def _folded(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    groups: dict[str, list[Finding]] = {}
    for each in findings:
        groups.setdefault(each.fingerprint, []).append(each)
    folded = [_one(group) for group in groups.values()]
    return tuple(sorted(folded, key=lambda each: _WORST.index(each.severity)))


def _one(group: Sequence[Finding]) -> Finding:
    """The first of the worst, with the scope of all and a line for some of the others."""
    worst = min(_WORST.index(each.severity) for each in group)
    lead = next(each for each in group if _WORST.index(each.severity) == worst)
    others = [each for each in group if each is not lead]
    if not others:
        return lead
    lines = [Evidence(text=f"also: {each.title}") for each in others[:MAX_OTHERS]]
    if len(others) > MAX_OTHERS:
        lines.append(Evidence(text=f"and {len(others) - MAX_OTHERS} more like it"))
    scope = Scope(
        ranks=tuple(sorted({rank for each in group for rank in each.scope.ranks})),
        hosts=tuple(dict.fromkeys(host for each in group for host in each.scope.hosts)),
    )
    return replace(lead, evidence=(*lead.evidence, *lines), scope=scope)


def _folded_skips(skips: Sequence[Skipped]) -> tuple[Skipped, ...]:
    return tuple({(each.id, each.reason): each for each in reversed(skips)}.values())[::-1]


def _folded_results(results: Sequence[CheckResult]) -> tuple[CheckResult, ...]:
    best: dict[str, CheckResult] = {}
    for each in results:
        known = best.get(each.id)
        if known is None or _STATES.index(each.state) < _STATES.index(known.state):
            best[each.id] = each
    return tuple(best.values())

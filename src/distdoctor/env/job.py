"""A job's ranks together: the checks of each, folded, then the checks across them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from distdoctor.env.checks.base import Check, Found, Outcome, Passed, finding_of, run_checks
from distdoctor.env.checks.job import JOB_CHECKS, JobCheck, fold_holders, job_differences, shown_value
from distdoctor.env.members import Member, share_host_sections
from distdoctor.report.assemble import fold_findings
from distdoctor.report.differences import Difference
from distdoctor.report.model import CheckResult, CheckState, Column, Finding, Scalar, Skipped, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What the checks said over all members."""

    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    checks: tuple[CheckResult, ...]
    tables: tuple[Table, ...]


def check_job(members: Sequence[Member], checks: Iterable[Check]) -> JobOutcome:
    """Checks of every member, each finding with the ranks that have it, then the checks across members."""
    checks = tuple(checks)
    shared = share_host_sections(members)
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    results: list[CheckResult] = []
    for member in shared:
        found, skips, lines = run_checks(checks, member.facts)
        findings += [_with_rank(each, member.rank) for each in found]
        skipped += skips
        results += lines
    tables: tuple[Table, ...] = ()
    if len(shared) > 1:
        differences = job_differences(shared)
        tables = _difference_table(differences)
        for check in JOB_CHECKS:
            outcomes = check.run(shared, differences)
            findings += [finding_of(check.id, each) for each in outcomes if isinstance(each, Found)]
            results.append(_result(check, outcomes))
    everybody = {member.rank for member in shared if member.rank is not None}
    return JobOutcome(
        findings=tuple(_without_all_ranks(each, everybody) for each in fold_findings(findings)),
        skipped=tuple(skipped),
        checks=tuple(results),
        tables=tables,
    )


def _with_rank(finding: Finding, rank: int | None) -> Finding:
    if rank is None or finding.scope.ranks:
        return finding
    return replace(finding, scope=replace(finding.scope, ranks=(rank,)))


def _without_all_ranks(finding: Finding, everybody: set[int]) -> Finding:
    """A finding that every rank has names no rank; hosts stay, for they are where one goes to look."""
    if len(everybody) > 1 and set(finding.scope.ranks) == everybody:
        return replace(finding, scope=replace(finding.scope, ranks=()))
    return finding


def _result(check: JobCheck, outcomes: Sequence[Outcome]) -> CheckResult:
    found = [each for each in outcomes if isinstance(each, Found)]
    if found:
        return CheckResult(id=check.id, title=check.title, state=CheckState.FOUND, detail=found[0].title)
    detail = "; ".join(each.detail for each in outcomes if isinstance(each, Passed))
    return CheckResult(id=check.id, title=check.title, state=CheckState.PASSED, detail=detail)


def _difference_table(differences: Sequence[Difference]) -> tuple[Table, ...]:
    if not differences:
        return ()
    rows: list[tuple[Scalar, ...]] = [
        (each.key, fold_holders(holders), shown_value(value), each.relevance.consequence)
        for each in differences
        for value, holders in each.groups
    ]
    return (
        Table(
            name="differences",
            title="What differs between ranks and hosts, most relevant first",
            columns=(
                Column(name="fact"),
                Column(name="who"),
                Column(name="value"),
                Column(name="what it does"),
            ),
            rows=tuple(rows),
        ),
    )

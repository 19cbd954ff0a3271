"""The report of a comparison: what differs, most relevant first, and what could not be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from msgspec.structs import replace as replace_struct

from distdoctor.report.assemble import build_report
from distdoctor.report.compare import FINDING_WEIGHT, Holder, compare_holders, holders_of, unique_names
from distdoctor.report.differences import Relevance
from distdoctor.report.merge import merge_subjects
from distdoctor.report.model import (
    CheckResult,
    CheckState,
    Finding,
    InputFile,
    Report,
    Severity,
    Skipped,
    Table,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One report and what to call it when it does not name its host."""

    label: str
    report: Report


def holders_of_sides(sides: Sequence[Side]) -> list[Holder]:
    """All hosts of all sides, each with a name of its own."""
    holders: list[Holder] = []
    for side in sides:
        hosts = side.report.subject.hosts
        holders += holders_of(side.report, hosts[0] if len(hosts) == 1 else side.label)
    names = unique_names([holder.name for holder in holders])
    if len({holder.name for holder in holders}) < len(holders) and len(holders) == len(sides):
        names = _distinct_labels(sides, names)
    return [replace(holder, name=name) for holder, name in zip(holders, names, strict=True)]


def compare_report(
    sides: Sequence[Side],
    relevance: Callable[[str], Relevance | None],
    *,
    argv: Sequence[str] = (),
    inputs: Sequence[InputFile] = (),
    started: datetime | None = None,
    measured: tuple[Sequence[Finding], Sequence[CheckResult], Sequence[Skipped]] = ((), (), ()),
) -> Report:
    """What differs between the hosts of all sides. At least two are needed; the caller sees to it.

    `measured`: what comparing their measurements gave, which are no facts that are equal or not.
    """
    holders = holders_of_sides(sides)
    differences, tables = compare_holders(holders, relevance)
    findings = (*measured[0], *differences)
    about = f"{len(holders)} compared: {_listed([holder.name for holder in holders])}"
    report = build_report(
        command="compare",
        argv=argv,
        about=about,
        findings=findings,
        checks=[_check(holders, tables), *measured[1]],
        skipped=measured[2],
        subject=replace_struct(
            merge_subjects([side.report.subject for side in sides]), missing_ranks=(), missing_hosts=()
        ),
        tables=tables,
        inputs=inputs,
        started=started,
        answered=len(holders) > 1 and all(each.read for each in inputs),
    )
    # Findings come most relevant first; severity alone would put a noisy warning before the cause.
    ordered = replace_struct(report, findings=findings)
    return replace_struct(ordered, verdict=_verdict(report.verdict, findings, tables, about))


def _verdict(verdict: Verdict, findings: Sequence[Finding], tables: Sequence[Table], about: str) -> Verdict:
    count = len({row[0] for table in tables for row in table.rows})
    if not findings:
        told = f"{count} small differences" if count else "no difference"
        title = f"{told} that matters" if not count else told
        return replace_struct(verdict, title=title, summary=f"{about}. {title[:1].upper()}{title[1:]}.")
    first = findings[0]
    serious = sum(each.severity is not Severity.INFO for each in findings)
    rest = f" {count} differences in all, {serious} of them serious." if count > 1 else ""
    return replace_struct(
        verdict,
        title=first.title,
        summary=f"{about}. First: {first.title}. {first.explanation}{rest}",
        confidence=first.confidence,
        cause_class=first.cause_class,
        fault=first.fault,
    )


def _check(holders: Sequence[Holder], tables: Sequence[Table]) -> CheckResult:
    num_keys = len({key for holder in holders for key in holder.facts})
    return CheckResult(
        id="compare-differs",
        title=f"{num_keys} facts of {len(holders)} sides (differences of weight {FINDING_WEIGHT} and more are findings)",
        state=CheckState.FOUND if tables else CheckState.PASSED,
        detail="",
    )


def _distinct_labels(sides: Sequence[Side], names: Sequence[str]) -> list[str]:
    """Two reports of one host are told apart by when they were taken, else by their files."""
    stamps = [side.report.started_utc for side in sides]
    if all(stamps) and len(set(stamps)) == len(stamps):
        return [f"{name.partition(' (')[0]} at {stamp}" for name, stamp in zip(names, stamps, strict=True)]
    labels = [side.label for side in sides]
    return labels if len(set(labels)) == len(labels) else list(names)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6])
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"

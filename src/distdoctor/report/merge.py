"""One incident report of several: one verdict, all findings, and where the parts contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from distdoctor import __version__
from distdoctor.report.assemble import fold_checks, fold_findings, fold_skips
from distdoctor.report.model import (
    Column,
    Confidence,
    MissingEvidence,
    Report,
    Scalar,
    Status,
    Subject,
    Table,
    Tool,
    Verdict,
)

T = TypeVar("T")

_STATUS_ORDER = {Status.CRITICAL: 0, Status.WARNING: 1, Status.UNKNOWN: 2, Status.OK: 3}
_CONFIDENCE_ORDER = {Confidence.HIGH: 0, Confidence.MEDIUM: 1, Confidence.LOW: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedReport:
    """A report and the file that it came from."""

    label: str
    report: Report


def merge_reports(parts: Sequence[NamedReport]) -> Report:
    """One report of `parts` (at least one), its verdict that of the worst and surest part.

    A part that could not answer keeps the merged verdict from being ok. Contradictions are shown, not
    resolved: two serious parts that put the fault in different places, and a part that found nothing
    where another found something on the same hosts.
    """
    reports = [part.report for part in parts]
    leading = min(parts, key=lambda part: _weight(part.report))
    contradictions = find_contradictions(parts)
    return Report(
        tool=Tool(name="distdoctor", version=__version__, command="report merge"),
        verdict=_verdict(leading, parts, contradictions),
        subject=merge_subjects([report.subject for report in reports]),
        started_utc=min((report.started_utc for report in reports if report.started_utc), default=""),
        culprits=_all([report.culprits for report in reports]),
        since=leading.report.since,
        impact=leading.report.impact,
        drain=_all([report.drain for report in reports]),
        timeline=tuple(
            sorted(
                _all([report.timeline for report in reports]),
                key=lambda event: (event.utc is None, event.utc or ""),
            )
        )[:20],
        findings=fold_findings(_all([report.findings for report in reports])),
        checks=fold_checks(_all([report.checks for report in reports])),
        skipped=fold_skips(_all([report.skipped for report in reports])),
        ruled_out=_all([report.ruled_out for report in reports]),
        missing_evidence=(
            *(MissingEvidence(what="a decision between the parts", why=text) for text in contradictions),
            *_all([report.missing_evidence for report in reports]),
        ),
        facts=_all([report.facts for report in reports]),
        # Right below the verdict stands the overview alone.
        tables=(_overview(parts), *(_in_body(each) for each in _all([report.tables for report in reports]))),
        series=_all([report.series for report in reports]),
        inputs=_all([report.inputs for report in reports]),
    )


def _in_body(table: Table) -> Table:
    return replace(table, place="body") if table.place == "first" else table


def find_contradictions(parts: Sequence[NamedReport]) -> list[str]:
    """Sentences about parts that cannot both be right."""
    found = []
    serious = [part for part in parts if part.report.verdict.status in (Status.CRITICAL, Status.WARNING)]
    for index, first in enumerate(serious):
        for second in serious[index + 1 :]:
            a, b = first.report.verdict, second.report.verdict
            if a.status is b.status is Status.CRITICAL and a.fault is not b.fault:
                found.append(
                    f"{first.label} puts it on {a.fault.value} ({a.title}), "
                    f"{second.label} on {b.fault.value} ({b.title})"
                )
    for part in parts:
        if part.report.verdict.status is not Status.OK:
            continue
        for other in serious:
            same_command = other.report.tool.command == part.report.tool.command
            if same_command and set(other.report.subject.hosts) & set(part.report.subject.hosts):
                found.append(
                    f"{part.label} found no fault where {other.label} found: {other.report.verdict.title}"
                )
    return found


def merge_subjects(subjects: Sequence[Subject]) -> Subject:
    """What is known by any of them; where single values differ, the first known."""
    return Subject(
        hosts=_all([subject.hosts for subject in subjects]),
        world_size=_first([subject.world_size for subject in subjects]),
        scheduler=_first([subject.scheduler for subject in subjects]),
        job_id=_first([subject.job_id for subject in subjects]),
        job_name=_first([subject.job_name for subject in subjects]),
        image=_first([subject.image for subject in subjects]),
        restart_count=_first([subject.restart_count for subject in subjects]),
        gpu_models=_all([subject.gpu_models for subject in subjects]),
        num_gpus=_first([subject.num_gpus for subject in subjects]),
        nic_models=_all([subject.nic_models for subject in subjects]),
        torch=_first([subject.torch for subject in subjects]),
        nccl=_first([subject.nccl for subject in subjects]),
        cuda=_first([subject.cuda for subject in subjects]),
        driver=_first([subject.driver for subject in subjects]),
        missing_ranks=_all([subject.missing_ranks for subject in subjects]),
        missing_hosts=_all([subject.missing_hosts for subject in subjects]),
    )


def _weight(report: Report) -> tuple[int, int]:
    return _STATUS_ORDER[report.verdict.status], _CONFIDENCE_ORDER[report.verdict.confidence]


def _verdict(leading: NamedReport, parts: Sequence[NamedReport], contradictions: Sequence[str]) -> Verdict:
    verdict = leading.report.verdict
    count = len(parts)
    notes = (
        f" The parts contradict each other in {len(contradictions)} place(s), see below."
        if contradictions
        else ""
    )
    return Verdict(
        status=verdict.status,
        title=verdict.title,
        summary=f"From {leading.label}, the gravest of {count} reports: {verdict.summary}{notes}",
        confidence=Confidence.MEDIUM
        if contradictions and verdict.confidence is Confidence.HIGH
        else verdict.confidence,
        cause_class=verdict.cause_class,
        fault=verdict.fault,
    )


def _overview(parts: Sequence[NamedReport]) -> Table:
    rows: list[tuple[Scalar, ...]] = [
        (
            part.label,
            part.report.tool.command,
            part.report.started_utc,
            part.report.verdict.status.value,
            part.report.verdict.confidence.value,
            part.report.verdict.title,
        )
        for part in parts
    ]
    columns = ("report", "command", "taken (UTC)", "status", "confidence", "verdict")
    return Table(
        name="parts",
        title="The reports that were merged",
        columns=tuple(Column(name=name) for name in columns),
        rows=tuple(rows),
    )


def _all(parts: Sequence[tuple[T, ...]]) -> tuple[T, ...]:
    """All entries of all parts, each once, in order."""
    result: list[T] = []
    seen: set[str] = set()
    for part in parts:
        for entry in part:
            key = repr(entry)
            if key not in seen:
                seen.add(key)
                result.append(entry)
    return tuple(result)


def _first(values: Sequence[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)

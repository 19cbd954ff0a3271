"""The report over messages and snapshots in files, alone or together, and beside an earlier failure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, find_files, read_head
from distdoctor.oom.explain.build import explain_report
from distdoctor.oom.facts.events import ExplainFacts
from distdoctor.oom.messages.from_files import events_from_files
from distdoctor.oom.snapshots.changes import changes
from distdoctor.oom.snapshots.files import snapshots_from_files, sniff_snapshot
from distdoctor.oom.snapshots.findings import snapshot_findings
from distdoctor.oom.snapshots.machine import DEFAULT_MAX_BYTES
from distdoctor.oom.snapshots.pictures import snapshot_series
from distdoctor.oom.snapshots.read import KIND as SNAPSHOT_KIND
from distdoctor.oom.snapshots.tables import snapshot_tables
from distdoctor.oom.snapshots.view import SnapshotView, views_of
from distdoctor.report.assemble import build_report
from distdoctor.report.model import InputFile, Report, Status, Subject
from distdoctor.report.request import ReportRequest
from distdoctor.report.site import apply_site
from distdoctor.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """What one set of files holds."""

    facts: ExplainFacts | None
    views: tuple[SnapshotView, ...]
    inputs: tuple[InputFile, ...]


def report_of_files(
    request: ReportRequest,
    paths: Sequence[str],
    *,
    was: Sequence[str] = (),
    memory_limit: int | None = None,
) -> Report:
    """The report over logs and snapshots. `was`: files of an earlier failure, to say what changed; `memory_limit`:
    bytes that reading one snapshot may take.

    Raises InputError when nothing can be read, and for an earlier failure that cannot be.
    """
    limit = memory_limit or DEFAULT_MAX_BYTES
    now = _read(paths, limit)
    before = _read(was, limit) if was else None
    snapshots = _snapshot_report(request, now, before) if now.views else None
    if now.facts is None:
        if snapshots is None:
            raise InputError("no out-of-memory message and no memory snapshot was found")
        return snapshots
    report = explain_report(
        request,
        now.facts,
        inputs=now.inputs,
        was=before.facts if before is not None else None,
        beside=snapshots,
    )
    return replace(report, series=snapshots.series) if snapshots is not None else report


def _read(paths: Sequence[str], limit: int) -> _Evidence:
    """Snapshots by what they are, everything else as logs."""
    files = find_files(paths)
    snapshots = [path for path in files if _is_snapshot(path)]
    logs = [path for path in files if path not in snapshots]
    facts: ExplainFacts | None = None
    inputs: tuple[InputFile, ...] = ()
    views: tuple[SnapshotView, ...] = ()
    if logs:
        try:
            facts, inputs = events_from_files(logs)
        except InputError as error:
            if not snapshots:
                raise
            inputs = tuple(
                InputFile(path=path, kind="log", read=False, why_not=error.message) for path in logs
            )
    if snapshots:
        try:
            read, files_read = snapshots_from_files(snapshots, max_bytes=limit)
        except InputError as error:
            if facts is None:
                raise
            files_read = tuple(
                InputFile(path=path, kind=SNAPSHOT_KIND, read=False, why_not=error.message)
                for path in snapshots
            )
        else:
            views = views_of(read, capacity_bytes=_capacity(facts))
        inputs += files_read
    return _Evidence(facts=facts, views=views, inputs=inputs)


def _is_snapshot(path: str) -> bool:
    if path == STDIN:
        return False
    try:
        return sniff_snapshot(path, read_head(path)) > 0
    except InputError:
        return False


def _capacity(facts: ExplainFacts | None) -> int | None:
    """The GPU's size as messages state it; snapshots do not hold it."""
    if facts is None:
        return None
    sizes = {event.total_bytes for event in facts.events if event.total_bytes}
    return sizes.pop() if len(sizes) == 1 else None


def _snapshot_report(request: ReportRequest, now: _Evidence, before: _Evidence | None) -> Report:
    findings, skipped, checks = snapshot_findings(now.views)
    if request.only:
        findings = tuple(each for each in findings if each.id in request.only)
    changed = changes(before.views, now.views) if before is not None and before.views else ()
    ranks = {view.snapshot.rank for view in now.views if view.snapshot.rank is not None}
    number = len(now.views)
    report = build_report(
        command=request.command,
        argv=request.argv,
        about=f"{number} memory snapshot{'s' if number != 1 else ''}"
        + (f" of ranks {', '.join(map(str, sorted(ranks)[:8]))}" if ranks else ""),
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=checks,
        skipped=skipped,
        subject=Subject(),
        tables=(*changed, *snapshot_tables(now.views)),
        inputs=now.inputs,
        started=request.started,
        # Without a failure in it, a snapshot cannot say why the job died.
        answered=all(each.read for each in now.inputs) and any(view.moment.oom for view in now.views),
    )
    report = replace(report, series=snapshot_series(now.views))
    if report.verdict.status is not Status.UNKNOWN:
        return report
    live = max(view.moment.live_bytes for view in now.views)
    title = f"cannot tell why: no failure is recorded; {format_bytes(live)} were in use"
    return replace(report, verdict=replace(report.verdict, title=title))

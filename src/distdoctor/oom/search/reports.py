"""What a report hands to the search: the settings of an estimate, the failure of an explanation, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.errors import InputError
from distdoctor.evidence import read_bounded
from distdoctor.oom.catalog.gpus import Cluster
from distdoctor.oom.failed import Failure, failure_of
from distdoctor.oom.settings import Settings
from distdoctor.oom.settings_record import TABLE, settings_of_table
from distdoctor.report.codec import MAX_REPORT_BYTES, decode
from distdoctor.report.model import InputFile, Report

# One estimate and the explanations of a few failures. Our own choice.
MAX_REPORTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """Of all reports together."""

    settings: Settings | None = None
    cluster: Cluster | None = None
    failure: Failure | None = None
    inputs: tuple[InputFile, ...] = ()


def _report(data: bytes, path: str) -> Report:
    """Raises InputError, with what makes a report of a log."""
    if not data.lstrip().startswith(b"{"):
        raise InputError(
            f"`{path}` is no JSON report",
            hint=f"of a log or a snapshot make one first: `distdoctor oom explain {path} -o x.json`",
        )
    return decode(data, path)


def read_reports(paths: Sequence[str]) -> Handed:
    """The first settings and the worst failure. Raises InputError for what is no such report."""
    if len(paths) > MAX_REPORTS:
        raise InputError(f"{len(paths)} reports are more than are read at once", hint="give one of each kind")
    settings, cluster = None, None
    failures: list[Failure] = []
    inputs = []
    for path in paths:
        try:
            data = read_bounded(path, MAX_REPORT_BYTES + 1)
        except OSError as error:
            raise InputError(f"cannot read `{path}`: {error.strerror or error}") from None
        report = _report(data, path)
        record = next((table for table in report.tables if table.name == TABLE), None)
        failure = failure_of(report, path)
        if record is None and failure is None:
            raise InputError(
                f"the report `{path}` holds neither the settings of a job nor a message with its numbers",
                hint="give the JSON of `oom estimate … -o x.json`, or of `oom explain LOG -o x.json`",
            )
        if record is not None and settings is None:
            settings, cluster = settings_of_table(record, path)
        if failure is not None:
            failures.append(failure)
        kind = "estimate" if record is not None else "explanation"
        inputs.append(InputFile(path=path, kind=kind, bytes=len(data)))
    return Handed(
        settings=settings,
        cluster=cluster,
        failure=max(failures, key=lambda each: each.wanted_bytes, default=None),
        inputs=tuple(inputs),
    )

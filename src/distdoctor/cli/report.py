"""`distdoctor report`: show a report again in another form, merge several into one, redact one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer
from msgspec.structs import replace as replace_struct

from distdoctor.cli.options import output_options
from distdoctor.cli.output import Format, Names, OutputOptions, emit, prepare_outputs
from distdoctor.errors import InputError
from distdoctor.evidence import read_bounded
from distdoctor.report.codec import MAX_REPORT_BYTES, decode
from distdoctor.report.exit_code import FailOn
from distdoctor.report.merge import NamedReport, merge_reports
from distdoctor.report.model import InputFile, Report
from distdoctor.report.unread import name_unread

ReportFile = Annotated[str, typer.Argument(metavar="REPORT", help="a report in JSON; - is standard input")]
ReportFiles = Annotated[list[str], typer.Argument(metavar="REPORT…", help="reports in JSON")]


def register(app: typer.Typer) -> None:
    """Add `report show | merge | redact`."""
    group = typer.Typer(
        rich_markup_mode=None,
        no_args_is_help=True,
        help="Show a report again in another form, merge several, redact one.",
    )
    group.command("show")(show)
    group.command("merge")(merge)
    group.command("redact")(redact)
    app.add_typer(group, name="report")


@output_options
def show(report: ReportFile, *, output: OutputOptions) -> None:
    """Show a report again, without the evidence: `report show report.json --format html > report.html`."""
    told = read_report(report)
    raise typer.Exit(emit(told, prepare_outputs(output, names_in(told))))


@output_options
def merge(reports: ReportFiles, *, output: OutputOptions) -> None:
    """Make one incident report of several: one verdict, all findings, contradictions shown."""
    parts, unread = read_reports(reports)
    merged = merge_reports(parts)
    merged = name_unread(replace_struct(merged, inputs=(*merged.inputs, *unread)))
    raise typer.Exit(emit(merged, prepare_outputs(output, names_in(merged))))


@output_options
def redact(report: ReportFile, *, output: OutputOptions) -> None:
    """Replace hosts, addresses, users, UUIDs and serials by pseudonyms; JSON on stdout unless said otherwise.

    The verdict does not make the exit code non-zero unless --fail-on is given.
    """
    told = read_report(report)
    wants_json = output.format is Format.TERMINAL and not output.outputs and not output.one_line
    options = replace(
        output,
        redact=True,
        format=Format.JSON if wants_json else output.format,
        fail_on=output.fail_on or FailOn.NEVER,
    )
    raise typer.Exit(emit(told, prepare_outputs(options, names_in(told))))


def read_reports(paths: Sequence[str]) -> tuple[list[NamedReport], list[InputFile]]:
    """The reports that can be read, and the files that cannot. Raises InputError when none can."""
    parts: list[NamedReport] = []
    unread: list[InputFile] = []
    for path in paths:
        try:
            parts.append(NamedReport(label=path, report=read_report(path)))
        except InputError as error:
            if len(unread) + 1 == len(paths):
                raise
            unread.append(InputFile(path=path, kind="distdoctor report", read=False, why_not=error.message))
    return parts, unread


def read_report(path: str) -> Report:
    """The report in a file, or on standard input for `-`. Raises InputError."""
    try:
        if path != "-":
            data = read_bounded(path, MAX_REPORT_BYTES)
        elif sys.stdin is None:
            raise InputError("standard input is closed")
        else:
            data = sys.stdin.buffer.read(MAX_REPORT_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read `{path}`: {error.strerror}") from error
    return decode(data, "standard input" if path == "-" else path)


def names_in(report: Report) -> Names:
    """Names for output files, from what the report is about."""
    hosts = report.subject.hosts
    return Names(
        command=report.tool.command.replace(" ", "-"),
        host=hosts[0] if len(hosts) == 1 else f"{len(hosts)}-hosts" if hosts else "report",
        job=report.subject.job_id,
    )

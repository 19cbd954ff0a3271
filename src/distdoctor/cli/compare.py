"""`distdoctor compare`: what differs between two or more reports, or between hosts that people pasted."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.errors import InputError, UsageError

if TYPE_CHECKING:
    from distdoctor.report.compare_report import Side
    from distdoctor.report.model import InputFile


def register(app: typer.Typer) -> None:
    """Add the command to the command table."""
    app.command("compare")(compare)


@output_options
def compare(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="reports (JSON), or text: collect_env, nvidia-smi, nccl-tests, …; folders are walked",
        ),
    ],
    *,
    output: OutputOptions,
) -> None:
    """What differs between these: before and after, host against host, the odd one out of many.

    One file is enough when it holds several hosts. The difference that matters comes first.
    """
    from distdoctor.cli.compare_bandwidths import compare_bandwidths
    from distdoctor.env.catalog.relevance import env_relevance
    from distdoctor.oom.estimate_facts import estimate_relevance
    from distdoctor.report.compare_report import compare_report, holders_of_sides
    from distdoctor.report.unread import name_unread

    prepared = prepare_outputs(output, Names(command="compare", host=f"{len(files)}-files"))
    started = datetime.now(timezone.utc)
    sides, inputs = _read_sides(files, output)
    unread = [each for each in inputs if not each.read]
    enough = len(holders_of_sides(sides)) > 1
    if not enough and unread:
        why = unread[0].why_not or ""
        raise InputError(
            f"fewer than two hosts to compare: {why if unread[0].path in why else f'`{unread[0].path}` is {why}'}"
        )
    if not enough:
        raise UsageError(
            f"only one host in {', '.join(files)}: nothing to compare with", hint="give two files or more"
        )
    report = compare_report(
        sides,
        lambda key: estimate_relevance(key) or env_relevance(key),
        argv=tuple(sys.argv[1:]),
        inputs=inputs,
        started=started,
        measured=compare_bandwidths(sides),
    )
    raise typer.Exit(emit(name_unread(report), prepared))


def _read_sides(files: list[str], output: OutputOptions) -> tuple[list[Side], list[InputFile]]:
    """Reports as they are; of text, one report for each host in it. Raises InputError for a path that is not there."""
    from distdoctor.cli.env import make_request
    from distdoctor.cli.report import read_reports
    from distdoctor.cli.request import make_request as make_report_request
    from distdoctor.env.text_report import reports_from_text
    from distdoctor.evidence import read_evidence
    from distdoctor.explain import sort_evidence
    from distdoctor.nccl_bench.from_files import reports_of_tables
    from distdoctor.report.compare_report import Side
    from distdoctor.report.model import InputFile

    sides: list[Side] = []
    inputs: list[InputFile] = []
    found = sort_evidence(files)
    for reader, paths in found.by_reader:
        try:
            if reader.name == "report":
                read, unread = read_reports(paths)
                sides += [Side(label=each.label, report=each.report) for each in read]
                inputs += [read_evidence(each.label).input_file("distdoctor report") for each in read]
                inputs += unread
            elif reader.name == "nccl-bench":
                tables, told = reports_of_tables(make_report_request(output, command="compare"), paths)
                sides += [Side(label=label, report=report) for label, report in tables]
                inputs += told
            else:
                reports, told = reports_from_text(make_request("env", output), paths)
                sides += [Side(label=label, report=report) for label, report in reports]
                inputs += told
        except InputError as error:
            inputs += [
                InputFile(path=path, kind=reader.name, read=False, why_not=error.message) for path in paths
            ]
    inputs += [
        InputFile(path=each.path, kind="unknown", read=False, why_not=each.why) for each in found.unknown
    ]
    return sides, inputs

"""`distdoctor explain FILE… | -` (and `distdoctor FILE`): what is this, and what does it say?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs

if TYPE_CHECKING:
    from distdoctor.explain import EvidenceReader
    from distdoctor.report.model import Report


def register(app: typer.Typer) -> None:
    """Add the command to the command table."""
    app.command("explain")(explain)


@output_options
def explain(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="what was pasted or left behind; folders are walked; `-` is stdin"
        ),
    ],
    *,
    output: OutputOptions,
) -> None:
    """Say what each file is, hand it to the reader that knows it, and give one report.

    What is not known is named, with what it begins with.
    """
    from distdoctor.explain import explain as sort_and_build

    prepared = prepare_outputs(output, Names(command="explain", host="files"))
    reports, unknown = sort_and_build(files, lambda reader, found: _build(reader, found, output))
    report = _one_report(reports, [(each.path, each.why) for each in unknown])
    raise typer.Exit(emit(report, prepared))


def _build(reader: EvidenceReader, paths: Sequence[str], output: OutputOptions) -> Report:
    """The report of the files that one reader knows. Each reader of `explain.READERS` has a line here."""
    from msgspec.structs import replace

    from distdoctor.cli.env import make_request
    from distdoctor.cli.report import read_reports
    from distdoctor.env.text_report import report_from_text
    from distdoctor.report.merge import merge_reports

    if reader.name == "nccl-bench":
        from distdoctor.cli.request import make_request as make_report_request
        from distdoctor.nccl_bench.from_files import report_of_files

        return report_of_files(make_report_request(output, command="explain"), paths)
    if reader.name in ("oom", "oom config"):
        from distdoctor.cli.request import make_request as make_report_request

        request = make_report_request(output, command="explain")
        if reader.name == "oom":
            from distdoctor.oom.explain.files import report_of_files as report_of_failures

            return report_of_failures(request, paths)
        from distdoctor.oom.configs.files import report_of_configs

        return report_of_configs(request, paths)
    if reader.name == "straggler":
        from distdoctor.cli.request import make_request as make_report_request
        from distdoctor.straggler.from_files import report_of_files as report_of_timing

        return report_of_timing(make_report_request(output, command="explain"), paths)
    if reader.name == "report":
        reports, unread = read_reports(paths)
        report = reports[0].report if len(reports) == 1 else merge_reports(reports)
        return replace(report, inputs=(*report.inputs, *unread))
    return report_from_text(make_request("explain", output), paths)


def _one_report(reports: Sequence[Report], unknown: Sequence[tuple[str, str]]) -> Report:
    """The reports as one, with the files that nobody knows named among the inputs."""
    from msgspec.structs import replace

    from distdoctor.report.merge import NamedReport, merge_reports
    from distdoctor.report.model import InputFile
    from distdoctor.report.unread import name_unread

    report = reports[0]
    if len(reports) > 1:
        report = merge_reports([NamedReport(label=each.tool.command, report=each) for each in reports])
    unread = tuple(InputFile(path=path, kind="unknown", read=False, why_not=why) for path, why in unknown)
    return name_unread(replace(report, inputs=(*report.inputs, *unread)))

"""`distdoctor oom explain FILE…`: what an out-of-memory message or snapshot really says."""

from __future__ import annotations

from typing import Annotated

import typer

from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.cli.request import make_request


@output_options
def explain(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="logs of any ranks, memory snapshots (.pickle); folders; `-` is stdin"
        ),
    ],
    *,
    was: Annotated[
        list[str] | None,
        typer.Option("--was", metavar="FILE", help="an earlier failure of the job: what changed? repeatable"),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(
            "--memory-limit",
            metavar="SIZE",
            help="what reading a snapshot may take [8 x its size, at most 2G]",
        ),
    ] = None,
    output: OutputOptions,
) -> None:
    """Say whose it is, short by how much, in which phase, on which ranks; and only fixes that the numbers support."""
    from distdoctor.oom.explain.files import report_of_files
    from distdoctor.report.unread import name_unread
    from distdoctor.units import parse_bytes

    prepared = prepare_outputs(output, Names(command="oom-explain", host="files"))
    report = report_of_files(
        make_request(output, command="oom-explain"),
        files,
        was=tuple(was or ()),
        memory_limit=parse_bytes(memory_limit) if memory_limit else None,
    )
    raise typer.Exit(emit(name_unread(report), prepared))

"""`distdoctor straggler analyze PATH…`: who is slow, from the timing people already have."""

from __future__ import annotations

from typing import Annotated

import typer

from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.cli.request import make_request
from distdoctor.cli.straggler_options import (
    parse_around,
    parse_steps,
    parse_unit,
    progress_to_stderr,
)


@output_options
def analyze(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="traces, logs, tables, recordings of any ranks; folders; `-` is stdin",
        ),
    ],
    *,
    mesh: Annotated[
        str | None,
        typer.Option("--mesh", metavar="DIMS", help="parallel dimensions, outermost first: pp=4,dp=8,tp=2"),
    ] = None,
    gpus_per_host: Annotated[
        int | None,
        typer.Option(
            "--gpus-per-host", min=1, max=1024, help="ranks of a host, where the evidence names none"
        ),
    ] = None,
    steps: Annotated[
        str | None, typer.Option("--steps", metavar="A:B", help="only these steps: 1000:3000, 500:, :2000")
    ] = None,
    around: Annotated[
        str | None,
        typer.Option(
            "--around",
            metavar="TIME",
            help="when it got slow: 14:20+02:00 or 2026-11-30T12:20Z; a change there counts",
        ),
    ] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", help="of columns whose names tell none: ns, us, ms or s")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="GPUs that the job holds [one a rank], for GPU-hours")
    ] = None,
    output: OutputOptions,
) -> None:
    """Name the slow rank, host or link with its evidence and cost, or say that there is none, or why it cannot be told."""
    from distdoctor.report.unread import name_unread
    from distdoctor.straggler.coordinates import Layout, parse_mesh
    from distdoctor.straggler.from_files import report_of_files
    from distdoctor.straggler.readers.base import ReadOptions

    first, last = parse_steps(steps)
    layout = Layout(
        mesh=parse_mesh(mesh) if mesh is not None else (), gpus_per_host=gpus_per_host, num_gpus=gpus
    )
    request = make_request(output, command="straggler-analyze")
    around_s = parse_around(around, request.started)
    prepared = prepare_outputs(output, Names(command="straggler-analyze", host="files"))
    report = report_of_files(
        request,
        paths,
        options=ReadOptions(
            first_step=first, last_step=last, unit=parse_unit(unit), progress=progress_to_stderr
        ),
        layout=layout,
        around_s=around_s,
        num_gpus=gpus,
    )
    raise typer.Exit(emit(name_unread(report), prepared))

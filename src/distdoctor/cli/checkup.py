"""`distdoctor checkup`: may a job start on this host? One line, one exit code, ten seconds at most."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from distdoctor.cli.options import output_options, parse_duration
from distdoctor.cli.output import Format, OutputOptions, emit, prepare_outputs
from distdoctor.report.model import Report, Status


def register(app: typer.Typer) -> None:
    """Add the command to the command table."""
    app.command("checkup")(checkup)


@output_options
def checkup(
    *,
    expect: Annotated[
        str | None,
        typer.Option("--expect", metavar="LIST", help="what the host must have: gpus=8,ib=8,driver=570."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="FILE", help="JSON report of a good host to compare with"),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="exit 3 when the host could not be judged")
    ] = False,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", parser=parse_duration, metavar="TIME", help="hard limit of the command"),
    ] = 10.0,
    output: OutputOptions,
) -> None:
    """May a job start on this host? For prologs and init containers: no torch, no root, no CUDA context.

    Exits 11 only for a critical finding of high confidence.
    """
    from distdoctor.cli.env import make_request, names_of
    from distdoctor.cli.failure import cleaned
    from distdoctor.env.checkup import Checkup, run_checkup
    from distdoctor.ranks.identity import single_identity
    from distdoctor.report.site import load_site

    identity = single_identity()
    options = output
    if output.format is Format.TERMINAL and not output.verbose:
        options = replace(output, one_line=True)
    prepared = prepare_outputs(options, names_of("checkup", identity))
    report = run_checkup(
        make_request("checkup", output),
        identity.host,
        Checkup(
            expect=expect,
            baseline=baseline,
            time_limit_s=time_limit,
            site_expect=load_site(output.site, os.environ).expect,
        ),
    )
    code = emit(report, prepared)
    if report.verdict.status is Status.UNKNOWN:
        why = "the report says why" if prepared.key is not None else cleaned(report.verdict.summary)
        print(f"cannot tell: {why}", file=sys.stderr)
    raise typer.Exit(_exit_code(report, code, strict=strict, default=output.fail_on is None))


def _exit_code(report: Report, code: int, *, strict: bool, default: bool) -> int:
    """In a prolog a non-zero code drains the host: "cannot tell" does not, and neither does a mere lead."""
    from distdoctor.env.checkup import is_certain
    from distdoctor.exit_codes import ExitCode

    if code == ExitCode.UNANSWERED and not strict:
        return int(ExitCode.OK)
    if code == ExitCode.CRITICAL and default and not is_certain(report):
        return int(ExitCode.OK)
    return code

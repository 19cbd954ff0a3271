"""`distdoctor oom config FILE…`: what launch configurations determine, leave open and contradict."""

from __future__ import annotations

from typing import Annotated

import typer

from distdoctor.cli.oom_request import make_request
from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs


@output_options
def config(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="DeepSpeed, accelerate, TorchTitan, Megatron, Trainer, Kubernetes … files of one job",
        ),
    ],
    *,
    output: OutputOptions,
) -> None:
    """Say what launch configurations determine, what they leave open, and what in them contradicts itself.

    Nothing in them is executed. Several files are read as those of one job.
    """
    from distdoctor.oom.config_files import report_of_configs
    from distdoctor.report.unread import name_unread

    prepared = prepare_outputs(output, Names(command="oom-config", host="files"))
    report = report_of_configs(make_request(output, command="oom-config"), files)
    raise typer.Exit(emit(name_unread(report), prepared))

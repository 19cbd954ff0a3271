"""`distdoctor oom config FILE…`: what launch configurations determine, leave open and contradict."""

from __future__ import annotations

from typing import Annotated

import typer

from distdoctor.cli.job_words import Words
from distdoctor.cli.oom_job_options import job_options
from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.cli.request import make_request


@output_options
@job_options(
    "gpus",
    "gpus_per_node",
    "on",
    "model",
    "strategy",
    "precision",
    "micro_batch",
    "micro_batches",
    "global_batch",
    "seq_len",
)
def config(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="DeepSpeed, accelerate, TorchTitan, Megatron, Trainer, Kubernetes … files of one job",
        ),
    ],
    *,
    words: Words,
    output: OutputOptions,
) -> None:
    """Say what launch configurations determine, what they leave open, and what in them contradicts itself.

    Nothing in them is executed. Several files are read as those of one job. What they leave open can be given as an
    option; options win.
    """
    from dataclasses import replace

    from distdoctor.cli.oom_settings import settings_of_words
    from distdoctor.oom.configs.files import report_of_configs
    from distdoctor.report.unread import name_unread

    prepared = prepare_outputs(output, Names(command="oom-config", host="files"))
    given, cluster, _ = settings_of_words(words, ())
    if cluster is not None:
        given = replace(given, gpu_type=cluster.type.name)
    report = report_of_configs(make_request(output, command="oom-config"), files, given=given)
    raise typer.Exit(emit(name_unread(report), prepared))

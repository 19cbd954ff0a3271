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
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="GPUs of the job, where no file says it")
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", metavar="N", help="GPUs of a host")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="GPUS", help="judge it on these: 16xh100-80gb, 2x8xa100-80gb, 8x24GiB"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME|FILE", help="llama3-8b, mixtral-8x7b …, or a config.json"),
    ] = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", help="none, ddp, zero1, zero2, zero3, fsdp2, megatron …")
    ] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="fp32, mixed, master or pure16")
    ] = None,
    micro_batch: Annotated[
        int | None,
        typer.Option("--micro-batch", "--batch-size", help="sequences in one forward pass of a rank"),
    ] = None,
    micro_batches: Annotated[
        int | None, typer.Option("--micro-batches", help="micro-batches between two optimizer steps")
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option("--global-batch", help="sequences of all ranks in one optimizer step")
    ] = None,
    seq_len: Annotated[
        str | None, typer.Option("--seq-len", metavar="N", help="tokens of a sequence: 8192, 8k")
    ] = None,
    output: OutputOptions,
) -> None:
    """Say what launch configurations determine, what they leave open, and what in them contradicts itself.

    Nothing in them is executed. Several files are read as those of one job. What they leave open can be given as an
    option; options win.
    """
    from dataclasses import replace

    from distdoctor.cli.oom_settings import Words, settings_of_words
    from distdoctor.oom.configs.files import report_of_configs
    from distdoctor.report.unread import name_unread

    prepared = prepare_outputs(output, Names(command="oom-config", host="files"))
    words = Words(
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        on=on,
        model=model,
        strategy=strategy,
        precision=precision,
        micro_batch=micro_batch,
        micro_batches=micro_batches,
        global_batch=global_batch,
        seq_len=seq_len,
    )
    given, cluster, _ = settings_of_words(words, ())
    if cluster is not None:
        given = replace(given, gpu_type=cluster.type.name)
    report = report_of_configs(make_request(output, command="oom-config"), files, given=given)
    raise typer.Exit(emit(name_unread(report), prepared))

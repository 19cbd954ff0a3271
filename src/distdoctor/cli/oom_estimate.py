"""`distdoctor oom estimate`: bytes by category for the worst rank, at once and without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from distdoctor.cli.job_words import Words
from distdoctor.cli.oom_job_options import Configs, job_options
from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.cli.request import make_request

if TYPE_CHECKING:
    from distdoctor.oom.catalog.gpus import Cluster
    from distdoctor.oom.formulas.deepspeed_estimator import DeepSpeedRow
    from distdoctor.oom.job import Job
    from distdoctor.oom.settings import Settings


@output_options
@job_options()
def estimate(
    *,
    words: Words,
    config: Configs = None,
    explained: Annotated[
        str | None,
        typer.Option(
            "--explained", metavar="REPORT", help="JSON of `oom explain`: does the failure agree with this?"
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="every strategy side by side on the same GPUs")
    ] = False,
    output: OutputOptions,
) -> None:
    """Say where the memory goes on the worst rank, by formula: at the start, in the first step, in the second.

    Ranges are given where nobody knows better; what was assumed stands on the same screen.
    """
    from distdoctor.cli.oom_settings import settings_of_words
    from distdoctor.oom.catalog.gpus import parse_cluster
    from distdoctor.oom.estimate import estimate as estimate_job
    from distdoctor.oom.estimate_build import estimate_report
    from distdoctor.oom.facts.estimated import EstimateFacts
    from distdoctor.oom.failed import read_failure
    from distdoctor.oom.job import resolve
    from distdoctor.oom.variants import variants_of
    from distdoctor.units import MIB

    prepared = prepare_outputs(output, Names(command="oom-estimate", host="job"))
    settings, cluster, inputs = settings_of_words(words, tuple(config or ()))
    failure = read_failure(explained) if explained is not None else None
    if cluster is None and failure is not None and failure.total_bytes:
        # The message tells the size of the card that it ran on.
        cluster = parse_cluster(f"{failure.total_bytes // MIB}MiB")
    job = resolve(settings)
    facts = EstimateFacts(
        job=job,
        estimate=estimate_job(job),
        cluster=cluster,
        variants=variants_of(job) if compare else (),
        failure=failure,
        doubts=_doubts(config, settings) if config else (),
        deepspeed=_deepspeed_rows(job, cluster, compare=compare),
    )
    report = estimate_report(make_request(output, command="oom-estimate"), facts, inputs=inputs)
    raise typer.Exit(emit(report, prepared))


def _doubts(configs: list[str], settings: Settings) -> tuple[str, ...]:
    from distdoctor.oom.configs.files import doubts_of

    return doubts_of(configs, settings)


def _deepspeed_rows(job: Job, cluster: Cluster | None, *, compare: bool) -> tuple[DeepSpeedRow, ...]:
    """DeepSpeed's own figures, where ZeRO is looked at."""
    from distdoctor.oom.formulas.deepspeed_estimator import zero2_rows, zero3_rows
    from distdoctor.oom.job import DEEPSPEED
    from distdoctor.oom.parameters import largest_layer_parameters

    if not compare and job.strategy not in DEEPSPEED:
        return ()
    ranks = job.mesh.num_ranks
    said = job.said.gpus_per_node or (cluster.gpus_per_node if cluster else None) or 8
    per_node = min(said, ranks)
    nodes = -(-ranks // per_node)
    rows = zero2_rows(job.num_params, gpus_per_node=per_node, num_nodes=nodes)
    if job.shape is None:
        return rows
    largest = largest_layer_parameters(job.shape)
    return rows + zero3_rows(
        job.num_params,
        largest,
        gpus_per_node=per_node,
        num_nodes=nodes,
        zero_init=job.said.meta_init is not False,
    )

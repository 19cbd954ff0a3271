"""`distdoctor oom estimate`: bytes by category for the worst rank, at once and without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from distdoctor.cli.oom_job_options import (
    GlobalBatch,
    Gpus,
    GpusPerNode,
    MicroBatch,
    MicroBatches,
    ModelName,
    On,
    PrecisionName,
    SeqLen,
    StrategyName,
)
from distdoctor.cli.options import output_options
from distdoctor.cli.output import Names, OutputOptions, emit, prepare_outputs
from distdoctor.cli.request import make_request

if TYPE_CHECKING:
    from distdoctor.oom.catalog.gpus import Cluster
    from distdoctor.oom.formulas.deepspeed_estimator import DeepSpeedRow
    from distdoctor.oom.job import Job
    from distdoctor.oom.settings import Settings


@output_options
def estimate(
    *,
    model: ModelName = None,
    params: Annotated[
        str | None, typer.Option("--params", metavar="N", help="only the number of parameters: 7.5e9, 70B")
    ] = None,
    layers: Annotated[int | None, typer.Option("--layers", help="layers of a model given by sizes")] = None,
    hidden: Annotated[int | None, typer.Option("--hidden", help="hidden size")] = None,
    heads: Annotated[int | None, typer.Option("--heads", help="attention heads")] = None,
    kv_heads: Annotated[
        int | None, typer.Option("--kv-heads", help="heads of keys and values [as --heads]")
    ] = None,
    head_size: Annotated[
        int | None, typer.Option("--head-size", help="width of one head [hidden / heads]")
    ] = None,
    ffn: Annotated[
        int | None, typer.Option("--ffn", help="width of the MLP [8/3 hidden gated, 4 plain]")
    ] = None,
    vocab: Annotated[int | None, typer.Option("--vocab", help="size of the vocabulary")] = None,
    experts: Annotated[int | None, typer.Option("--experts", help="experts of each layer")] = None,
    experts_per_token: Annotated[
        int | None, typer.Option("--experts-per-token", help="experts that one token visits")
    ] = None,
    expert_ffn: Annotated[
        int | None, typer.Option("--expert-ffn", help="width of one expert [--ffn]")
    ] = None,
    gated: Annotated[
        bool | None, typer.Option("--gated/--plain-mlp", help="three matrices in an MLP, or two [gated]")
    ] = None,
    tied: Annotated[
        bool | None, typer.Option("--tied/--untied", help="embedding and output are one matrix [untied]")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="FILE", help="a launch configuration; repeatable; options here win"),
    ] = None,
    on: On = None,
    gpus: Gpus = None,
    gpus_per_node: GpusPerNode = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            "--mesh",
            metavar="DIMS",
            help="tp=8, or pp=2,dp_replicate=1,dp_shard=4,cp=1,tp=2,ep=1,etp=1; dp_shard takes what is left",
        ),
    ] = None,
    strategy: StrategyName = None,
    precision: PrecisionName = None,
    optimizer: Annotated[
        str | None,
        typer.Option("--optimizer", help="adamw, adamw-8bit, adafactor, lion, sgd, muon … [adamw]"),
    ] = None,
    optimizer_loop: Annotated[
        str | None, typer.Option("--optimizer-loop", help="foreach, fused or for-loop [foreach]")
    ] = None,
    micro_batch: MicroBatch = None,
    micro_batches: MicroBatches = None,
    global_batch: GlobalBatch = None,
    seq_len: SeqLen = None,
    checkpointing: Annotated[
        str | None,
        typer.Option(
            "--checkpointing", help="activation (gradient) checkpointing: none, selective, full [none]"
        ),
    ] = None,
    attention: Annotated[
        str | None, typer.Option("--attention", help="flash (SDPA), or unfused (eager) [flash]")
    ] = None,
    sequence_parallel: Annotated[
        bool | None,
        typer.Option("--sequence-parallel/--no-sequence-parallel", help="cut tokens over tp too [yes]"),
    ] = None,
    loss_parallel: Annotated[
        bool | None,
        typer.Option("--loss-parallel/--no-loss-parallel", help="cut the logits over tp too [yes]"),
    ] = None,
    fused_loss: Annotated[
        bool, typer.Option("--fused-loss", help="a chunked or fused cross entropy")
    ] = False,
    schedule: Annotated[
        str | None,
        typer.Option("--schedule", help="gpipe, 1f1b, interleaved, zero-bubble, zbv [1f1b]"),
    ] = None,
    virtual_stages: Annotated[
        int | None, typer.Option("--virtual-stages", help="chunks of the model on each pipeline rank")
    ] = None,
    keep_gathered: Annotated[
        bool, typer.Option("--keep-gathered", help="FSDP2 with reshard_after_forward=False")
    ] = False,
    bucket_view: Annotated[
        bool, typer.Option("--bucket-view", help="DDP with gradient_as_bucket_view=True")
    ] = False,
    offload: Annotated[
        str | None, typer.Option("--offload", help="to host memory: none, optimizer or all [none]")
    ] = None,
    init: Annotated[
        str | None,
        typer.Option("--init", help="meta: sharded before it is whole; whole: built on each GPU first"),
    ] = None,
    expert_imbalance: Annotated[
        float | None, typer.Option("--expert-imbalance", help="tokens of the busiest rank over the mean [1]")
    ] = None,
    lora_rank: Annotated[
        int | None, typer.Option("--lora-rank", help="adapters of this rank on a frozen model")
    ] = None,
    base_bits: Annotated[
        int | None, typer.Option("--base-bits", help="bits of a frozen weight: 16, 8, or 4 as in QLoRA [16]")
    ] = None,
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
    from distdoctor.cli.oom_settings import Words, settings_of_words
    from distdoctor.oom.catalog.gpus import parse_cluster
    from distdoctor.oom.estimate import estimate as estimate_job
    from distdoctor.oom.estimate_build import estimate_report
    from distdoctor.oom.facts.estimated import EstimateFacts
    from distdoctor.oom.failed import read_failure
    from distdoctor.oom.job import resolve
    from distdoctor.oom.variants import variants_of
    from distdoctor.units import MIB

    prepared = prepare_outputs(output, Names(command="oom-estimate", host="job"))
    words = Words(
        model=model,
        params=params,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        ffn=ffn,
        vocab=vocab,
        experts=experts,
        experts_per_token=experts_per_token,
        expert_ffn=expert_ffn,
        gated=gated,
        tied=tied,
        on=on,
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        mesh=mesh,
        strategy=strategy,
        precision=precision,
        optimizer=optimizer,
        optimizer_loop=optimizer_loop,
        micro_batch=micro_batch,
        micro_batches=micro_batches,
        global_batch=global_batch,
        seq_len=seq_len,
        checkpointing=checkpointing,
        attention=attention,
        sequence_parallel=sequence_parallel,
        loss_parallel=loss_parallel,
        fused_loss=fused_loss or None,
        schedule=schedule,
        virtual_stages=virtual_stages,
        keep_gathered=keep_gathered,
        bucket_view=bucket_view,
        offload=offload,
        init=init,
        expert_imbalance=expert_imbalance,
        lora_rank=lora_rank,
        base_bits=base_bits,
    )
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

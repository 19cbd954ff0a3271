"""The same job under every strategy: what `--compare` puts side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from distdoctor.errors import UsageError
from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.estimated import Variant
from distdoctor.oom.job import MEGATRON, Job, resolve
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload, Settings
from distdoctor.oom.strategies.all import STRATEGIES

# Tensor parallelism stays inside a host: NVLink, 8 GPUs.
_HOST = 8
# Titles that are wider than a column of eighty has room for.
_SHORT = {
    DataParallel.MEGATRON: "Megatron DDP",
    DataParallel.MEGATRON_DISTRIBUTED: "Megatron dist. opt.",
}


# One copy is no way to use several GPUs; of Megatron-FSDP not everything is known; torch's own ZeRO-1 stands beside
# DeepSpeed's in `oom reproduce`.
_NOT_COMPARED = (DataParallel.NONE, DataParallel.ZERO_REDUNDANCY, DataParallel.MEGATRON_FSDP)


def variants_of(job: Job) -> tuple[Variant, ...]:
    """Every strategy on this job's ranks, then other ways to cut the model, then what saves more."""
    return tuple(_variant(label, page, settings) for label, page, settings in _wanted(job))


def _wanted(job: Job) -> Iterator[tuple[str, str, Settings]]:
    # Defaults differ between strategies: what was not said stays unsaid.
    said = replace(job.said, strategy=None)
    for strategy in STRATEGIES:
        # Megatron-LM trains no adapters.
        is_possible = said.adapter is None or strategy.kind not in MEGATRON
        if strategy.kind not in _NOT_COMPARED and is_possible:
            title = _SHORT.get(strategy.kind, strategy.title)
            yield title, strategy.page, replace(said, strategy=strategy.kind)
    fsdp = replace(said, strategy=DataParallel.FSDP)
    if job.checkpointing is not Checkpointing.FULL and job.shape is not None:
        yield (
            "FSDP2, checkpointed",
            "activation-checkpointing",
            replace(fsdp, checkpointing=Checkpointing.FULL),
        )
    yield "FSDP2, no reshard", "fsdp2", replace(fsdp, reshard_after_forward=False)
    shards = job.mesh.dp
    if shards > _HOST and shards % _HOST == 0:
        yield (
            f"HSDP, shards of {_HOST}",
            "hsdp",
            replace(fsdp, dp_shard=_HOST, dp_replicate=shards // _HOST),
        )
    yield from _other_cuts(job, fsdp)
    yield (
        "ZeRO-3, offloaded",
        "offload",
        replace(
            said,
            strategy=DataParallel.ZERO3,
            offload_optimizer=Offload.CPU,
            offload_params=Offload.CPU,
        ),
    )


def _other_cuts(job: Job, fsdp: Settings) -> Iterator[tuple[str, str, Settings]]:
    """One more dimension taken out of the data-parallel ranks, where none is there yet."""
    shape, mesh = job.shape, job.mesh
    if shape is None or mesh.num_ranks < 2:
        return
    fsdp = replace(fsdp, dp_shard=None, dp_replicate=None, world_size=mesh.num_ranks)
    ranks = mesh.dp
    if mesh.tp == 1 and (size := _largest(ranks, shape.num_heads)) > 1:
        yield f"FSDP2 + TP {size}", "tensor-parallel", replace(fsdp, tp=size)
    if mesh.pp == 1 and (size := _largest(ranks, ranks, most=min(4, shape.num_layers))) > 1:
        yield f"FSDP2 + PP {size}", "pipeline-parallel", replace(fsdp, pp=size)
    if mesh.cp == 1 and (size := _largest(ranks, job.seq_len, most=4)) > 1:
        yield f"FSDP2 + CP {size}", "context-parallel", replace(fsdp, cp=size)
    if shape.moe is not None and mesh.ep == 1:
        size = _largest(ranks, shape.moe.num_experts)
        if size > 1:
            yield f"FSDP2 + EP {size}", "expert-parallel", replace(fsdp, ep=size)


def _largest(ranks: int, divides: int, *, most: int = _HOST) -> int:
    """The largest power of two, up to `most`, that divides both."""
    size = 1
    while size * 2 <= most and ranks % (size * 2) == 0 and divides % (size * 2) == 0:
        size *= 2
    return size


def _variant(label: str, page: str, settings: Settings) -> Variant:
    try:
        return Variant(label=label, page=page, estimate=estimate(resolve(settings)))
    except UsageError as error:
        return Variant(label=label, page=page, why_not=error.message)

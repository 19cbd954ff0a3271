"""Changes to a job that may lower its peak, in words and as settings. Whether they do, the estimate says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from distdoctor.oom.job import Job
from distdoctor.oom.mesh import MAX_RANKS
from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
    DataParallel,
    Offload,
    Optimizer,
    OptimizerLoop,
)

# Tensor and context parallelism stay inside a host: NVLink, 8 GPUs.
HOST = 8
# From this length on a sequence is worth cutting. Our own choice: below it checkpointing is cheaper.
LONG_SEQUENCE = 16_384
# So many times more GPUs are looked at; who needs still more has another question. Our own choice.
MAX_SCALE = 64

_SPEED_KEPT = "no cost in speed"


class Effort(IntEnum):
    """What a change asks of people and machines."""

    SETTING = 0
    OTHER = 1
    """Another strategy, cut or optimizer."""
    GPUS = 2
    HOST = 3
    """Slow steps, and memory of the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change."""

    text: str
    short: str
    """The same in two or three words, for a list."""
    cost: str
    said: Mapping[str, Any]
    """Fields of Settings."""
    effort: Effort = Effort.SETTING


def cheap_changes(job: Job) -> Iterator[Change]:
    """A setting or a line of code; training stays what it is."""
    said = job.said
    if job.shape is not None:
        yield from _cheap_for_activations(job)
    if job.strategy is DataParallel.DDP and not said.gradient_as_bucket_view:
        yield Change(
            text="DDP with gradient_as_bucket_view=True",
            short="gradient_as_bucket_view",
            cost=_SPEED_KEPT,
            said={"gradient_as_bucket_view": True},
        )
    if job.strategy is DataParallel.FSDP and not job.reshard_after_forward:
        yield Change(
            text="reshard_after_forward=True",
            short="reshard_after_forward",
            cost="parameters are gathered twice a step",
            said={"reshard_after_forward": True},
        )
    if job.optimizer_loop is OptimizerLoop.FOREACH:
        yield Change(
            text="the fused optimizer (fused=True)",
            short="fused optimizer",
            cost=_SPEED_KEPT,
            said={"optimizer_loop": OptimizerLoop.FUSED},
        )


def _cheap_for_activations(job: Job) -> Iterator[Change]:
    if job.attention is Attention.UNFUSED:
        yield Change(
            text="flash attention (SDPA, FlashAttention)",
            short="flash attention",
            cost="faster, too",
            said={"attention": Attention.FLASH},
        )
    if job.checkpointing is not Checkpointing.FULL:
        yield Change(
            text="checkpoint all activations",
            short="full checkpointing",
            cost="about a third more computation",
            said={"checkpointing": Checkpointing.FULL, "checkpoint_layers": None},
        )
    if not job.fused_loss:
        yield Change(
            text="a chunked or fused cross entropy (Liger, cut cross entropy)",
            short="chunked loss",
            cost=_SPEED_KEPT,
            said={"fused_loss": True},
        )
    if job.mesh.tp > 1 and not job.loss_parallel:
        yield Change(
            text="loss parallelism over tp",
            short="loss parallelism",
            cost=_SPEED_KEPT,
            said={"loss_parallel": True},
        )
    if job.micro_batch > 1:
        half = job.micro_batch // 2
        yield Change(
            text=f"micro-batch {half} instead of {job.micro_batch}, with twice the accumulation",
            short=f"micro-batch {half}",
            cost="smaller matrix products",
            said={
                "micro_batch": half,
                "accumulation_steps": job.num_micro_batches * 2,
                "global_batch": None,
            },
        )


def dear_changes(job: Job) -> Iterator[Change]:
    """Another strategy, another cut, another optimizer."""
    mesh = job.mesh
    if job.strategy is DataParallel.DDP:
        yield Change(
            text="FSDP2 instead of DDP",
            short="FSDP2",
            effort=Effort.OTHER,
            cost="parameters are gathered in each pass",
            said={"strategy": DataParallel.FSDP, "dp_shard": mesh.dp, "dp_replicate": 1},
        )
    if job.strategy in (DataParallel.ZERO1, DataParallel.ZERO2):
        yield Change(
            text="ZeRO-3 instead",
            short="ZeRO-3",
            effort=Effort.OTHER,
            cost="parameters are gathered in each pass",
            said={"strategy": DataParallel.ZERO3},
        )
    yield from smaller_states(job)
    if job.strategy is DataParallel.FSDP and job.shape is not None:
        yield from _other_cuts(job)


def smaller_states(job: Job) -> Iterator[Change]:
    """Fewer bits for what is kept."""
    if job.said.adapter is not None and job.said.adapter.base_bits > 4:
        yield Change(
            text="4-bit frozen weights (QLoRA)",
            short="4-bit weights",
            effort=Effort.OTHER,
            cost="slower matrix products",
            said={"adapter": replace(job.said.adapter, base_bits=4)},
        )
    plain = job.strategy in (DataParallel.NONE, DataParallel.DDP, DataParallel.FSDP)
    if plain and job.optimizer is Optimizer.ADAMW and job.said.adapter is None:
        yield Change(
            text="8-bit AdamW (bitsandbytes, torchao)",
            short="8-bit AdamW",
            effort=Effort.OTHER,
            cost="rounded moments",
            said={"optimizer": Optimizer.ADAMW_8BIT},
        )


def _other_cuts(job: Job) -> Iterator[Change]:
    """A dimension out of the ranks that shard, where there is none yet."""
    mesh, shape = job.mesh, job.shape
    whole = {"world_size": mesh.num_ranks, "dp_shard": None, "global_batch": None}
    if shape is not None and mesh.tp == 1 and (size := _largest(mesh.dp_shard, shape.num_heads)) > 1:
        yield Change(
            text=f"tensor parallelism over {size} of these GPUs (tp={size})",
            short=f"tp={size}",
            effort=Effort.OTHER,
            cost="communication in every layer; fewer sequences at once",
            said={**whole, "tp": size},
        )
    long = job.seq_len >= LONG_SEQUENCE
    if long and mesh.cp == 1 and (size := _largest(mesh.dp_shard, job.seq_len)) > 1:
        yield Change(
            text=f"context parallelism over {size} of these GPUs (cp={size})",
            short=f"cp={size}",
            effort=Effort.OTHER,
            cost="keys and values travel; fewer sequences at once",
            said={**whole, "cp": size},
        )


def offloading(job: Job) -> Iterator[Change]:
    """Host memory instead."""
    if job.offload_params is not Offload.NONE or job.offload_optimizer is not Offload.NONE:
        return
    if job.strategy in (DataParallel.FSDP, DataParallel.ZERO3):
        yield Change(
            text="offload parameters and optimizer to the host",
            short="offload to the host",
            effort=Effort.HOST,
            cost="much slower steps",
            said={"offload_params": Offload.CPU, "offload_optimizer": Offload.CPU},
        )
    if job.strategy in (DataParallel.ZERO1, DataParallel.ZERO2):
        yield Change(
            text="offload the optimizer to the host",
            short="offload the optimizer",
            effort=Effort.HOST,
            cost="slower steps",
            said={"offload_optimizer": Offload.CPU},
        )


def more_gpus(job: Job) -> tuple[Change, ...]:
    """Twice the GPUs, four times, …; only where they share states."""
    if job.strategy not in (DataParallel.FSDP, DataParallel.ZERO3):
        return ()
    ranks = job.mesh.num_ranks
    changes = []
    times = 2
    while times <= MAX_SCALE and ranks * times <= MAX_RANKS:
        changes.append(
            Change(
                text=f"{ranks * times} GPUs instead of {ranks}",
                short=f"{ranks * times} GPUs",
                effort=Effort.GPUS,
                cost="twice the GPUs" if times == 2 else f"{times} times the GPUs",
                said={"world_size": ranks * times, "dp_shard": None, "global_batch": None},
            )
        )
        times *= 2
    return tuple(changes)


def _largest(ranks: int, divides: int) -> int:
    """The largest power of two, up to a host's GPUs, that divides both."""
    size = 1
    while size * 2 <= HOST and ranks % (size * 2) == 0 and divides % (size * 2) == 0:
        size *= 2
    return size

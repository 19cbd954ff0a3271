"""One change to a job, and the job with it. The global batch stays: accumulation rises where fewer sequences fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from distdoctor.oom.job import Job, resolve
from distdoctor.oom.mesh import build_mesh
from distdoctor.oom.settings import Settings


class Effort(IntEnum):
    """What a change asks of people and machines, least first."""

    SETTING = 0
    """A setting or a line of code; training stays what it is."""
    OTHER = 1
    """Another strategy, cut or optimizer."""
    HOST = 2
    """Slow steps, and memory of the host."""
    GPUS = 3


class Axis(IntEnum):
    """What is changed; of one axis only one change is made at a time."""

    STRATEGY = 0
    SHARDS = 1
    TENSOR = 2
    CONTEXT = 3
    PIPELINE = 4
    SCHEDULE = 5
    EXPERTS = 6
    OPTIMIZER = 7
    FROZEN_BITS = 8
    OFFLOAD = 9
    ACTIVATION_OFFLOAD = 10
    GPUS = 11
    ATTENTION = 12
    LOSS = 13
    LOSS_PARALLEL = 14
    SEQUENCE_PARALLEL = 15
    BUCKET_VIEW = 16
    OPTIMIZER_LOOP = 17
    RESHARD = 18
    CHECKPOINTING = 19
    MICRO_BATCH = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change."""

    axis: Axis
    text: str
    short: str
    """The same in two or three words, for a list."""
    said: Mapping[str, Any]
    """Fields of Settings. Any: fields have different types."""
    strength: int = 1
    """Among changes of one axis: more saves more, and costs more."""
    price: int = 0
    """0: no cost in speed. Orders changes of one effort."""
    effort: Effort = Effort.SETTING
    remark: str = ""
    """A cost that no number of ours shows."""
    numerics: str = ""
    """How results of training differ; empty: only by rounding in another order."""
    key: tuple[int, int] = field(init=False, default=(0, 0))

    def __post_init__(self) -> None:
        # What it is among all changes; texts may be equal, this is not.
        object.__setattr__(self, "key", (int(self.axis), self.strength))


def spelled_out(job: Job) -> Job:
    """The same job with its mesh, strategy and batch said in full, so that a change replaces exactly what it names."""
    mesh = job.mesh
    said = replace(
        job.said,
        world_size=mesh.num_ranks,
        pp=mesh.pp,
        dp_replicate=mesh.dp_replicate,
        dp_shard=mesh.dp_shard,
        cp=mesh.cp,
        tp=mesh.tp,
        ep=mesh.ep,
        etp=mesh.etp,
        strategy=job.strategy,
        precision=job.precision,
        micro_batch=job.micro_batch,
        accumulation_steps=job.num_micro_batches,
        global_batch=None,
        seq_len=job.seq_len,
        checkpointing=job.checkpointing,
        reshard_after_forward=job.reshard_after_forward,
    )
    return replace(job, said=said)


def global_batch_of(job: Job) -> int:
    """Sequences of all ranks in one optimizer step."""
    return job.micro_batch * job.mesh.dp * job.num_micro_batches


def changed(job: Job, change: Change, *, global_batch: int) -> Job:
    """`job` (spelled out) with `change`; as many micro-batches a step as `global_batch` takes, at least one.

    Raises UsageError for what cannot be.
    """
    said: Settings = replace(job.said, **change.said)
    micro = said.micro_batch or 1
    steps = -(-global_batch // (micro * build_mesh(said).dp))
    return spelled_out(resolve(replace(said, accumulation_steps=max(1, steps), global_batch=None)))

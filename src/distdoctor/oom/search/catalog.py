"""Every kind of change, those that ask more of people first in the order of `Axis`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from distdoctor.oom.job import Job
from distdoctor.oom.search import cuts, settings, strategies
from distdoctor.oom.search.change import Axis, Change

CHANGES: dict[Axis, Callable[[Job], Iterator[Change]]] = {
    Axis.STRATEGY: strategies.strategy,
    Axis.SHARDS: strategies.shards,
    Axis.TENSOR: cuts.tensor,
    Axis.CONTEXT: cuts.context,
    Axis.PIPELINE: cuts.pipeline,
    Axis.SCHEDULE: cuts.schedule,
    Axis.EXPERTS: cuts.experts,
    Axis.OPTIMIZER: strategies.optimizer,
    Axis.FROZEN_BITS: strategies.frozen_bits,
    Axis.OFFLOAD: strategies.offload,
    Axis.ACTIVATION_OFFLOAD: strategies.activation_offload,
    Axis.GPUS: strategies.more_gpus,
    Axis.ATTENTION: settings.attention,
    Axis.LOSS: settings.loss,
    Axis.LOSS_PARALLEL: settings.loss_parallel,
    Axis.SEQUENCE_PARALLEL: settings.sequence_parallel,
    Axis.BUCKET_VIEW: settings.bucket_view,
    Axis.OPTIMIZER_LOOP: settings.optimizer_loop,
    Axis.RESHARD: settings.reshard,
    Axis.CHECKPOINTING: settings.checkpointing,
    Axis.MICRO_BATCH: settings.micro_batch,
}

# Settings: what may be added to any other change.
SETTINGS = tuple(axis for axis in Axis if axis >= Axis.ATTENTION)
DEAR = tuple(axis for axis in Axis if axis < Axis.ATTENTION)


def changes_of(job: Job, axis: Axis) -> tuple[Change, ...]:
    """Changes of one axis to this job, the gentlest first."""
    return tuple(CHANGES[axis](job))

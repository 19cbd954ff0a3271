"""ZeRO-2: DeepSpeed shards optimizer states and gradients; parameters stay whole."""

from __future__ import annotations

from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel
from distdoctor.oom.strategies.base import States, Strategy
from distdoctor.oom.strategies.zero1 import sharded_optimizer_states


def states(local: LocalModel, job: Job) -> States:
    """Stage 2."""
    return sharded_optimizer_states(local, job, shards_gradients=True)


STRATEGY = Strategy(
    kind=DataParallel.ZERO2,
    title="ZeRO-2",
    page="zero2",
    states=states,
    shards_gradients=True,
    shards_optimizer=True,
)

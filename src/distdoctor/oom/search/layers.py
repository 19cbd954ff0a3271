"""How many layers must be checkpointed, where checkpointing all of them is enough."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.errors import UsageError
from distdoctor.oom.estimate import estimate
from distdoctor.oom.job import MEGATRON, resolve
from distdoctor.oom.search.change import Axis
from distdoctor.oom.search.room import Room
from distdoctor.oom.search.trial import Trial
from distdoctor.oom.settings import Checkpointing


def least_layers(trial: Trial, room: Room, accepts: frozenset[object]) -> tuple[int, int] | None:
    """(the fewest layers of a rank that must be checkpointed for `trial` to fit, all of them); None where it takes all,
    or `trial` does not checkpoint fully. Megatron-LM chooses layers in its own way."""
    job = trial.job
    is_full = Axis.CHECKPOINTING in trial.axes and job.checkpointing is Checkpointing.FULL
    if not is_full or job.shape is None or job.strategy in MEGATRON:
        return None
    most = -(-job.shape.num_layers // job.mesh.pp)
    low, high = 0, most  # `high` layers are enough, `low` are not: without checkpointing it was more
    while high - low > 1:
        middle = (low + high) // 2
        try:
            made = estimate(resolve(replace(job.said, checkpoint_layers=middle)))
        except UsageError:
            return None
        if room.fit(made).answer in accepts:
            high = middle
        else:
            low = middle
    return (high, most) if high < most else None

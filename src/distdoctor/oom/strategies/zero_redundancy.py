"""DDP with torch's ZeroRedundancyOptimizer: ZeRO-1 without DeepSpeed. Whole gradients in buckets, states spread."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel
from distdoctor.oom.strategies import ddp
from distdoctor.oom.strategies.base import (
    States,
    Strategy,
    data_shares,
    per_parameter,
    state_amounts,
)


def states(local: LocalModel, job: Job) -> States:
    """As DDP, but each rank keeps the moments of its own parameters only; they are spread parameter by parameter, so
    a rank with a large one holds more than its share."""
    per = per_parameter(job)
    shares = data_shares(job)
    return replace(
        ddp.states(local, job),
        from_first_step=state_amounts(Category.OPTIMIZER, per.moments, local, shares),
        at_step=(
            *state_amounts(Category.TEMPORARIES, per.step_temporary, local, shares, what="foreach"),
            *state_amounts(Category.TEMPORARIES, per.cast_gradient, local, shares, what="gradients in fp32"),
        ),
    )


STRATEGY = Strategy(
    kind=DataParallel.ZERO_REDUNDANCY,
    title="DDP + ZeroRedundancyOptimizer",
    page="zero1",
    states=states,
    shards_optimizer=True,
)

"""ZeRO-2: DeepSpeed shards optimizer states and gradients; parameters stay whole."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.formulas.buffers import reduced_copy_elements
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel, Offload
from distdoctor.oom.strategies.base import (
    States,
    Strategy,
    amount,
    data_shares,
    per_parameter,
    state_amounts,
)
from distdoctor.oom.strategies.zero1 import (
    NORM_BYTES,
    largest_parameter,
    owned_elements,
    sharded_optimizer_states,
)


def states(local: LocalModel, job: Job) -> States:
    """Stage 2: a full bucket is copied together and reduced; of it this rank keeps what its partition touches, once for
    the micro-batches before and once for the one in hand."""
    per = per_parameter(job)
    shares = data_shares(job)
    shared = sharded_optimizer_states(local, job)
    bucket = reduced_copy_elements(local.numel, bucket=job.said.reduce_bucket_elements)
    if job.offload_optimizer is not Offload.NONE:
        # Each reduced gradient goes to the host, and none is kept.
        norm = min(largest_parameter(local), shares.of(local))
        at_end = (
            amount(Category.COMMUNICATION, per.gradient, bucket, what="gradients being reduced"),
            amount(Category.TEMPORARIES, NORM_BYTES, norm, what="of one gradient in fp64, for its norm"),
        )
        return replace(shared, at_gradients_done=at_end)
    own = shares.of(local)
    touched = owned_elements(local, job)
    # Where one bucket takes all gradients, the partition's are kept after its copy is gone.
    reduced = max(bucket, touched) - touched if bucket >= local.numel else bucket
    extra = reduced + (touched - own) + (touched if job.num_micro_batches > 1 else 0.0)
    return replace(
        shared,
        gradients=state_amounts(Category.GRADIENTS, per.gradient, local, shares),
        at_gradients_done=(
            amount(
                Category.COMMUNICATION, per.gradient, extra, what="gradients being reduced and not yet added"
            ),
        ),
    )


STRATEGY = Strategy(
    kind=DataParallel.ZERO2,
    title="ZeRO-2",
    page="zero2",
    states=states,
    shards_gradients=True,
    shards_optimizer=True,
)

"""ZeRO-1: DeepSpeed shards the optimizer states; parameters and gradients stay whole."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.buffers import ALLGATHER_BUCKET, deepspeed_reduce_bytes
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel, Offload
from distdoctor.oom.strategies.base import (
    WHOLE,
    States,
    Strategy,
    amount,
    data_shares,
    per_parameter,
    state_amounts,
)


def states(local: LocalModel, job: Job) -> States:
    """Stage 1."""
    return sharded_optimizer_states(local, job, shards_gradients=False)


def sharded_optimizer_states(local: LocalModel, job: Job, *, shards_gradients: bool) -> States:
    """What stages 1 and 2 share (deepspeed/runtime/zero/stage_1_and_2.py): 16-bit parameters whole, fp32 master copy
    and moments of this rank's partition, a contiguous buffer in which gradients are reduced, and in the step the
    partition's gradients in fp32."""
    per = per_parameter(job)
    shares = data_shares(job)
    offloaded = job.offload_optimizer is not Offload.NONE
    gradients = state_amounts(Category.GRADIENTS, per.gradient, local, shares if shards_gradients else WHOLE)
    master = state_amounts(Category.OPTIMIZER, per.master, local, shares)
    moments = state_amounts(Category.OPTIMIZER, per.moments, local, shares)
    step_gradients = state_amounts(Category.TEMPORARIES, 4.0, local, shares, what="gradients in fp32")
    gathered = allgather_buffer(local, job, element=per.parameter)
    resident = state_amounts(Category.PARAMETERS, per.parameter, local, WHOLE)
    buffers = reduce_buffers(local, job, element=per.gradient)
    if not offloaded:
        return States(
            # DeepSpeed steps once over zeros when it starts (`initialize_optimizer_states`), so moments are there.
            resident=resident + master + moments,
            from_first_backward=buffers,
            gradients=gradients,
            at_step=(*step_gradients, gathered),
        )
    return States(
        resident=resident,
        from_first_backward=buffers,
        # Stage 2 sends each reduced bucket to the host and keeps none.
        gradients=() if shards_gradients else gradients,
        at_step=(gathered,),
        host_bytes=(per.master + per.moments + 4.0) * shares.of(local),
        host_how="fp32 master copy, moments and gradients of this rank's partition, pinned",
    )


def reduce_buffers(local: LocalModel, job: Job, *, element: float) -> tuple[Amount, ...]:
    """The buffer (two with overlap_comm) that collects gradients until they are reduced."""
    overlaps = bool(job.said.overlap_comm)
    num_bytes = deepspeed_reduce_bytes(
        local.numel, bucket=job.said.reduce_bucket_elements, element=int(element) or 2, overlaps=overlaps
    )
    how = f"reduce_bucket_size{' x 2 (overlap_comm)' if overlaps else ''}, at most all gradients"
    return (Amount(category=Category.COMMUNICATION, num_bytes=num_bytes, how=how),)


def allgather_buffer(local: LocalModel, job: Job, *, element: float) -> Amount:
    """Updated parameters are gathered in pieces of allgather_bucket_size."""
    bucket = job.said.allgather_bucket_elements
    elements = min(local.numel, float(ALLGATHER_BUCKET if bucket is None else bucket))
    return amount(Category.COMMUNICATION, element, elements, what="elements of allgather_bucket_size")


STRATEGY = Strategy(
    kind=DataParallel.ZERO1,
    title="ZeRO-1",
    page="zero1",
    states=states,
    shards_optimizer=True,
    over="dp",
)

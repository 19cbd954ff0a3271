"""ZeRO-1: DeepSpeed shards the optimizer states; parameters and gradients stay whole."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.buffers import deepspeed_reduce_bytes, reduced_copy_elements
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel, Offload
from distdoctor.oom.strategies.base import (
    WHOLE,
    PerParameter,
    States,
    Strategy,
    amount,
    data_shares,
    per_parameter,
    state_amounts,
)

# DeepSpeed computes each gradient's norm in fp64 (zero/utils.py, `get_norm_dtype`).
NORM_BYTES = 8.0


def states(local: LocalModel, job: Job) -> States:
    """Stage 1: whole gradients until the last micro-batch is through. The buffer is there from its first one on; what
    is reduced leaves the whole gradients, so that only this rank's part comes on top of them."""
    per = per_parameter(job)
    shared = sharded_optimizer_states(local, job)
    bucket = reduced_copy_elements(local.numel, bucket=job.said.reduce_bucket_elements)
    own = owned_elements(local, job)
    accumulates = job.num_micro_batches > 1
    return replace(
        shared,
        gradients=state_amounts(Category.GRADIENTS, per.gradient, local, WHOLE),
        at_loss=shared.at_backward if accumulates else (),
        at_gradients_done=()
        if job.offload_optimizer is not Offload.NONE
        else (
            amount(
                Category.COMMUNICATION, per.gradient, max(0.0, own - bucket), what="reduced gradients kept"
            ),
        ),
    )


def sharded_optimizer_states(local: LocalModel, job: Job) -> States:
    """What stages 1 and 2 share (deepspeed/runtime/zero/stage_1_and_2.py, 0.19.8): 16-bit parameters whole, fp32 master
    copy and, from the first step on, moments of this rank's partition; while gradients are there, the buffer in which
    they are reduced. Parameters are gathered in place after the step, whatever allgather_bucket_size says: it counts
    where torch has no all_gather_into_tensor."""
    per = per_parameter(job)
    shares = data_shares(job)
    resident = state_amounts(Category.PARAMETERS, per.parameter, local, WHOLE)
    buffers = reduce_buffers(job, element=per.gradient, overlaps=bool(job.said.overlap_comm))
    if job.offload_optimizer is Offload.NONE:
        return States(
            resident=resident + state_amounts(Category.OPTIMIZER, per.master, local, shares),
            from_first_step=state_amounts(Category.OPTIMIZER, per.moments, local, shares),
            at_backward=buffers,
            at_step=step_amounts(local, job, per, stepped=shares.of(local)),
            step_frees_gradients=True,
        )
    largest = largest_parameter(local)
    return States(
        resident=(*resident, amount(Category.COMMUNICATION, per.gradient, largest, what="of one gradient")),
        at_backward=buffers,
        step_frees_gradients=True,
        host_bytes=(per.master + per.moments + 4.0 + per.parameter) * shares.of(local),
        host_how="fp32 master copy, moments, gradients and a 16-bit copy of this rank's partition, pinned",
    )


def step_amounts(local: LocalModel, job: Job, per: PerParameter, *, stepped: float) -> tuple[Amount, ...]:
    """The step over this rank's gradients: their norm in fp64 parameter by parameter, then all of them in one piece and
    in fp32. `stepped`: elements that are cast at once."""
    own = data_shares(job).of(local)
    cast = per.gradient + (4.0 if per.gradient < 4 else 0.0)
    norm = NORM_BYTES * min(own, largest_parameter(local))
    temporary = max(cast * stepped, norm, per.step_temporary * stepped)
    how = f"gradients of {own:.3g} parameters flattened and in fp32, or one in fp64 for the norm"
    kept = amount(Category.GRADIENTS, per.gradient, own, what="reduced gradients")
    return (kept, Amount(category=Category.TEMPORARIES, num_bytes=temporary, how=how))


def largest_parameter(local: LocalModel) -> float:
    """Elements of the embedding or the output, which are larger than any matrix of a layer."""
    return max(local.embedding.numel, local.output.numel)


def owned_elements(local: LocalModel, job: Job) -> float:
    """Elements of the parameters that a rank's partition touches: their gradients are kept whole, though it needs only
    its part of the first and the last (`copy_grads_in_partition`)."""
    own = data_shares(job).of(local)
    return min(local.numel, max(own, largest_parameter(local)))


def reduce_buffers(job: Job, *, element: float, overlaps: bool) -> tuple[Amount, ...]:
    """The buffer (two with overlap_comm) that collects gradients until they are reduced."""
    num_bytes = deepspeed_reduce_bytes(
        bucket=job.said.reduce_bucket_elements, element=int(element) or 2, overlaps=overlaps
    )
    how = f"reduce_bucket_size{' x 2 (overlap_comm)' if overlaps else ''}, whatever the model's size"
    return (Amount(category=Category.COMMUNICATION, num_bytes=num_bytes, how=how),)


STRATEGY = Strategy(
    kind=DataParallel.ZERO1,
    title="ZeRO-1",
    page="zero1",
    states=states,
    shards_optimizer=True,
    over="dp",
)

"""ZeRO-3: DeepSpeed shards everything and gathers each module's parameters when it is their turn."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.buffers import SUB_GROUP, live_parameter_elements, reduced_copy_elements
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel, Offload
from distdoctor.oom.strategies.base import (
    PerParameter,
    States,
    Strategy,
    amount,
    data_shares,
    per_parameter,
    state_amounts,
    whole_before_sharding,
)
from distdoctor.oom.strategies.zero1 import reduce_buffers, step_amounts


def states(local: LocalModel, job: Job) -> States:
    """Stage 3 (deepspeed/runtime/zero/stage3.py, 0.19.8): shards of all states, and parameters that are whole.

    The gradients' shards and the buffer in which they are reduced are there from the start, moments from the first
    step. The step goes over sub-groups of sub_group_size elements. Parameters below stage3_param_persistence_threshold
    (norms, biases) stay whole: too few to count.
    """
    per = per_parameter(job)
    shares = data_shares(job)
    own = shares.of(local)
    optimizer_out = job.offload_optimizer is not Offload.NONE
    params_out = job.offload_params is not Offload.NONE
    kept, ahead = _live(local, job, per.parameter)
    bucket = reduced_copy_elements(local.numel, bucket=job.said.reduce_bucket_elements)
    parameters = state_amounts(Category.PARAMETERS, per.parameter, local, shares)
    master = state_amounts(Category.OPTIMIZER, per.master, local, shares)
    moments = state_amounts(Category.OPTIMIZER, per.moments, local, shares)
    gradients = state_amounts(Category.GRADIENTS, per.gradient, local, shares)
    host = (per.master + per.moments + 4.0 + per.gradient) if optimizer_out else 0.0
    host += per.parameter if params_out else 0.0
    resident = (() if params_out else parameters) + (() if optimizer_out else master + gradients)
    return States(
        resident=resident + reduce_buffers(job, element=per.gradient, overlaps=False),
        from_first_step=() if optimizer_out else moments,
        at_initialisation=whole_before_sharding(local, job),
        at_loss=(kept, ahead),
        at_backward=(kept, ahead, replace(ahead, how="the same, copied out")),
        at_gradients_done=(
            amount(Category.COMMUNICATION, per.gradient, bucket, what="gradients being reduced"),
        ),
        at_step=() if optimizer_out else _step_temporaries(local, job, per, own),
        host_bytes=host * own,
        host_how=_host_words(optimizer_out=optimizer_out, params_out=params_out),
    )


def _step_temporaries(local: LocalModel, job: Job, per: PerParameter, own: float) -> tuple[Amount, ...]:
    """What the step takes beside the gradients' shards, which are resident: a search for infinities over all of them
    (a copy and a mask of bytes), one parameter's shard in fp64 for the norm, or a sub-group in fp32."""
    _, cast = step_amounts(local, job, per, stepped=min(own, float(SUB_GROUP)))
    search = (per.gradient + 1.0) * own
    return (replace(cast, num_bytes=max(cast.num_bytes, search)),)


def _live(local: LocalModel, job: Job, element: float) -> tuple[Amount, Amount]:
    """Parameters that are whole, and those that travel ahead of their use."""
    said = job.said
    live = live_parameter_elements(
        local.numel if job.mesh.shard_ranks > 1 else 0.0,
        max_live=said.max_live_elements,
        max_reuse=said.max_reuse_elements,
        prefetch=said.prefetch_bucket_elements,
        largest_unit=local.largest_unit.numel,
    )
    return (
        amount(
            Category.GATHERED,
            element,
            live.kept,
            what="live parameters: half of stage3_max_reuse_distance, or the largest module",
        ),
        amount(Category.GATHERED, element, live.prefetched, what="parameters of the prefetch bucket"),
    )


def _host_words(*, optimizer_out: bool, params_out: bool) -> str:
    parts = []
    if optimizer_out:
        parts.append("fp32 master copy, moments and gradients")
    if params_out:
        parts.append("16-bit parameters")
    return f"{' and '.join(parts)} of this rank's shard" if parts else ""


STRATEGY = Strategy(
    kind=DataParallel.ZERO3,
    title="ZeRO-3",
    page="zero3",
    states=states,
    shards_parameters=True,
    shards_gradients=True,
    shards_optimizer=True,
)

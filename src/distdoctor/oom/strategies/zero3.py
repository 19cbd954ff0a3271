"""ZeRO-3: DeepSpeed shards everything and gathers each module's parameters when it is their turn."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.buffers import live_parameter_elements
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel, Offload
from distdoctor.oom.strategies.base import (
    States,
    Strategy,
    data_shares,
    per_parameter,
    state_amounts,
    whole_before_sharding,
)
from distdoctor.oom.strategies.zero1 import reduce_buffers


def states(local: LocalModel, job: Job) -> States:
    """Stage 3 (deepspeed/runtime/zero/stage3.py): shards of all states, and up to stage3_max_live_parameters whole.

    Parameters below stage3_param_persistence_threshold (norms, biases) stay whole: too few to count.
    """
    per = per_parameter(job)
    shares = data_shares(job)
    optimizer_out = job.offload_optimizer is not Offload.NONE
    params_out = job.offload_params is not Offload.NONE
    live = Amount(
        category=Category.GATHERED,
        num_bytes=per.parameter * _live_elements(local, job),
        how="live parameters: stage3_max_live_parameters, or the largest module and the prefetch bucket",
    )
    parameters = state_amounts(Category.PARAMETERS, per.parameter, local, shares)
    master = state_amounts(Category.OPTIMIZER, per.master, local, shares)
    moments = state_amounts(Category.OPTIMIZER, per.moments, local, shares)
    gradients = state_amounts(Category.GRADIENTS, per.gradient, local, shares)
    step_gradients = state_amounts(Category.TEMPORARIES, 4.0, local, shares, what="gradients in fp32")
    host = (per.master + per.moments + 4.0) if optimizer_out else 0.0
    host += per.parameter if params_out else 0.0
    return States(
        resident=(() if params_out else parameters) + (() if optimizer_out else master + moments),
        from_first_backward=reduce_buffers(local, job, element=per.gradient),
        gradients=() if optimizer_out else gradients,
        at_initialisation=whole_before_sharding(local, job),
        at_loss=(live,),
        at_backward=(live,),
        at_step=() if optimizer_out else step_gradients,
        host_bytes=host * shares.of(local),
        host_how=_host_words(optimizer_out=optimizer_out, params_out=params_out),
    )


def _live_elements(local: LocalModel, job: Job) -> float:
    if job.mesh.shard_ranks == 1:
        return 0.0
    return live_parameter_elements(
        local.numel,
        max_live=job.said.max_live_elements,
        prefetch=job.said.prefetch_bucket_elements,
        largest_unit=local.largest_unit.numel,
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

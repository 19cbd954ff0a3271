"""FSDP2 (`fully_shard`): every rank holds a shard of everything and gathers one unit ahead of the one in use."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.gathered import (
    accumulated_gradient_bytes,
    backward_bytes,
    expert_padding,
    forward_bytes,
)
from distdoctor.oom.formulas.states import reduced_bytes
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import DataParallel, Offload, Precision
from distdoctor.oom.strategies.base import (
    States,
    Strategy,
    amount,
    data_shares,
    per_parameter,
    state_amounts,
    whole_before_sharding,
)
from distdoctor.oom.strategies.single import whole_embedding_gradient


def states(local: LocalModel, job: Job) -> States:
    """Shards over dp_shard x cp (HSDP: replicated over dp_replicate), and what is gathered while it is used."""
    per = per_parameter(job)
    shares = data_shares(job)
    shares = replace(shares, expert=shares.expert / _padding(job))
    base = States(
        resident=(),
        at_initialisation=whole_before_sharding(local, job),
        at_loss=_gathered(local, job, in_backward=False),
        at_backward=_gathered(local, job, in_backward=True),
        at_gradients_done=_embeddings_turn(local, job),
        goes_with_backward=_kept_gathered(local, job),
        waiting_gradients=_waiting_gradients(local, job),
    )
    if job.offload_params is not Offload.NONE:
        each = per.parameter + per.gradient + per.master + per.moments
        return replace(
            base,
            host_bytes=each * shares.of(local),
            host_how="parameters, gradients and moments of this rank's shard",
        )
    parameters = state_amounts(Category.PARAMETERS, per.parameter, local, shares)
    return replace(
        base,
        resident=parameters + state_amounts(Category.OPTIMIZER, per.master, local, shares),
        from_first_step=state_amounts(Category.OPTIMIZER, per.moments, local, shares),
        gradients=state_amounts(Category.GRADIENTS, per.gradient, local, shares),
        gradients_come_last=_accumulates_whole(job),
        at_step=(
            *state_amounts(Category.TEMPORARIES, per.step_temporary, local, shares, what="foreach"),
            *state_amounts(Category.TEMPORARIES, per.cast_gradient, local, shares, what="gradients in fp32"),
        ),
    )


def _gathered(local: LocalModel, job: Job, *, in_backward: bool) -> tuple[Amount, ...]:
    """Whole parameters and gradients of the units in use; nothing where one rank holds everything anyway."""
    if not _gathers(job):
        return ()
    keeps_all = not job.reshard_after_forward
    if in_backward and not _accumulates_whole(job):
        # Each unit is freed behind its backward pass, kept until then or not: `_kept_gathered`.
        keeps_all = False
    element = _element(job)
    amounts = []
    if in_backward:
        parameters, reducing = backward_bytes(
            local,
            element=element,
            reduce_element=_reduce_bytes(job),
            keeps_all=keeps_all,
            padding=_padding(job),
        )
        if job.said.adapter is not None or keeps_all:
            # Those of a pipeline are added to what is accumulated, and reduced when few micro-batches are left.
            reducing = 0.0
        amounts.append(
            Amount(
                category=Category.GATHERED,
                num_bytes=parameters,
                how="every unit, kept from its first use"
                if keeps_all
                else "the unit in use and the one ahead",
            )
        )
        amounts.append(
            Amount(
                category=Category.GATHERED,
                num_bytes=reducing,
                how="one unit's whole gradients, and the input of their reduce-scatter",
            )
        )
    else:
        amounts.append(
            Amount(
                category=Category.GATHERED,
                num_bytes=forward_bytes(local, element=element, keeps_all=keeps_all, padding=_padding(job)),
                how="every unit, kept after its forward"
                if keeps_all
                else "the output's unit and one layer ahead",
            )
        )
    return tuple(amounts)


def _kept_gathered(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """Units that stay gathered from the forward pass on, beyond the two that are anyway when the backward pass begins;
    a pipeline's stay until its last micro-batch."""
    if job.reshard_after_forward or _accumulates_whole(job) or not _gathers(job):
        return ()
    all_units, two = (
        backward_bytes(
            local, element=_element(job), reduce_element=0, keeps_all=keeps_all, padding=_padding(job)
        )[0]
        for keeps_all in (True, False)
    )
    how = "every unit, kept from its first use"
    return (Amount(category=Category.GATHERED, num_bytes=max(0.0, all_units - two), how=how),)


def _gathers(job: Job) -> bool:
    """Whether anything is whole for a moment only. Even alone, a mixed-precision policy casts each unit that it uses."""
    is_alone = job.mesh.shard_ranks == 1 and job.expert_shard_ranks == 1
    return not is_alone or job.precision is Precision.MIXED


def _element(job: Job) -> float:
    """Bytes of a gathered parameter."""
    return job.compute_bytes if job.said.adapter is None else per_parameter(job).parameter


def _waiting_gradients(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """Whole ones, under the schedules of a pipeline."""
    if not _accumulates_whole(job):
        return ()
    return (
        Amount(
            category=Category.GATHERED,
            num_bytes=accumulated_gradient_bytes(
                local, reduce_element=_reduce_bytes(job), unreduced=whole_embedding_gradient(local, job)
            ),
            how="whole gradients, accumulated until the last micro-batch of the pipeline",
        ),
    )


def _embeddings_turn(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """Under tp, the gradient of the whole vocabulary, which each rank has before its rows are added up."""
    elements = whole_embedding_gradient(local, job)
    if not elements or job.said.adapter is not None or _accumulates_whole(job):
        return ()
    whole = elements + local.embedding.dense
    what = "elements of the embedding's gradient, for the whole vocabulary"
    return (amount(Category.TEMPORARIES, job.compute_bytes, whole, what=what),)


def _padding(job: Job) -> float:
    """Of experts that are cut with everything else; those of expert parallelism are cut along another dimension."""
    if job.shape is None or job.shape.moe is None or job.mesh.ep * job.mesh.etp > 1:
        return 1.0
    return expert_padding(job.shape.moe.num_experts, job.mesh.shard_ranks)


def _accumulates_whole(job: Job) -> bool:
    """Whether gradients stay whole until the last micro-batch, as under torch's pipeline schedules."""
    return job.mesh.pp > 1 and job.num_micro_batches > 1 and job.said.adapter is None


def _reduce_bytes(job: Job) -> int:
    return reduced_bytes(job.precision, in_fp32=job.grads_in_fp32)


STRATEGY = Strategy(
    kind=DataParallel.FSDP,
    title="FSDP2",
    page="fsdp2",
    states=states,
    shards_parameters=True,
    shards_gradients=True,
    shards_optimizer=True,
    over="dp_shard x cp",
)

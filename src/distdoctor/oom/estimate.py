"""Where the memory goes, by formula: every kind of rank, every moment that can be the peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from distdoctor.oom.activations import Activations, activations_of, one_layer
from distdoctor.oom.facts.estimate import Amount, Category, Estimate, Moment, MomentBytes, RoleEstimate
from distdoctor.oom.formulas.outside import allocator_slack, outside_ranges
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel, local_models
from distdoctor.oom.placements import placements_of
from distdoctor.oom.settings import Checkpointing, DataParallel
from distdoctor.oom.strategies import pipeline_parallel
from distdoctor.oom.strategies.all import strategy_of
from distdoctor.oom.strategies.base import States, Strategy
from distdoctor.oom.strategies.pipeline_parallel import role_words


def estimate(job: Job) -> Estimate:
    """The estimate of one job."""
    strategy = strategy_of(job.strategy)
    job, locals_ = prepared(job)
    roles = tuple(_role(local, job, strategy) for local in locals_)
    peak = max(role.peak.num_bytes for role in roles)
    return Estimate(
        title=_title(job),
        roles=roles,
        outside=outside_ranges(job),
        slack=allocator_slack(peak),
        placements=placements_of(job, strategy),
        assumptions=job.assumptions,
        notes=job.notes,
        not_covered=(*job.not_covered, *pipeline_parallel.not_covered(job)),
        is_whole=job.shape is not None,
    )


def prepared(job: Job) -> tuple[Job, tuple[LocalModel, ...]]:
    """The job as its strategy's framework changes it, and what each pipeline rank holds of the model."""
    strategy = strategy_of(job.strategy)
    if strategy.prepare is not None:
        job = strategy.prepare(job)
    chunks = strategy.chunks(job) if strategy.chunks is not None and job.shape is not None else None
    return job, local_models(job, chunks)


def _role(local: LocalModel, job: Job, strategy: Strategy) -> RoleEstimate:
    states = strategy.states(local, job)
    activations = (strategy.activations or activations_of)(local, job)
    moments = [
        MomentBytes(
            moment=Moment.INITIALISATION,
            step=0,
            amounts=_merged(states.resident + states.at_initialisation),
        )
    ]
    for step in (1, 2):
        moments += _step(local, job, states, activations, step)
    return RoleEstimate(
        role=role_words(local, job),
        stage=local.stage,
        num_ranks=job.mesh.num_ranks // job.mesh.pp,
        local_params=local.numel,
        moments=tuple(moments),
        host_bytes=states.host_bytes,
        host_how=states.host_how,
    )


def _step(
    local: LocalModel, job: Job, states: States, activations: Activations, step: int
) -> list[MomentBytes]:
    """The moments of one step. In the first one nothing is there yet that the first backward or step allocates."""
    kept = states.resident
    if step > 1:
        kept += states.from_first_step
    kept_in_forward = kept + (states.from_first_backward if step > 1 else ())
    kept_later = kept + states.from_first_backward
    # From the second micro-batch on, gradients of the ones before are there.
    accumulates = job.num_micro_batches > 1 and not states.gradients_come_last
    accumulated = (states.gradients if accumulates else ()) + states.waiting_gradients
    if activations.before_gradients:
        accumulated = ()
    begun = accumulated or (() if states.gradients_come_last else _first_gradients(local, states))
    stepped = kept_later + (states.from_first_step if step == 1 else ())
    if not states.step_frees_gradients:
        stepped += states.gradients
    # Gradients that come last take the place of whole ones, layer by layer, which are more.
    own = () if states.gradients_come_last else states.gradients
    done = kept_later + own + states.waiting_gradients + states.at_backward
    in_last_layer = _last_layers_turn(local, job)
    by_moment = (
        (
            Moment.LOSS,
            (kept_later if accumulated else kept_in_forward)
            + accumulated
            + states.at_loss
            + activations.kept
            + activations.loss,
        ),
        (
            Moment.BACKWARD,
            kept_later
            + begun
            + states.at_backward
            + states.goes_with_backward
            + activations.kept
            + activations.backward,
        ),
        (Moment.GRADIENTS_DONE, done + max(in_last_layer, states.at_gradients_done, key=_total)),
        (Moment.OPTIMIZER_STEP, stepped + states.at_step),
    )
    return [MomentBytes(moment=moment, step=step, amounts=_merged(amounts)) for moment, amounts in by_moment]


def _last_layers_turn(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """Activations that are left when the first layer's gradients are computed, the last ones of a backward pass. What
    comes after the pass must be compared with all that this layer has, kept or computed again: it is the same."""
    whole = replace(job, checkpointing=Checkpointing.NONE)
    return activations_of(local, whole).backward + one_layer(local, whole)


def _total(amounts: Sequence[Amount]) -> float:
    return sum(each.num_bytes for each in amounts)


def _first_gradients(local: LocalModel, states: States) -> tuple[Amount, ...]:
    """Gradients that are there when the last layer's backward runs: those of the output."""
    total = _total(states.gradients)
    if not total or not local.numel:
        return ()
    num_bytes = total * local.output.numel / local.numel
    if not num_bytes:
        return ()
    return (Amount(category=Category.GRADIENTS, num_bytes=num_bytes, how="gradients of the output so far"),)


def _merged(amounts: Sequence[Amount]) -> tuple[Amount, ...]:
    """Amounts in the order of categories."""
    order = {category: index for index, category in enumerate(Category)}
    return tuple(
        sorted((each for each in amounts if each.num_bytes > 0), key=lambda each: order[each.category])
    )


def _title(job: Job) -> str:
    strategy = strategy_of(job.strategy)
    title = strategy.title
    if job.strategy is DataParallel.FSDP and job.mesh.dp_replicate > 1:
        title = "HSDP"
    words = job.mesh.words()
    return title if words == "one rank" else f"{title} on {words}"

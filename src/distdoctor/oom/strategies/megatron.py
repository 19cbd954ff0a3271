"""Megatron-LM's data parallelism: contiguous buffers, fp32 main gradients, and a distributed optimizer or not.

Source: megatron-core 0.16.1, `distributed/param_and_grad_buffer.py`, `distributed/distributed_data_parallel.py`,
`optimizer/optimizer.py` and `optimizer/distrib_optimizer.py`; 18 and 6 + 12 / D bytes also in
`megatron/training/theoretical_memory_usage.py`.
"""

from __future__ import annotations

from dataclasses import replace

from distdoctor.errors import UsageError
from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.megatron.loss import padded_vocabulary
from distdoctor.oom.formulas.megatron.pipeline import layers_of_chunks
from distdoctor.oom.formulas.states import moment_bytes
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.megatron_details import MegatronDetails
from distdoctor.oom.settings import DataParallel, Precision
from distdoctor.oom.strategies.base import WHOLE, Shares, States, Strategy, amount, state_amounts
from distdoctor.oom.strategies.megatron_activations import activations_of, left_over_amounts
from distdoctor.oom.strategies.megatron_buffers import workspace_amounts
from distdoctor.oom.strategies.megatron_layers import details_of

# `--make-vocab-size-divisible-by` (megatron/training/arguments.py).
VOCABULARY_DIVISOR = 128


def prepare(job: Job) -> Job:
    """The job with Megatron's padded vocabulary, and notes on what the formulas do not cover."""
    reasons = job.said.megatron.not_covered if job.said.megatron is not None else ()
    if job.strategy is DataParallel.MEGATRON_FSDP and not reasons:
        reasons = ("buffers of Megatron-FSDP",)
    if reasons:
        notes = tuple(f"Not covered, so the real need differs: {reason}." for reason in reasons)
        job = replace(job, notes=(*job.notes, *notes), not_covered=reasons)
    if job.shape is None or not job.shape.vocab_size:
        return job
    divisor = job.said.vocab_divisor or VOCABULARY_DIVISOR
    padded = padded_vocabulary(job.shape.vocab_size, divisor=divisor, tp=job.mesh.tp)
    if padded == job.shape.vocab_size:
        return job
    note = f"Vocabulary of {job.shape.vocab_size:,} padded to {padded:,}, a multiple of {divisor} x tp."
    shape = replace(job.shape, vocab_size=padded)
    return replace(job, model=replace(job.model, shape=shape), notes=(*job.notes, note))


def chunks(job: Job) -> list[range]:
    """Layers of each virtual stage. Raises UsageError when they cannot be split that way."""
    details = details_of(job)
    num_layers = job.shape.num_layers if job.shape is not None else 0
    found = layers_of_chunks(
        num_layers,
        pp=job.mesh.pp,
        virtual=job.virtual_stages,
        first=details.first_stage_layers,
        last=details.last_stage_layers,
        counts_embedding=details.counts_embedding_in_split,
        counts_loss=details.counts_loss_in_split,
        layout=details.layout,
    )
    if found is None:
        raise UsageError(
            f"{num_layers} layers cannot be split over {job.mesh.pp} x {job.virtual_stages} stages",
            hint="Megatron-LM refuses it as well: change the number of layers, stages or virtual stages",
        )
    return found


def states(local: LocalModel, job: Job) -> States:
    """Parameters, main gradients, master copy and moments of one rank."""
    details = details_of(job)
    shares = _shares(job)
    is_16_bit = job.precision not in (Precision.FP32, Precision.MIXED)
    parameter = 2 if is_16_bit else 4
    gradient = _gradient_bytes(job, details, parameter)
    master = details.main_parameter_bytes if is_16_bit and job.precision is not Precision.PURE16 else 0
    if details.precision_aware:
        moments = float(sum(details.moment_bytes))
    else:
        moments = moment_bytes(job.optimizer, job.precision)
    is_sharded = job.strategy is not DataParallel.MEGATRON
    masters = state_amounts(Category.OPTIMIZER, master, local, shares, what="master parameters")
    return States(
        resident=(
            *state_amounts(Category.PARAMETERS, parameter, local, WHOLE),
            *state_amounts(Category.GRADIENTS, gradient, local, WHOLE, what="main gradients"),
            *masters,
            *workspace_amounts(local, job),
        ),
        from_first_step=state_amounts(Category.OPTIMIZER, moments, local, shares, what="moments"),
        at_initialisation=_wrapping(local, parameter, masters) if is_sharded else (),
        at_step=left_over_amounts(local, job),
    )


def fsdp_states(local: LocalModel, job: Job) -> States:
    """Megatron-FSDP with everything sharded (`optim_grads_params`): two units whole at a time, and their gradients.
    Its buffers are counted as FSDP2's; how many it keeps is not derived here."""
    shares = _shares(job)
    unit = local.largest_unit
    whole = (amount(Category.GATHERED, 2, 2 * unit.numel, what="parameters of two units, whole"),)
    gradients = (amount(Category.GATHERED, 4, unit.numel, what="gradients of one unit, whole"),)
    return States(
        resident=(
            *state_amounts(Category.PARAMETERS, 2, local, shares),
            *state_amounts(Category.GRADIENTS, 4, local, shares, what="main gradients"),
            *state_amounts(Category.OPTIMIZER, 4, local, shares, what="master parameters"),
            *workspace_amounts(local, job),
        ),
        from_first_step=state_amounts(
            Category.OPTIMIZER, moment_bytes(job.optimizer, job.precision), local, shares, what="moments"
        ),
        at_loss=whole,
        at_backward=whole + gradients,
        at_step=left_over_amounts(local, job),
    )


def _shares(job: Job) -> Shares:
    """Ranks that share an optimizer shard: data- and context-parallel ones of one optimizer instance."""
    if job.strategy is DataParallel.MEGATRON:
        return WHOLE
    instances = max(1, details_of(job).optimizer_instances)
    mesh = job.mesh
    dense = mesh.dp * mesh.cp
    expert = max(1, dense * mesh.tp // (mesh.ep * mesh.etp))
    return Shares(dense=max(1, dense / instances), expert=max(1, expert / instances))


def _gradient_bytes(job: Job, details: MegatronDetails, parameter: int) -> int:
    """The buffer's type: fp32 with bf16 unless told otherwise (`validate_args`)."""
    if details.precision_aware and details.main_gradient_bytes != 4:
        return details.main_gradient_bytes
    return parameter if job.said.grads_in_fp32 is False else 4


def _wrapping(local: LocalModel, parameter: int, masters: tuple[Amount, ...]) -> tuple[Amount, ...]:
    """The distributed optimizer's buffer is filled from parameters that still live, chunk after chunk (taken as
    equally large); the master copy comes later and may be larger (`_ParamAndGradBuffer.__init__`)."""
    one_chunk = local.numel / max(1, len(local.virtual_stages))
    num_bytes = parameter * one_chunk - sum(each.num_bytes for each in masters)
    if num_bytes <= 0:
        return ()
    return (
        Amount(
            category=Category.PARAMETERS,
            num_bytes=num_bytes,
            how="parameters once more, while they are wrapped",
        ),
    )


PLAIN = Strategy(
    kind=DataParallel.MEGATRON,
    title="Megatron-LM data parallel",
    page="megatron",
    states=states,
    prepare=prepare,
    chunks=chunks,
    activations=activations_of,
)
DISTRIBUTED = Strategy(
    kind=DataParallel.MEGATRON_DISTRIBUTED,
    title="Megatron-LM, distributed optimizer",
    page="megatron",
    states=states,
    prepare=prepare,
    chunks=chunks,
    activations=activations_of,
    shards_optimizer=True,
    over="dp x cp",
)
FSDP = Strategy(
    kind=DataParallel.MEGATRON_FSDP,
    title="Megatron-FSDP",
    page="megatron",
    states=fsdp_states,
    prepare=prepare,
    chunks=chunks,
    activations=activations_of,
    shards_parameters=True,
    shards_gradients=True,
    shards_optimizer=True,
    over="dp x cp",
)

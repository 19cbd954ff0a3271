"""Pipeline parallelism: each rank holds some layers, and the activations of as many micro-batches as are in flight."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.buffers import pipeline_bytes
from distdoctor.oom.formulas.pipeline import in_flight_chunks, put_off
from distdoctor.oom.formulas.states import gradient_bytes, reduced_bytes
from distdoctor.oom.job import DEEPSPEED, MEGATRON, Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.settings import Checkpointing, DataParallel, Schedule
from distdoctor.oom.shape import ModelShape
from distdoctor.oom.strategies.tensor_parallel import hidden_divisor

PAGE = "pipeline-parallel"


def chunks_in_flight(local: LocalModel, job: Job, *, batch_bytes: float) -> int:
    """Chunks whose activations this rank holds at its worst moment. `batch_bytes`: what one micro-batch keeps."""
    if job.mesh.pp == 1:
        return job.virtual_stages
    chunks = in_flight_chunks(
        job.schedule,
        num_stages=job.mesh.pp,
        stage=local.stage,
        num_micro_batches=job.num_micro_batches,
        virtual_stages=job.virtual_stages,
    )
    has_done_one = job.schedule is Schedule.GPIPE and job.num_micro_batches > 1
    if has_done_one and not is_worst_before_gradients(local, job, batch_bytes=batch_bytes):
        chunks -= job.virtual_stages
    return chunks


def is_worst_before_gradients(local: LocalModel, job: Job, *, batch_bytes: float) -> bool:
    """GPipe holds most when the first backward pass begins, all micro-batches there and no gradient yet; or when the
    second one does, with a micro-batch less and the gradients of the first. `batch_bytes`: what a micro-batch keeps."""
    if job.mesh.pp == 1 or job.schedule is not Schedule.GPIPE or job.num_micro_batches < 2:
        return False
    return local.numel * _reduced(job) <= batch_bytes


def _reduced(job: Job) -> int:
    """Bytes of a gradient as it waits for the last micro-batch."""
    is_fsdp = job.strategy is DataParallel.FSDP
    return (reduced_bytes if is_fsdp else gradient_bytes)(job.precision, in_fp32=job.grads_in_fp32)


def put_off_batches(local: LocalModel, job: Job) -> int:
    """Micro-batches whose gradients of weights wait."""
    if job.mesh.pp == 1:
        return 0
    return put_off(job.schedule, stage=local.stage, num_micro_batches=job.num_micro_batches)


def waiting_logits(job: Job, *, before_gradients: bool = False) -> int:
    """Micro-batches on the last stage that have a loss and wait for their backward pass, beside the one in hand: the
    second one, or the first where no gradient is there yet."""
    if job.mesh.pp == 1 or job.schedule is not Schedule.GPIPE:
        return 0
    return max(0, job.num_micro_batches - (1 if before_gradients else 2))


def not_covered(job: Job) -> tuple[str, ...]:
    """What the formulas do not know of a pipeline."""
    splits = job.schedule in (Schedule.ZERO_BUBBLE, Schedule.ZBV)
    if job.mesh.pp == 1 or not splits or job.checkpointing is Checkpointing.NONE or job.strategy in MEGATRON:
        return ()
    return (
        "checkpointed layers under a zero-bubble schedule, which torch computes again for each of their weights and "
        "keeps until the last one (`distdoctor oom simulate` tells)",
    )


def buffers(local: LocalModel, shape: ModelShape, job: Job) -> tuple[Amount, ...]:
    """Buffers to receive activations of the stage before, and gradients of the stage behind."""
    if job.mesh.pp == 1:
        return ()
    directions = 2 * job.virtual_stages - local.has_embedding - local.has_output
    # torch's stages allocate for all micro-batches at once; DeepSpeed keeps as many buffers as are in flight.
    batches = job.num_micro_batches
    if job.strategy in DEEPSPEED:
        batches = min(batches, job.mesh.pp - local.stage)
    num_bytes = pipeline_bytes(
        job.tokens,
        shape.hidden_size,
        element=job.residual_bytes,
        num_micro_batches=batches,
        num_directions=directions,
        tp=hidden_divisor(job),
    )
    how = f"buffers to receive {batches} micro-batches, {directions} of each"
    return (Amount(category=Category.COMMUNICATION, num_bytes=num_bytes, how=how),)


def role_words(local: LocalModel, job: Job) -> str:
    """`pipeline stage 1 of 4 (embedding)`."""
    if job.mesh.pp == 1:
        return "every rank"
    parts = [word for word, here in (("embedding", local.has_embedding), ("loss", local.has_output)) if here]
    held = f" ({' and '.join(parts)})" if parts else ""
    return f"pipeline stage {local.stage} of {job.mesh.pp}{held}"

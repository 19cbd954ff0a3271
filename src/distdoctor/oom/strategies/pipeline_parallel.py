"""Pipeline parallelism: each rank holds some layers, and the activations of as many micro-batches as are in flight."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.buffers import pipeline_bytes
from distdoctor.oom.formulas.pipeline import in_flight_chunks
from distdoctor.oom.job import DEEPSPEED, Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.shape import ModelShape
from distdoctor.oom.strategies.tensor_parallel import hidden_divisor

PAGE = "pipeline-parallel"


def chunks_in_flight(local: LocalModel, job: Job) -> int:
    """Chunks whose activations this rank holds at its worst moment."""
    if job.mesh.pp == 1:
        return job.virtual_stages
    return in_flight_chunks(
        job.schedule,
        num_stages=job.mesh.pp,
        stage=local.stage,
        num_micro_batches=job.num_micro_batches,
        virtual_stages=job.virtual_stages,
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

"""Context parallelism: every rank holds a part of each sequence, and keys and values travel round a ring."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.buffers import ring_bytes
from distdoctor.oom.job import Job
from distdoctor.oom.shape import ModelShape

PAGE = "context-parallel"


def buffers(shape: ModelShape, job: Job) -> tuple[Amount, ...]:
    """What ring attention needs for the layer in hand."""
    if job.mesh.cp == 1:
        return ()
    if shape.mla is not None:
        head_size = shape.mla.nope_head_size + shape.mla.rope_head_size
        width = shape.num_heads * (head_size + shape.mla.value_head_size) / 2
        out = shape.num_heads * (shape.mla.value_head_size + 1)
    else:
        width = float(shape.num_kv_heads * shape.head_size)
        out = shape.num_heads * (shape.head_size + 1)
    num_bytes = ring_bytes(
        job.tokens,
        kv_width=width,
        head_and_values=out,
        element=job.compute_bytes,
        ranks=job.mesh.cp,
        tp=job.mesh.tp,
    )
    how = "keys and values on their way round the ring, and outputs merged in fp32, for one layer"
    return (Amount(category=Category.COMMUNICATION, num_bytes=num_bytes, how=how),)

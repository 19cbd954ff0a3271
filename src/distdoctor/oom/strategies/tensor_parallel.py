"""Tensor parallelism: each matrix is cut over the ranks, and with sequence parallelism the tokens between them too."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.formulas.layer import SavedBytes
from distdoctor.oom.job import Job
from distdoctor.oom.shape import ModelShape

PAGE = "tensor-parallel"


def bytes_per_token(saved: SavedBytes, shape: ModelShape, job: Job, *, gathers: int) -> float:
    """Bytes that one rank keeps for one token of a layer.

    gathers: how many inputs of column-split layers are kept. Under sequence parallelism torch's linear layers save
    the gathered input, whole on every rank, while Megatron gathers it again in the backward pass.
    """
    if job.mesh.tp > 1 and job.sequence_parallel and gathers:
        inputs = gathers * job.compute_bytes * shape.hidden_size
        saved = replace(saved, whole=saved.whole - inputs, gathered=saved.gathered + inputs)
    return saved.per_token(
        tp=job.mesh.tp,
        sequence_parallel=job.sequence_parallel,
        num_heads=shape.num_heads,
        seq_len=job.seq_len,
    )


def hidden_divisor(job: Job) -> int:
    """Over how many ranks the residual stream is cut."""
    return job.mesh.tp if job.sequence_parallel else 1


def local_vocabulary(shape: ModelShape, job: Job) -> float:
    """Columns of the logits on one rank: all of them, unless the loss is parallel too."""
    return shape.vocab_size / (job.mesh.tp if job.loss_parallel else 1)

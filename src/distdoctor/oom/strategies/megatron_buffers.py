"""Buffers of a Megatron-LM job that stay from the first step on: workspaces of libraries, and what is gathered into."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Amount, Category
from distdoctor.oom.formulas.megatron.workspaces import (
    gathered_experts_bytes,
    gathered_sequence_bytes,
    library_bytes,
    scores_buffer_bytes,
)
from distdoctor.oom.job import Job
from distdoctor.oom.local import LocalModel
from distdoctor.oom.megatron_details import Dispatcher
from distdoctor.oom.strategies.megatron_kernels import Generation, generation_of
from distdoctor.oom.strategies.megatron_layers import details_of, sequence_tokens


def workspace_amounts(local: LocalModel, job: Job) -> tuple[Amount, ...]:
    """Buffers that stay: workspaces of libraries, and what Megatron gathers into."""
    details, mesh = details_of(job), job.mesh
    shape = job.shape
    has_experts = any(local.expert_layers)
    libraries = library_bytes(
        is_hopper_or_later=generation_of(job.said.gpu_type) is not Generation.AMPERE,
        is_deterministic=details.is_deterministic,
        has_grouped_gemm=details.has_grouped_gemm and has_experts,
    )
    amounts = [
        Amount(
            category=Category.TEMPORARIES,
            num_bytes=libraries,
            how="workspaces of cuBLAS and Transformer Engine",
        )
    ]
    if shape is None:
        return tuple(amounts)
    # One buffer serves all of these (`GlobalMemoryBuffer`, megatron/core/utils.py); it grows to the largest.
    buffers = {"the buffer that gathers a sequence": 0.0}
    if job.sequence_parallel and (local.has_output or not details.uses_transformer_engine):
        buffers["the buffer that gathers a sequence"] = gathered_sequence_bytes(job.tokens, shape.hidden_size)
    if has_experts and details.dispatcher is Dispatcher.ALLGATHER:
        buffers["the buffer that gathers tokens for experts"] = gathered_experts_bytes(
            sequence_tokens(job), shape.hidden_size, ranks=mesh.ep * mesh.etp
        )
    if not details.uses_transformer_engine:
        buffers["the buffer behind attention scores"] = scores_buffer_bytes(
            micro_batch=job.micro_batch, local_heads=shape.num_heads / mesh.tp, seq_len=job.seq_len / mesh.cp
        )
    how, num_bytes = max(buffers.items(), key=lambda each: each[1])
    if num_bytes:
        amounts.append(Amount(category=Category.COMMUNICATION, num_bytes=num_bytes, how=how))
    return tuple(amounts)

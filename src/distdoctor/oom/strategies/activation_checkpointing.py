"""Activation checkpointing: what is kept from the forward pass, and what is computed again in the backward pass."""

from __future__ import annotations

from distdoctor.oom.formulas.layer import SavedBytes, full_saved, layer_saved, selective_saved
from distdoctor.oom.job import Job
from distdoctor.oom.settings import Attention, Checkpointing
from distdoctor.oom.shape import ModelShape

PAGE = "activation-checkpointing"


def kept(shape: ModelShape, job: Job, *, with_experts: bool, is_checkpointed: bool) -> SavedBytes:
    """What one layer keeps for each token until its backward pass."""
    mode = job.checkpointing if is_checkpointed else Checkpointing.NONE
    match mode:
        case Checkpointing.FULL:
            return full_saved(shape, residual=job.residual_bytes)
        case Checkpointing.SELECTIVE:
            saved = selective_saved(
                shape,
                with_experts=with_experts,
                element=job.compute_bytes,
                residual=job.residual_bytes,
                routes_all=_routes_all(job),
            )
            return saved.plus(_reduced(shape, job, with_experts=with_experts))
        case Checkpointing.NONE:
            return whole_layer(shape, job, with_experts=with_experts)


def _reduced(shape: ModelShape, job: Job, *, with_experts: bool) -> SavedBytes:
    """With sequence parallelism the outputs of attention and MLP come out of a reduce-scatter, and TorchTitan's
    selection keeps what collectives brought. So does that of routed experts where they are cut."""
    if job.mesh.tp == 1 or not job.sequence_parallel:
        return SavedBytes(split=0.0, whole=0.0)
    moe = shape.moe if with_experts else None
    outputs = 2 if moe is None else 1 + (moe.shared_ffn_size > 0) + (job.expert_width_ranks > 1)
    return SavedBytes(split=0.0, whole=float(outputs) * job.compute_bytes * shape.hidden_size)


def _routes_all(job: Job) -> bool:
    """Whether routers get the tokens of all shards of the sequence: where experts are cut over the ranks of these."""
    return job.sequence_parallel and job.expert_width_ranks > 1


def keeps_exchanged(job: Job, *, is_checkpointed: bool) -> bool:
    """Whether rows that went to experts' ranks and came back are kept though the layer is computed again: collectives
    brought them."""
    return is_checkpointed and job.checkpointing is Checkpointing.SELECTIVE and job.mesh.ep > 1


def whole_layer(shape: ModelShape, job: Job, *, with_experts: bool) -> SavedBytes:
    """What one layer holds for each token when its backward pass begins: all of it, computed again or kept."""
    return layer_saved(
        shape,
        with_experts=with_experts,
        element=job.compute_bytes,
        residual=job.residual_bytes,
        unfused=job.attention is Attention.UNFUSED,
        routes_all=_routes_all(job),
    )


def keeps_routed(job: Job, *, is_checkpointed: bool) -> bool:
    """Whether experts keep what tokens left in them."""
    return not is_checkpointed or job.checkpointing is Checkpointing.NONE


def is_checkpointed(job: Job, index: int) -> bool:
    """Whether the rank's layer number `index` is checkpointed; some frameworks checkpoint the first few only."""
    return job.said.checkpoint_layers is None or index < job.said.checkpoint_layers

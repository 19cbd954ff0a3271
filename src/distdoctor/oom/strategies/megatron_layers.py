"""Bytes that one Megatron-LM layer keeps on one rank, and what it drops when it is computed again."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.formulas.layer import SavedBytes
from distdoctor.oom.formulas.megatron.attention import ELEMENT, AttentionRun, attention_saved
from distdoctor.oom.formulas.megatron.mlp import (
    MlpRun,
    dense_saved,
    experts_saved,
    routed_rows,
    routed_saved,
)
from distdoctor.oom.job import Job
from distdoctor.oom.megatron_details import MegatronDetails
from distdoctor.oom.settings import Checkpointing
from distdoctor.oom.shape import ModelShape
from distdoctor.oom.strategies.megatron_kernels import Backend, backend_of

_GRANULARITY = {
    Checkpointing.NONE: None,
    Checkpointing.SELECTIVE: "selective",
    Checkpointing.FULL: "full",
}


def details_of(job: Job) -> MegatronDetails:
    """Megatron's own settings, its defaults when nobody said any; recomputation is the job's, which may be a variant."""
    details = job.said.megatron or MegatronDetails()
    return replace(details, recompute_granularity=_GRANULARITY[job.checkpointing])


def layer_bytes(
    shape: ModelShape, job: Job, details: MegatronDetails, with_experts: bool, position: int
) -> float:
    """Bytes of one layer and one micro-batch. `position`: in its chunk."""
    if details.recompute_granularity == "full":
        if details.recompute_method == "block":
            limit = details.recompute_num_layers
            if limit is None or position < limit:
                return layer_input_bytes(shape, job)
            return whole_layer_bytes(shape, job, with_experts=with_experts)
        every = max(1, details.recompute_num_layers or 1)
        return layer_input_bytes(shape, job) if position % every == 0 else 0.0
    return whole_layer_bytes(shape, job, with_experts=with_experts, recomputed=recomputed_modules(details))


def whole_layer_bytes(
    shape: ModelShape,
    job: Job,
    *,
    with_experts: bool,
    recomputed: frozenset[str] = frozenset(),
) -> float:
    """Bytes of one layer without what `recomputed` modules drop."""
    hidden_dropout = bool(job.said.hidden_dropout)
    backend = backend_of(job)
    attention = attention_saved(
        shape,
        AttentionRun(
            unfused=backend is Backend.UNFUSED,
            copies_output=job.micro_batch > 1 and backend is Backend.FLASH,
            hidden_dropout=hidden_dropout,
            attention_dropout=bool(job.said.attention_dropout),
            recomputes_core="core_attn" in recomputed,
            recomputes_norm="layernorm" in recomputed and shape.mla is not None,
            recomputes_up_projection="mla_up_proj" in recomputed,
        ),
    )
    run = MlpRun(
        hidden_dropout=hidden_dropout,
        recomputes_mlp="mlp" in recomputed,
        recomputes_norm="layernorm" in recomputed,
        recomputes_experts="moe" in recomputed,
        recomputes_activation="moe_act" in recomputed,
        recomputes_shared="shared_experts" in recomputed,
    )
    moe = shape.moe if with_experts else None
    if moe is None:
        return saved_bytes(attention.plus(dense_saved(shape, run)), shape, job)
    rows = routed_rows(sequence_tokens(job), moe, etp=job.mesh.etp, imbalance=_imbalance(job))
    routed = rows * routed_saved(shape, moe, run, etp=job.mesh.etp)
    return saved_bytes(attention.plus(experts_saved(shape, moe, run)), shape, job) + routed


def layer_input_bytes(shape: ModelShape, job: Job) -> float:
    """Bytes of the hidden state between two layers."""
    return saved_bytes(SavedBytes(split=0, whole=ELEMENT * shape.hidden_size), shape, job)


def passing_gradient_bytes(shape: ModelShape, job: Job, *, with_experts: bool) -> float:
    """The widest gradient of one layer: of what goes into the activation function, while its output is still kept."""
    doubled = 2 if shape.is_gated else 1
    dense = job.tokens * ELEMENT * doubled * shape.ffn_size / job.mesh.tp
    moe = shape.moe if with_experts else None
    if moe is None:
        return dense
    rows = routed_rows(sequence_tokens(job), moe, etp=job.mesh.etp, imbalance=_imbalance(job))
    return rows * ELEMENT * doubled * moe.expert_ffn_size / job.mesh.etp


def recomputed_modules(details: MegatronDetails) -> frozenset[str]:
    """Modules that selective recomputation drops (`--recompute-modules`)."""
    if details.recompute_granularity != "selective":
        return frozenset()
    return frozenset(details.recompute_modules)


def saved_bytes(saved: SavedBytes, shape: ModelShape, job: Job) -> float:
    """`saved` for one micro-batch on this rank. A context-parallel rank's queries meet all keys."""
    per_token = saved.per_token(
        tp=job.mesh.tp,
        sequence_parallel=job.sequence_parallel,
        num_heads=shape.num_heads,
        seq_len=job.seq_len,
    )
    return job.tokens * per_token


def sequence_tokens(job: Job) -> float:
    """Tokens of this rank between the split parts of a layer."""
    return job.tokens / (job.mesh.tp if job.sequence_parallel else 1)


def _imbalance(job: Job) -> float:
    return job.expert_imbalance if job.mesh.ep > 1 else 1.0

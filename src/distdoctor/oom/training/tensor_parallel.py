"""Tensor parallelism by DTensor: linear layers cut by columns and rows; with sequence parallelism norms see a part of
the tokens, with loss parallelism every rank a part of the vocabulary. The plan is TorchTitan's for Llama, Qwen 3 (norms
of queries and keys) and DeepSeek-V3 (latent attention)."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from distdoctor.oom.job import Job
from distdoctor.oom.training.expert_width import CutWidth, WidthParallel
from distdoctor.oom.training.experts import MixtureOfExpertsLayer
from distdoctor.oom.training.latent_attention import LatentSelfAttention
from distdoctor.oom.training.model import Block, Transformer
from distdoctor.oom.training.parallel_styles import ChunkedOutputParallel, ReplicatedParallel

_HEADS = 2
"""Queries and keys are (batch, sequence, heads, size) where they are normed."""


def why_not(job: Job) -> str | None:
    """Why this model cannot be cut over tp; None: it can."""
    shape, tp = job.known_shape, job.mesh.tp
    if tp == 1:
        return None
    if shape.mla is None and shape.num_kv_heads % tp:
        return f"tp={tp} does not divide the model's {shape.num_kv_heads} key-value heads, which DTensor's plan cuts"
    if job.sequence_parallel and (job.seq_len // job.mesh.cp) % tp:
        return (
            f"sequence parallelism needs tokens that tp={tp} divides; a rank has {job.seq_len // job.mesh.cp}"
        )
    widths = [("the MLP", shape.ffn_size if _has_dense_layers(job) else 0)]
    if shape.moe is not None:
        widths.append(("the shared experts", shape.moe.shared_ffn_size))
        widths.append(("an expert", shape.moe.expert_ffn_size if job.expert_width_ranks > 1 else 0))
    for name, width in widths:
        if width % tp:
            return f"tp={tp} does not divide the width of {name}, {width}"
    return None


def apply(model: Transformer, mesh: DeviceMesh, job: Job) -> None:
    """Cut `model` over `mesh` in place."""
    tokens = _tokens(job)
    ends: dict[str, ParallelStyle] = {}
    if model.tok_embeddings is not None:
        ends["tok_embeddings"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=tokens)
    if model.pos_embeddings is not None and job.sequence_parallel:
        # Positions are one row for all sequences: (sequence,) to (sequence, hidden).
        ends["pos_embeddings"] = ReplicatedParallel(input_layout=Shard(0), output_layout=Shard(0))
    if model.norm is not None and job.sequence_parallel:
        ends["norm"] = SequenceParallel()
    if model.output is not None and job.fused_loss:
        ends["output"] = ChunkedOutputParallel(tokens, gathers_logits=not job.loss_parallel)
    elif model.output is not None:
        ends["output"] = ColwiseParallel(
            input_layouts=tokens,
            output_layouts=Shard(-1) if job.loss_parallel else Replicate(),
            use_local_output=not job.loss_parallel,
        )
    parallelize_module(model, mesh, ends)
    model.tie()
    for block in model.layers.values():
        parallelize_module(block, mesh, _layer_plan(block, job))
        if isinstance(block.feed_forward, MixtureOfExpertsLayer) and job.expert_width_ranks > 1:
            block.feed_forward.experts.cut = CutWidth(mesh=mesh, tokens=tokens)


def _layer_plan(block: Block, job: Job) -> dict[str, ParallelStyle]:
    plan = _attention_plan(block.attention, job)
    if isinstance(block.feed_forward, MixtureOfExpertsLayer):
        plan.update(_expert_plan(block.feed_forward, job))
    else:
        plan.update(_mlp_plan("feed_forward", block.feed_forward, job))
    if job.sequence_parallel:
        for name in ("attention_norm", "ffn_norm"):
            if getattr(block, name) is not None:
                plan[name] = SequenceParallel()
        for name in ("attention_post_norm", "ffn_post_norm"):
            if getattr(block, name) is not None:
                plan[name] = SequenceParallel(use_local_output=True)
    return plan


def _attention_plan(attention: nn.Module, job: Job) -> dict[str, ParallelStyle]:
    plan: dict[str, ParallelStyle] = {"attention.wo": RowwiseParallel(output_layouts=_tokens(job))}
    if isinstance(attention, LatentSelfAttention):
        # Narrow layers are whole on every rank, and so is what they give; only what belongs to heads is cut.
        for name in ("wq_a", "q_norm", "wkv_a", "kv_norm"):
            if hasattr(attention, name):
                plan[f"attention.{name}"] = ReplicatedParallel(use_local_output=False)
        cut: tuple[str, ...] = ("wq" if hasattr(attention, "wq") else "wq_b", "wkv_b")
    else:
        cut = ("wq", "wk", "wv")
        for name in ("q_norm", "k_norm"):
            if getattr(attention, name) is not None:
                plan[f"attention.{name}"] = SequenceParallel(sequence_dim=_HEADS, use_local_output=True)
    for name in cut:
        plan[f"attention.{name}"] = ColwiseParallel()
    if job.sequence_parallel:
        plan["attention"] = PrepareModuleInput(
            input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
        )
    return plan


def _mlp_plan(name: str, mlp: nn.Module, job: Job) -> dict[str, ParallelStyle]:
    plan: dict[str, ParallelStyle] = {
        f"{name}.w1": ColwiseParallel(),
        f"{name}.w2": RowwiseParallel(output_layouts=_tokens(job)),
    }
    if hasattr(mlp, "w3"):
        plan[f"{name}.w3"] = ColwiseParallel()
    if job.sequence_parallel:
        plan[name] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    return plan


def _expert_plan(layer: MixtureOfExpertsLayer, job: Job) -> dict[str, ParallelStyle]:
    """Without expert parallelism routed experts are cut along their width, and every rank routes all tokens. With it,
    and with sequence parallelism, every rank routes its own tokens. Either way what a rank has of router and gate learns
    from a part of the whole only, so that gradients are added up."""
    plan: dict[str, ParallelStyle] = {}
    if layer.shared_experts is not None:
        plan.update(_mlp_plan("feed_forward.shared_experts", layer.shared_experts, job))
    if job.expert_width_ranks > 1:
        plan["feed_forward.router"] = _Whole()
        plan["feed_forward.experts"] = WidthParallel()
    if not job.sequence_parallel:
        return plan
    plan["feed_forward"] = PrepareModuleInput(
        input_layouts=(Shard(1),), desired_input_layouts=(Shard(1),), use_local_output=True
    )
    plan["feed_forward.router"] = _Whole()
    if layer.shared_gate is not None:
        plan["feed_forward.shared_gate"] = _Whole()
    return plan


class _Whole(ParallelStyle):
    """Parameters become DTensors that every rank has; inputs and outputs are left alone."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh)


def _tokens(job: Job) -> Placement:
    """How hidden states between layers lie over tp."""
    return Shard(1) if job.sequence_parallel else Replicate()


def _has_dense_layers(job: Job) -> bool:
    shape = job.known_shape
    return not all(shape.has_experts(layer) for layer in range(shape.num_layers))

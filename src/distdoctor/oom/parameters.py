"""Which parameters a model has, group by group, and how tensor parallelism would split each group.

Counts follow the reference implementations (Hugging Face transformers, TorchTitan); biases and norms are counted, for
on a small model they show.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from distdoctor.oom.shape import LatentAttention, MixtureOfExperts, ModelShape, Norm


class Split(str, Enum):
    """What tensor parallelism does with a group: DTensor's placement on the `tp` dimension, in words."""

    COLUMNS = "columns"
    """Outputs are split: `Shard(0)` of a weight (out, in)."""
    ROWS = "rows"
    """Inputs are split: `Shard(1)`."""
    VOCABULARY = "vocabulary"
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterGroup:
    """Parameters that are split alike. `numel` is of one layer (or of the embedding, or of the output)."""

    name: str
    numel: int
    split: Split = Split.REPLICATED
    is_expert: bool = False
    num_tensors: int = 1

    def local_numel(self, *, tp: int, ep: int = 1, etp: int = 1) -> float:
        """Elements on one rank of the tensor- and expert-parallel groups."""
        if self.is_expert:
            return self.numel / (ep * (etp if self.split is not Split.REPLICATED else 1))
        return self.numel / (1 if self.split is Split.REPLICATED else tp)


@lru_cache(maxsize=256)
def layer_groups(shape: ModelShape, *, with_experts: bool) -> tuple[ParameterGroup, ...]:
    """The groups of one layer, with or without experts."""
    groups = [*_attention(shape), _norms(shape, "layer norms", shape.norms_per_layer)]
    if with_experts and shape.moe is not None:
        return (*groups, *_experts(shape, shape.moe))
    return (*groups, *_mlp(shape, shape.ffn_size, "mlp"))


@lru_cache(maxsize=256)
def embedding_groups(shape: ModelShape) -> tuple[ParameterGroup, ...]:
    """What stands before the first layer."""
    groups = [
        ParameterGroup(
            name="token embedding", numel=shape.vocab_size * shape.hidden_size, split=Split.VOCABULARY
        )
    ]
    if shape.learned_positions:
        groups.append(
            ParameterGroup(name="position embedding", numel=shape.learned_positions * shape.hidden_size)
        )
    return tuple(groups)


@lru_cache(maxsize=256)
def output_groups(shape: ModelShape, *, holds_tied_copy: bool = False) -> tuple[ParameterGroup, ...]:
    """What stands behind the last layer. `holds_tied_copy`: tied to an embedding on another pipeline stage."""
    groups = [_norms(shape, "final norm", 1)]
    if not shape.ties_embeddings or holds_tied_copy:
        groups.append(
            ParameterGroup(name="output", numel=shape.vocab_size * shape.hidden_size, split=Split.VOCABULARY)
        )
    return tuple(groups)


@lru_cache(maxsize=256)
def prediction_groups(shape: ModelShape) -> tuple[ParameterGroup, ...]:
    """One multi-token-prediction layer: a layer, a projection of two hidden states to one, three norms
    (arXiv 2412.19437, section 2.2; embedding and output are those of the model)."""
    projection = ParameterGroup(
        name="prediction projection", numel=2 * shape.hidden_size**2, split=Split.COLUMNS
    )
    return (
        *layer_groups(shape, with_experts=shape.moe is not None),
        projection,
        _norms(shape, "prediction norms", 3),
    )


def numel_of(groups: Iterable[ParameterGroup]) -> int:
    """Elements of all groups."""
    return sum(group.numel for group in groups)


def count_parameters(shape: ModelShape) -> int:
    """Parameters of the whole model, prediction layers of their own included."""
    num_expert_layers = sum(shape.has_experts(layer) for layer in range(shape.num_layers))
    num_dense_layers = shape.num_layers - num_expert_layers
    return (
        numel_of(embedding_groups(shape))
        + num_dense_layers * numel_of(layer_groups(shape, with_experts=False))
        + (num_expert_layers * numel_of(layer_groups(shape, with_experts=True)) if num_expert_layers else 0)
        + shape.num_mtp_layers * numel_of(prediction_groups(shape))
        + numel_of(output_groups(shape))
    )


def largest_layer_parameters(shape: ModelShape) -> int:
    """Elements of the largest single module, as DeepSpeed's estimator counts it (`parameters(recurse=False)`): the
    embedding, or one matrix."""
    width = shape.ffn_size
    if shape.moe is not None:
        width = max(width, shape.moe.expert_ffn_size, shape.moe.shared_ffn_size)
    return shape.hidden_size * max(shape.vocab_size, width, shape.num_heads * shape.head_size)


def count_active_parameters(shape: ModelShape) -> int:
    """Parameters that one token meets: of the routed experts, only those that it is sent to."""
    if shape.moe is None:
        return count_parameters(shape)
    fewer = replace(shape.moe, num_experts=shape.moe.experts_per_token)
    # The router keeps its full width; its rows for experts not met are met nevertheless.
    routers = sum(shape.has_experts(layer) for layer in range(shape.num_layers)) * shape.hidden_size
    idle = shape.moe.num_experts - shape.moe.experts_per_token
    return count_parameters(replace(shape, moe=fewer)) + routers * idle


def _attention(shape: ModelShape) -> list[ParameterGroup]:
    hidden = shape.hidden_size
    if shape.mla is not None:
        return _latent_attention(shape, shape.mla)
    queries, keys = shape.num_heads * shape.head_size, shape.num_kv_heads * shape.head_size
    groups = [
        ParameterGroup(
            name="attention queries, keys, values",
            numel=hidden * (queries + 2 * keys) + (queries + 2 * keys if shape.has_qkv_bias else 0),
            split=Split.COLUMNS,
            num_tensors=3 * (1 + shape.has_qkv_bias),
        ),
        ParameterGroup(name="attention output", numel=queries * hidden, split=Split.ROWS),
    ]
    if shape.has_attention_out_bias:
        groups.append(ParameterGroup(name="attention output bias", numel=hidden))
    if shape.has_qk_norm:
        groups.append(
            ParameterGroup(name="norms of queries and keys", numel=2 * shape.head_size, num_tensors=2)
        )
    return groups


def _latent_attention(shape: ModelShape, mla: LatentAttention) -> list[ParameterGroup]:
    """DeepSeek-V2's attention: down-projections are small and replicated, up-projections split by heads."""
    hidden, heads = shape.hidden_size, shape.num_heads
    queries = heads * (mla.nope_head_size + mla.rope_head_size)
    down = hidden * (mla.kv_lora_rank + mla.rope_head_size) + mla.kv_lora_rank
    up = mla.kv_lora_rank * heads * (mla.nope_head_size + mla.value_head_size)
    if mla.q_lora_rank is None:
        up += hidden * queries
    else:
        down += hidden * mla.q_lora_rank + mla.q_lora_rank
        up += mla.q_lora_rank * queries
    return [
        ParameterGroup(name="attention down-projections", numel=down, num_tensors=4),
        ParameterGroup(name="attention up-projections", numel=up, split=Split.COLUMNS, num_tensors=2),
        ParameterGroup(name="attention output", numel=heads * mla.value_head_size * hidden, split=Split.ROWS),
    ]


def _mlp(shape: ModelShape, width: int, name: str) -> list[ParameterGroup]:
    num_in = 2 if shape.is_gated else 1
    hidden = shape.hidden_size
    bias_in = num_in * width if shape.has_mlp_bias else 0
    groups = [
        ParameterGroup(
            name=f"{name} in",
            numel=num_in * hidden * width + bias_in,
            split=Split.COLUMNS,
            num_tensors=num_in * (1 + shape.has_mlp_bias),
        ),
        ParameterGroup(name=f"{name} out", numel=width * hidden, split=Split.ROWS),
    ]
    if shape.has_mlp_bias:
        groups.append(ParameterGroup(name=f"{name} out bias", numel=hidden))
    return groups


def _experts(shape: ModelShape, moe: MixtureOfExperts) -> list[ParameterGroup]:
    one = _mlp(shape, moe.expert_ffn_size, "experts")
    routed = [
        replace(
            group,
            numel=group.numel * moe.num_experts,
            is_expert=True,
            num_tensors=group.num_tensors * moe.num_experts,
        )
        for group in one
    ]
    router = shape.hidden_size * moe.num_experts + (moe.num_experts if shape.has_mlp_bias else 0)
    groups = [ParameterGroup(name="router", numel=router), *routed]
    if moe.shared_ffn_size:
        groups += _mlp(shape, moe.shared_ffn_size, "shared experts")
    if moe.has_shared_gate:
        groups.append(ParameterGroup(name="gate of shared experts", numel=shape.hidden_size))
    return groups


def _norms(shape: ModelShape, name: str, count: int) -> ParameterGroup:
    tensors = 2 if shape.norm is Norm.LAYERNORM else 1
    return ParameterGroup(name=name, numel=count * tensors * shape.hidden_size, num_tensors=count * tensors)

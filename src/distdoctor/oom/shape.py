"""What a decoder-only transformer looks like, in the numbers that decide its memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Norm(str, Enum):
    """Kind of normalisation; a LayerNorm has a bias beside its weight."""

    RMSNORM = "rmsnorm"
    LAYERNORM = "layernorm"


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Experts of the layers that have them."""

    num_experts: int
    experts_per_token: int
    expert_ffn_size: int
    """Width of one routed expert."""
    shared_ffn_size: int = 0
    """Total width of the experts that every token visits."""
    has_shared_gate: bool = False
    """Qwen-MoE weighs its shared expert by a gate of one row."""
    first_dense_layers: int = 0
    every: int = 1
    """After the first dense ones, every n-th layer has experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention as DeepSeek-V2 and V3 have it (arXiv 2405.04434)."""

    kv_lora_rank: int
    q_lora_rank: int | None
    """None: queries are projected at once."""
    nope_head_size: int
    rope_head_size: int
    value_head_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Sizes of a decoder-only transformer. All counts are of the whole model, before any parallelism."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    ffn_size: int
    """Width of the dense MLP."""
    vocab_size: int
    is_gated: bool = True
    """SwiGLU and its like: three matrices in an MLP instead of two."""
    ties_embeddings: bool = False
    norm: Norm = Norm.RMSNORM
    norms_per_layer: int = 2
    has_qk_norm: bool = False
    has_qkv_bias: bool = False
    has_attention_out_bias: bool = False
    has_mlp_bias: bool = False
    learned_positions: int = 0
    """Rows of a learned position embedding; 0 for rotary or none."""
    moe: MixtureOfExperts | None = None
    mla: LatentAttention | None = None
    num_mtp_layers: int = 0
    """Multi-token-prediction layers behind the last one (DeepSeek-V3)."""

    def has_experts(self, layer: int) -> bool:
        """Whether layer number `layer` (from 0) holds experts."""
        if self.moe is None or layer < self.moe.first_dense_layers:
            return False
        return (layer - self.moe.first_dense_layers) % self.moe.every == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model as the user named it. Without a shape only its number of parameters is known, and nothing is said of
    activations."""

    name: str
    source: str
    """Where its sizes come from: `preset llama3-8b`, `config.json`, `--params`."""
    shape: ModelShape | None = None
    stated_params: int | None = None
    """Number of parameters that was given instead of a shape."""
    notes: tuple[str, ...] = ()
    """What a reader must know: a key that was ignored, a size that was assumed."""
    seq_len: int | None = None
    """Tokens of a sequence where nothing else is said; None: no length is this model's own."""

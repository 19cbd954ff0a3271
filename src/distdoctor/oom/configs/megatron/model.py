"""The shape of the model that Megatron-LM's arguments describe."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.configs.megatron.layers import expert_pattern, first_and_every
from distdoctor.oom.configs.megatron.tokenizers import vocabulary_of
from distdoctor.oom.configs.megatron.values import Arguments
from distdoctor.oom.facts.launch import Open
from distdoctor.oom.shape import LatentAttention, MixtureOfExperts, Model, ModelShape, Norm

# `MLATransformerConfig` (megatron/core/transformer/transformer_config.py) and `_add_mla_args`.
_KV_LORA_RANK = 32
_NOPE_HEAD = 128
_ROPE_HEAD = 64
_VALUE_HEAD = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReading:
    """What was met while the shape was read."""

    open_points: tuple[Open, ...] = ()
    problems: tuple[str, ...] = ()
    """Why this shape cannot express the model."""


def model_from_args(said: Arguments) -> tuple[Model | None, ModelReading]:
    """The model, or None when its sizes are not among the arguments, and what is open."""
    layers, hidden = said.integer("num-layers"), said.integer("hidden-size")
    heads = said.integer("num-attention-heads")
    missing = [
        flag
        for flag, value in (("num-layers", layers), ("hidden-size", hidden), ("num-attention-heads", heads))
        if not value
    ]
    if missing or not (layers and hidden and heads):
        return None, ModelReading(
            open_points=tuple(_open(f"--{flag}", "the arguments do not give it") for flag in missing)
        )
    is_gated = said.flag("swiglu") or said.flag("quick-geglu")
    ffn = said.integer("ffn-hidden-size") or _default_ffn(hidden, gated=said.flag("swiglu"))
    has_bias = not said.flag("disable-bias-linear")
    vocabulary = vocabulary_of({name: said.text(name) or "" for name in said.names()})
    notes: list[str] = []
    opens: list[Open] = []
    if vocabulary.size is None:
        opens.append(_open("vocabulary", vocabulary.how, how="add `--vocab-size N`"))
    elif not vocabulary.is_certain:
        notes.append(f"vocabulary: {vocabulary.how}")
    moe, problems = _experts(said, layers, ffn)
    head = said.integer("kv-channels") or hidden // heads
    shape = ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=(said.integer("num-query-groups") or 1) if said.flag("group-query-attention") else heads,
        head_size=head,
        ffn_size=ffn,
        vocab_size=vocabulary.size or 0,
        is_gated=is_gated,
        ties_embeddings=not said.flag("untie-embeddings-and-output-weights"),
        norm=Norm.RMSNORM if said.word("normalization") == "rmsnorm" else Norm.LAYERNORM,
        has_qk_norm=said.flag("qk-layernorm") and not said.flag("multi-latent-attention"),
        has_qkv_bias=has_bias or said.flag("add-qkv-bias"),
        has_attention_out_bias=has_bias,
        has_mlp_bias=has_bias,
        learned_positions=_positions(said),
        moe=moe,
        mla=_latent(said) if said.flag("multi-latent-attention") else None,
        num_mtp_layers=said.integer("mtp-num-layers") or 0,
    )
    model = Model(
        name=f"{layers} layers, hidden size {hidden}",
        source="Megatron-LM arguments",
        shape=shape,
        notes=tuple(notes),
    )
    return model, ModelReading(open_points=tuple(opens), problems=problems)


def _default_ffn(hidden: int, *, gated: bool) -> int:
    """`validate_args`: 4 h, or two thirds of it in multiples of 64 where the MLP is gated."""
    return int((4 * hidden * 2 / 3) / 64) * 64 if gated else 4 * hidden


def _positions(said: Arguments) -> int:
    kind = said.word("position-embedding-type") or "learned_absolute"
    if said.flag("use-rotary-position-embeddings") or kind != "learned_absolute":
        return 0
    return said.integer("max-position-embeddings") or said.integer("seq-length") or 0


def _latent(said: Arguments) -> LatentAttention:
    return LatentAttention(
        kv_lora_rank=said.integer("kv-lora-rank") or _KV_LORA_RANK,
        q_lora_rank=said.integer("q-lora-rank"),
        nope_head_size=said.integer("qk-head-dim") or _NOPE_HEAD,
        rope_head_size=said.integer("qk-pos-emb-head-dim") or _ROPE_HEAD,
        value_head_size=said.integer("v-head-dim") or _VALUE_HEAD,
    )


def _experts(said: Arguments, layers: int, ffn: int) -> tuple[MixtureOfExperts | None, tuple[str, ...]]:
    num = said.integer("num-experts")
    if not num:
        return None, ()
    first, every = 0, 1
    problems: tuple[str, ...] = ()
    text = said.text("moe-layer-freq")
    if text:
        pattern = expert_pattern(text, layers)
        pair = first_and_every(pattern) if pattern is not None else None
        if pair is None:
            problems = (f"`--moe-layer-freq {text[:40]}` is no regular pattern of {layers} layers",)
        else:
            first, every = pair
    return (
        MixtureOfExperts(
            num_experts=num,
            experts_per_token=said.integer("moe-router-topk") or 2,
            expert_ffn_size=said.integer("moe-ffn-hidden-size") or ffn,
            shared_ffn_size=said.integer("moe-shared-expert-intermediate-size") or 0,
            has_shared_gate=said.flag("moe-shared-expert-gate"),
            first_dense_layers=first,
            every=every,
        ),
        problems,
    )


def _open(what: str, why: str, *, how: str = "give it, or --model") -> Open:
    return Open(what=what, why=why, how=how, settles="model")

"""What Hugging Face's model types have that their config.json does not say: biases, norms, gates, defaults.

Read from the modules and configuration classes of transformers 5.24; a key that is present wins over a default here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distdoctor.oom.shape import Norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """Where a bias is decided: by the first key that is present, else by the default."""

    keys: tuple[str, ...] = ()
    default: bool = False


NO_BIAS = Bias()
ALWAYS = Bias(default=True)
ATTENTION_BIAS = Bias(keys=("attention_bias",))
ATTENTION_BIAS_ON = Bias(keys=("attention_bias",), default=True)
MLP_BIAS = Bias(keys=("mlp_bias",))
USE_BIAS = Bias(keys=("use_bias", "bias"))
USE_BIAS_ON = Bias(keys=("use_bias", "bias"), default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One architecture."""

    is_gated: bool = True
    norm: Norm = Norm.RMSNORM
    norms_per_layer: int = 2
    ties_embeddings: bool = False
    qkv_bias: Bias = NO_BIAS
    out_bias: Bias = NO_BIAS
    mlp_bias: Bias = NO_BIAS
    qk_norm: bool | str = False
    """True, or the key that says so."""
    learned_positions: bool = False
    extra_positions: int = 0
    """Rows before the first position (OPT has two)."""
    ffn_is_four_hidden: bool = False
    """Where no width of the MLP is given, it is 4 x the hidden size."""
    ffn_is_doubled: bool = False
    """The key counts both halves of the gated MLP."""
    shared_gate: bool = False
    defaults: Mapping[str, int] = field(default_factory=dict)
    """Sizes that published configurations leave out because the class has them."""
    notes: tuple[str, ...] = ()


_LLAMA = Family(qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, mlp_bias=MLP_BIAS)
_PLAIN = Family()
_QK_NORM = Family(qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm=True)
_DEEPSEEK_SIZES = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "kv_lora_rank": 512}
_LAYERNORM = Norm.LAYERNORM
_GPT = Family(
    is_gated=False,
    norm=_LAYERNORM,
    ties_embeddings=True,
    qkv_bias=ALWAYS,
    out_bias=ALWAYS,
    mlp_bias=ALWAYS,
    ffn_is_four_hidden=True,
)
_FULL_WIDTH_QK_NORM = ("Norms of queries and keys span all heads; they are counted as of one head.",)

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "granite": _LLAMA,
    "smollm3": Family(
        ties_embeddings=True, qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, mlp_bias=MLP_BIAS
    ),
    "hunyuan_v1_dense": Family(qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm=True),
    "mistral": Family(defaults={"num_key_value_heads": 8}),
    "ministral": _PLAIN,
    "mixtral": Family(
        defaults={"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "phi3": _PLAIN,
    "yi": _PLAIN,
    "granitemoe": Family(qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS),
    "qwen": Family(qkv_bias=ALWAYS, ffn_is_doubled=True),
    "qwen2": Family(qkv_bias=ALWAYS),
    "qwen2_vl_text": Family(qkv_bias=ALWAYS),
    "qwen2_5_vl_text": Family(qkv_bias=ALWAYS),
    "qwen2_vl": Family(qkv_bias=ALWAYS),
    "qwen2_5_vl": Family(qkv_bias=ALWAYS),
    "qwen2_moe": Family(qkv_bias=Bias(keys=("qkv_bias",), default=True), shared_gate=True),
    "qwen3": Family(
        qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm=True, defaults={"head_dim": 128}
    ),
    "qwen3_moe": _QK_NORM,
    "qwen3_vl_text": Family(
        qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm=True, defaults={"head_dim": 128}
    ),
    "qwen3_vl_moe_text": _QK_NORM,
    "gemma": Family(
        ties_embeddings=True, qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, defaults={"head_dim": 256}
    ),
    "gemma2": Family(
        ties_embeddings=True,
        norms_per_layer=4,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        defaults={"head_dim": 256},
    ),
    "gemma3_text": Family(
        ties_embeddings=True,
        norms_per_layer=4,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm=True,
        defaults={
            "head_dim": 256,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "vocab_size": 262_208,
        },
    ),
    "deepseek_v2": Family(
        qkv_bias=ATTENTION_BIAS,
        defaults={**_DEEPSEEK_SIZES, "q_lora_rank": 1536, "first_k_dense_replace": 0, "n_shared_experts": 2},
    ),
    "deepseek_v3": Family(
        qkv_bias=ATTENTION_BIAS,
        defaults={**_DEEPSEEK_SIZES, "q_lora_rank": 1536, "first_k_dense_replace": 3, "n_shared_experts": 1},
    ),
    "kimi_k2": Family(defaults=_DEEPSEEK_SIZES),
    "glm": Family(qkv_bias=ATTENTION_BIAS_ON, defaults={"head_dim": 128}),
    "glm4": Family(qkv_bias=ATTENTION_BIAS_ON, norms_per_layer=4, defaults={"head_dim": 128}),
    "glm4_moe": Family(
        qkv_bias=ATTENTION_BIAS,
        qk_norm="use_qk_norm",
        defaults={"first_k_dense_replace": 1, "n_shared_experts": 1},
    ),
    "chatglm": Family(
        qkv_bias=Bias(keys=("add_qkv_bias", "add_bias_linear")),
        out_bias=Bias(keys=("add_bias_linear",)),
        mlp_bias=Bias(keys=("add_bias_linear",)),
    ),
    "gpt_oss": Family(qkv_bias=ATTENTION_BIAS_ON, out_bias=ATTENTION_BIAS_ON, mlp_bias=ALWAYS),
    "llama4_text": Family(
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        defaults={"interleave_moe_layer_step": 1, "num_experts_per_tok": 1},
    ),
    "olmo": Family(
        norms_per_layer=0,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        notes=("Its norms have no parameters.",),
    ),
    "olmo2": Family(
        qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm=True, notes=_FULL_WIDTH_QK_NORM
    ),
    "olmo3": Family(
        qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm=True, notes=_FULL_WIDTH_QK_NORM
    ),
    "olmoe": Family(
        qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm=True, notes=_FULL_WIDTH_QK_NORM
    ),
    "exaone4": Family(qk_norm=True),
    "seed_oss": Family(
        qkv_bias=ATTENTION_BIAS_ON,
        out_bias=Bias(keys=("attention_out_bias",)),
        mlp_bias=MLP_BIAS,
        defaults={"head_dim": 128},
    ),
    "ernie4_5": Family(
        ties_embeddings=True,
        qkv_bias=USE_BIAS,
        out_bias=USE_BIAS,
        mlp_bias=USE_BIAS,
        defaults={"head_dim": 128},
    ),
    "ernie4_5_moe": Family(
        ties_embeddings=True,
        qkv_bias=USE_BIAS,
        out_bias=USE_BIAS,
        mlp_bias=USE_BIAS,
        defaults={"moe_num_shared_experts": 2, "moe_layer_start_index": 1},
    ),
    "internlm2": Family(qkv_bias=USE_BIAS, out_bias=USE_BIAS),
    "baichuan": _PLAIN,
    "cohere": Family(norm=_LAYERNORM, norms_per_layer=1, ties_embeddings=True, qkv_bias=ATTENTION_BIAS),
    "cohere2": Family(norm=_LAYERNORM, norms_per_layer=1, ties_embeddings=True, qkv_bias=ATTENTION_BIAS),
    "stablelm": Family(norm=_LAYERNORM, qkv_bias=Bias(keys=("use_qkv_bias",))),
    "phimoe": Family(
        norm=_LAYERNORM,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        defaults={"num_local_experts": 16, "num_experts_per_tok": 2},
    ),
    "nemotron": Family(
        is_gated=False,
        norm=_LAYERNORM,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        mlp_bias=MLP_BIAS,
    ),
    "arcee": Family(
        is_gated=False,
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        mlp_bias=MLP_BIAS,
    ),
    "apertus": Family(is_gated=False, qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm=True),
    "starcoder2": Family(
        is_gated=False,
        norm=_LAYERNORM,
        ties_embeddings=True,
        qkv_bias=USE_BIAS_ON,
        out_bias=USE_BIAS_ON,
        mlp_bias=USE_BIAS_ON,
    ),
    "gpt2": Family(
        is_gated=False,
        norm=_LAYERNORM,
        ties_embeddings=True,
        qkv_bias=ALWAYS,
        out_bias=ALWAYS,
        mlp_bias=ALWAYS,
        learned_positions=True,
        ffn_is_four_hidden=True,
        defaults={"n_positions": 1024},
    ),
    "gpt_bigcode": Family(
        is_gated=False,
        norm=_LAYERNORM,
        ties_embeddings=True,
        qkv_bias=ALWAYS,
        out_bias=ALWAYS,
        mlp_bias=ALWAYS,
        learned_positions=True,
        ffn_is_four_hidden=True,
        defaults={"n_positions": 1024},
    ),
    "bloom": _GPT,
    "opt": Family(
        is_gated=False,
        norm=_LAYERNORM,
        ties_embeddings=True,
        qkv_bias=Bias(keys=("enable_bias",), default=True),
        out_bias=Bias(keys=("enable_bias",), default=True),
        mlp_bias=Bias(keys=("enable_bias",), default=True),
        learned_positions=True,
        extra_positions=2,
        defaults={"max_position_embeddings": 2048},
    ),
    "gpt_neox": Family(
        is_gated=False,
        norm=_LAYERNORM,
        qkv_bias=ATTENTION_BIAS_ON,
        out_bias=ATTENTION_BIAS_ON,
        mlp_bias=ALWAYS,
    ),
    "gptj": Family(
        is_gated=False, norm=_LAYERNORM, norms_per_layer=1, mlp_bias=ALWAYS, ffn_is_four_hidden=True
    ),
    "codegen": Family(
        is_gated=False, norm=_LAYERNORM, norms_per_layer=1, mlp_bias=ALWAYS, ffn_is_four_hidden=True
    ),
    "phi": Family(
        is_gated=False,
        norm=_LAYERNORM,
        norms_per_layer=1,
        qkv_bias=ALWAYS,
        out_bias=ALWAYS,
        mlp_bias=ALWAYS,
        ffn_is_four_hidden=True,
    ),
    "persimmon": Family(
        is_gated=False,
        norm=_LAYERNORM,
        qkv_bias=ALWAYS,
        out_bias=ALWAYS,
        mlp_bias=ALWAYS,
        qk_norm="qk_layernorm",
    ),
    "falcon": Family(
        is_gated=False,
        norm=_LAYERNORM,
        ties_embeddings=True,
        qkv_bias=USE_BIAS,
        out_bias=USE_BIAS,
        mlp_bias=USE_BIAS,
        ffn_is_four_hidden=True,
    ),
    "mpt": Family(is_gated=False, norm=_LAYERNORM, ties_embeddings=True, ffn_is_four_hidden=True),
}

# In a configuration of several modalities the language model's part holds only what differs from its class.
NESTED_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "llama": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
    },
    "mistral": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 32000,
    },
}

# Layers that are no attention: their states and activations follow other formulas.
NO_ATTENTION = frozenset(
    (
        *("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "jamba", "bamba", "zamba", "zamba2", "minimax"),
        *("nemotron_h", "granitemoehybrid", "falcon_h1", "lfm2", "lfm2_moe", "recurrent_gemma", "qwen3_next"),
        *("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "kimi_linear", "hyena", "retnet"),
    )
)
ENCODERS = frozenset(
    (
        *(
            "bert",
            "roberta",
            "albert",
            "electra",
            "deberta",
            "deberta-v2",
            "distilbert",
            "xlm-roberta",
            "camembert",
        ),
        *(
            "modernbert",
            "mpnet",
            "nomic_bert",
            "ernie",
            "esm",
            "longformer",
            "big_bird",
            "xlnet",
            "vit",
            "swin",
        ),
        *(
            "clip",
            "siglip",
            "siglip2",
            "dinov2",
            "dinov3_vit",
            "beit",
            "wav2vec2",
            "hubert",
            "wavlm",
            "layoutlm",
        ),
    )
)
ENCODER_DECODERS = frozenset(
    (
        *(
            "t5",
            "mt5",
            "umt5",
            "longt5",
            "switch_transformers",
            "bart",
            "mbart",
            "pegasus",
            "marian",
            "blenderbot",
        ),
        *(
            "m2m_100",
            "nllb-moe",
            "whisper",
            "speech_to_text",
            "led",
            "prophetnet",
            "fsmt",
            "t5gemma",
            "encoder-decoder",
        ),
    )
)

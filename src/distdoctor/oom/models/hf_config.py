"""A model from the config.json that Hugging Face publishes with it: plain JSON and a table of names, no code of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from distdoctor.errors import InputError
from distdoctor.oom.models.config_experts import read_experts, read_latent_attention
from distdoctor.oom.models.config_json import HINT, parse_object
from distdoctor.oom.models.config_reader import ALIASES, ConfigReader
from distdoctor.oom.models.families import FAMILIES, NESTED_DEFAULTS, Family
from distdoctor.oom.models.not_a_config import kind_of, unsupported
from distdoctor.oom.shape import Model, ModelShape, Norm

# Where models of several modalities keep their language model.
_NESTED = ("text_config", "llm_config", "language_config", "language_model_config", "thinker_config")
_OTHER_TOWERS = ("vision_config", "audio_config", "visual")
# Where MPT and DBRX keep what others have at the top.
_INNER = ("attn_config", "ffn_config")

_GATED_ACTIVATIONS = frozenset(("silu", "swish", "swiglu", "geglu"))


def model_from_hf_config(text: str, path: str) -> Model:
    """The model that a `config.json` describes. `path` names the file in messages.

    Raises InputError when the text is no JSON, is no configuration of a model, is of an architecture for which our
    formulas do not hold, or lacks a size or has an impossible one.
    """
    whole = parse_object(text, path)
    config, notes = _language_model(whole)
    is_nested = bool(notes) and not any(key in whole for key in ALIASES["num_hidden_layers"])
    model_type = _model_type(config)
    reason = unsupported(whole, _model_type(whole)) or unsupported(config, model_type)
    if reason is not None:
        raise InputError(
            f"`{path}` describes {reason} ({model_type or 'no model_type'}), which is not supported",
            hint="decoder-only transformers are; for others give the number of parameters (`--params`)",
        )
    if not any(key in config for key in ALIASES["hidden_size"]) and (kind := kind_of(whole)) is not None:
        raise InputError(f"`{path}` looks like {kind[0]}, not like a model's config.json", hint=kind[1])
    family = FAMILIES.get(model_type)
    if family is None:
        family, assumed = _guessed_family(config, model_type)
        notes += assumed
    if is_nested and model_type in NESTED_DEFAULTS:
        family = replace(family, defaults={**NESTED_DEFAULTS[model_type], **family.defaults})
    reader = ConfigReader(config=config, path=path, family=family, model_type=model_type, notes=notes)
    shape = _shape(reader)
    return Model(
        name=_name(whole, path),
        source=path,
        shape=shape,
        notes=tuple(dict.fromkeys((*notes, *family.notes, *_ignored(whole), *_ignored(config)))),
    )


def _language_model(whole: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The part of a configuration that describes the language model, flat, and what was left aside."""
    config, notes = whole, []
    for _ in range(2):
        if any(key in config for key in ALIASES["num_hidden_layers"]):
            break
        key = next((each for each in _NESTED if isinstance(config.get(each), dict)), None)
        if key is None:
            break
        outer, config = config, dict(config[key])
        if "tie_word_embeddings" in outer:
            config.setdefault("tie_word_embeddings", outer["tie_word_embeddings"])
        # The class of the language model is said by its own part; where it is not, only the whole's is known.
        config.setdefault("model_type", outer.get("model_type"))
        notes = [f"Only the language model (`{key}`) is counted: vision, audio and projector are not."]
    if not notes and any(isinstance(whole.get(key), dict) for key in _OTHER_TOWERS):
        notes = ["Only the language model is counted: vision, audio and projector are not."]
    flat = dict(config)
    for key in _INNER:
        inner = config.get(key)
        if isinstance(inner, dict):
            flat = {**inner, **flat}
    return flat, notes


def _model_type(config: Mapping[str, Any]) -> str:
    value = config.get("model_type")
    return value.lower()[:60] if isinstance(value, str) else ""


def _name(whole: Mapping[str, Any], path: str) -> str:
    stated = whole.get("_name_or_path")
    if isinstance(stated, str) and 0 < len(stated.strip()) <= 120 and not stated.startswith(("/", ".")):
        return stated.strip()
    pure = PurePath(path)
    return pure.parent.name if pure.name == "config.json" and pure.parent.name else pure.name


def _guessed_family(config: Mapping[str, Any], model_type: str) -> tuple[Family, list[str]]:
    """What is assumed of a model type that the table does not have, and a note that says so."""
    activation = next(
        (config[key] for key in ("hidden_act", "hidden_activation", "activation_function") if key in config),
        "silu",
    )
    is_gated = not isinstance(activation, str) or any(each in activation for each in _GATED_ACTIVATIONS)
    uses_rms = "layer_norm_epsilon" not in config and "layer_norm_eps" not in config
    named = f"model_type `{model_type}` is not known here" if model_type else "the file has no model_type"
    mlp = "a gated MLP" if is_gated else "an MLP of two matrices"
    note = (
        f"{named[0].upper()}{named[1:]}: assumed are {mlp}, no biases unless a key says so, and an output "
        "of its own unless tie_word_embeddings is true. Parts that only this type has are not counted."
    )
    like_llama = FAMILIES["llama"]
    return (
        Family(
            is_gated=is_gated,
            norm=Norm.RMSNORM if uses_rms else Norm.LAYERNORM,
            qkv_bias=like_llama.qkv_bias,
            out_bias=like_llama.out_bias,
            mlp_bias=like_llama.mlp_bias,
        ),
        [note],
    )


def _shape(reader: ConfigReader) -> ModelShape:
    family = reader.family
    num_layers = reader.needed("num_hidden_layers")
    hidden = reader.needed("hidden_size")
    num_heads = reader.needed("num_attention_heads")
    ffn = _ffn_size(reader, hidden)
    moe = read_experts(reader, num_layers=num_layers, ffn_size=ffn)
    mla = read_latent_attention(reader)
    dense_ffn = reader.size("intermediate_size_mlp") or ffn
    if dense_ffn is None:
        # Where every layer has experts, nothing has the dense width.
        dense_ffn = moe.expert_ffn_size if moe is not None else reader.needed("intermediate_size")
    vocab = reader.needed("vocab_size")
    positions = reader.needed("positions") + family.extra_positions if family.learned_positions else 0
    reader.refuse_when_missing()
    num_kv_heads = num_heads if mla is not None else _kv_heads(reader, num_heads)
    head_size = (
        mla.nope_head_size + mla.rope_head_size if mla is not None else _head_size(reader, hidden, num_heads)
    )
    return ModelShape(
        num_layers=num_layers,
        hidden_size=hidden,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        ffn_size=dense_ffn,
        vocab_size=vocab,
        is_gated=family.is_gated,
        ties_embeddings=reader.flag("tie_word_embeddings", family.ties_embeddings),
        norm=family.norm,
        norms_per_layer=_norms_per_layer(reader),
        has_qk_norm=reader.flag(family.qk_norm, False) if isinstance(family.qk_norm, str) else family.qk_norm,
        has_qkv_bias=reader.bias(family.qkv_bias),
        has_attention_out_bias=reader.bias(family.out_bias),
        has_mlp_bias=reader.bias(family.mlp_bias),
        learned_positions=positions,
        moe=moe,
        mla=mla,
    )


def _ffn_size(reader: ConfigReader, hidden: int) -> int | None:
    width = reader.size("intermediate_size")
    if width is None:
        return 4 * hidden if reader.family.ffn_is_four_hidden else None
    return width // 2 if reader.family.ffn_is_doubled else width


def _kv_heads(reader: ConfigReader, num_heads: int) -> int:
    """Heads of keys and values. Raises InputError when they do not divide the heads of queries."""
    if reader.model_type == "falcon" and not reader.flag("new_decoder_architecture", False):
        return 1 if reader.flag("multi_query", True) else num_heads
    if reader.model_type == "gpt_bigcode":
        return 1 if reader.flag("multi_query", True) else num_heads
    if reader.flag("multi_query_attention", False):
        return reader.size("multi_query_group_num") or 1
    num_kv_heads = reader.size("num_key_value_heads") or num_heads
    if num_heads % num_kv_heads:
        raise InputError(
            f"`{reader.path}`: num_key_value_heads {num_kv_heads} does not divide num_attention_heads {num_heads}",
            hint=HINT,
        )
    return num_kv_heads


def _head_size(reader: ConfigReader, hidden: int, num_heads: int) -> int:
    """Size of one head. Raises InputError when the file gives none and heads do not divide the hidden size."""
    stated = reader.size("head_dim")
    if stated is not None:
        return stated
    if hidden % num_heads:
        raise InputError(
            f"`{reader.path}`: hidden_size {hidden} is not a multiple of num_attention_heads {num_heads}, "
            "and head_dim is missing",
            hint=HINT,
        )
    return hidden // num_heads


def _norms_per_layer(reader: ConfigReader) -> int:
    if reader.model_type == "falcon" and reader.flag("parallel_attn", True):
        return 2 if reader.flag("new_decoder_architecture", False) else 1
    if reader.model_type == "stablelm" and reader.flag("use_parallel_residual", False):
        return 1
    return reader.family.norms_per_layer


def _ignored(config: Mapping[str, Any]) -> list[str]:
    """What the file says beyond sizes, and what becomes of it."""
    notes = []
    if config.get("auto_map"):
        notes.append(
            "The model brings code of its own (auto_map); it was not run, only the sizes in the file were read."
        )
    quantization = config.get("quantization_config")
    if isinstance(quantization, dict):
        method = quantization.get("quant_method")
        named = f" ({method[:30]})" if isinstance(method, str) else ""
        notes.append(f"Published weights are quantised{named}; that is not applied here.")
    window = config.get("sliding_window")
    if (
        isinstance(window, int)
        and not isinstance(window, bool)
        and config.get("use_sliding_window") is not False
    ):
        notes.append(f"Sliding-window attention ({window} tokens) is not modelled; it changes no parameter.")
    predicted = config.get("num_nextn_predict_layers")
    if isinstance(predicted, int) and predicted > 0:
        notes.append(
            f"Multi-token prediction ({predicted} layer{'s' if predicted > 1 else ''}) is not counted: "
            "transformers trains without it."
        )
    return notes

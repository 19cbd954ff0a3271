"""What a JSON file is when it is no configuration of a decoder-only model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distdoctor.oom.models.families import ENCODER_DECODERS, ENCODERS, NO_ATTENTION

# Keys that only one kind of file has, what it is, and what to do. The first match wins.
_KINDS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("peft_type",),
        "the configuration of an adapter",
        "give the config.json of its base model, and the adapter's rank as an option",
    ),
    (("weight_map",), "the index of a checkpoint", "the model's `config.json` lies in the same folder"),
    (
        ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"),
        "a DeepSpeed configuration",
        "read it with `distdoctor oom config FILE`",
    ),
    (
        ("distributed_type", "fsdp_config", "deepspeed_config_file"),
        "an accelerate configuration",
        "read it with `distdoctor oom config FILE`",
    ),
    (
        ("log_history", "best_model_checkpoint"),
        "a trainer's state",
        "the model's `config.json` lies beside it",
    ),
    (
        ("tokenizer_class", "added_tokens_decoder"),
        "a tokenizer's configuration",
        "give `config.json` instead",
    ),
    (("added_tokens", "pre_tokenizer"), "a tokenizer", "give `config.json` instead"),
    (
        ("image_processor_type", "feature_extractor_type", "processor_class"),
        "a preprocessor's configuration",
        "give `config.json` instead",
    ),
    (
        ("_diffusers_version", "_class_name"),
        "a diffusers configuration",
        "diffusion models are not supported; give `--params`",
    ),
    (
        ("max_new_tokens", "_from_model_config", "do_sample"),
        "a generation configuration",
        "give `config.json` instead",
    ),
    (
        ("schema_version", "findings"),
        "a report of distdoctor",
        "give the `config.json` of a model",
    ),
)


def kind_of(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """What the file looks like, and what to do about it; None when nothing is recognised."""
    for keys, what, how in _KINDS:
        if any(key in config for key in keys):
            return what, how
    return None


def unsupported(config: Mapping[str, Any], model_type: str) -> str | None:
    """Why the formulas do not hold for this model; None when they may."""
    if config.get("is_encoder_decoder") is True or model_type in ENCODER_DECODERS:
        return "an encoder-decoder"
    if (model_type in ENCODERS or _is_masked(config)) and config.get("is_decoder") is not True:
        return "an encoder without a language model's decoder"
    if model_type in NO_ATTENTION or "ssm_cfg" in config or "state_size" in config:
        return "a model with state-space or linear-attention layers"
    layer_types = config.get("layer_types", config.get("layers_block_type"))
    if isinstance(layer_types, list) and any(
        isinstance(each, str) and ("linear" in each or each in {"mamba", "mamba2", "recurrent", "conv"})
        for each in layer_types
    ):
        return "a model with state-space or linear-attention layers"
    return None


def _is_masked(config: Mapping[str, Any]) -> bool:
    """Whether the file says that the model fills in masked words, which encoders do."""
    architectures = config.get("architectures")
    return isinstance(architectures, list) and any(
        isinstance(each, str) and each.endswith("ForMaskedLM") for each in architectures
    )

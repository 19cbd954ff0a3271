from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.errors import InputError
from distdoctor.oom.models.hf_config import model_from_hf_config
from distdoctor.oom.models.presets import preset
from distdoctor.oom.parameters import count_parameters
from distdoctor.oom.shape import Model, ModelShape, Norm

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "auto_map": {"AutoModelForCausalLM": "modeling_deepseek.DeepseekV3ForCausalLM"},
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8"},
    "tie_word_embeddings": False,
}
SMALL = {
    "num_hidden_layers": 6,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 2816,
    "vocab_size": 4096,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 512}


def read(config: dict[str, Any] | str) -> Model:
    return model_from_hf_config(config if isinstance(config, str) else json.dumps(config), "m/config.json")


def shape_of(config: dict[str, Any]) -> ModelShape:
    shape = read(config).shape
    assert shape is not None
    return shape


def refused(config: dict[str, Any] | str) -> InputError:
    with pytest.raises(InputError) as raised:
        read(config)
    assert raised.value.hint
    return raised.value


def test_a_published_configuration_has_the_shape_of_its_preset() -> None:
    model = read(LLAMA)
    assert model.shape == preset("llama3-8b").shape
    assert (model.name, model.source, model.notes) == ("m", "m/config.json", ())


def test_experts_and_latent_attention_are_read() -> None:
    model = read(DEEPSEEK)
    assert model.shape == preset("deepseek-v3").shape
    said = " ".join(model.notes)
    assert "auto_map" in said and "fp8" in said and "Multi-token prediction" in said


# Parameters that transformers 5.24 builds for these settings on the meta device.
@pytest.mark.parametrize(
    ("config", "params"),
    [
        ({"model_type": "llama", **SMALL}, 76_035_072),
        ({"model_type": "qwen2", **SMALL}, 76_044_288),
        ({"model_type": "gemma2", "head_dim": 64, **SMALL}, 71_853_056),
        ({"model_type": "qwen3_moe", "head_dim": 64, "num_experts": 8, **EXPERTS, **SMALL}, 99_677_952),
    ],
)
def test_counts_are_those_of_transformers(config: dict[str, Any], params: int) -> None:
    assert count_parameters(shape_of(config)) == params


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"model_type": "qwen2", **SMALL}, "has_qkv_bias", True),
        ({"model_type": "qwen2", **SMALL}, "has_attention_out_bias", False),
        ({"model_type": "llama", "attention_bias": True, **SMALL}, "has_attention_out_bias", True),
        ({"model_type": "llama", "mlp_bias": True, **SMALL}, "has_mlp_bias", True),
        ({"model_type": "qwen3", **SMALL}, "has_qk_norm", True),
        ({"model_type": "qwen3", **SMALL}, "head_size", 128),
        ({"model_type": "gemma", **SMALL}, "head_size", 256),
        ({"model_type": "gemma", **SMALL}, "ties_embeddings", True),
        ({"model_type": "llama", **SMALL}, "ties_embeddings", False),
        ({"model_type": "gemma2", **SMALL}, "norms_per_layer", 4),
        ({"model_type": "nemotron", "hidden_act": "relu2", **SMALL}, "is_gated", False),
        ({"model_type": "cohere", **SMALL}, "norms_per_layer", 1),
        ({"model_type": "llama", **SMALL, "num_key_value_heads": None}, "num_kv_heads", 16),
        ({"model_type": "falcon", **SMALL}, "num_kv_heads", 1),
        ({"model_type": "falcon", "new_decoder_architecture": True, **SMALL}, "num_kv_heads", 4),
        ({"model_type": "qwen", **SMALL}, "ffn_size", 1408),
        (
            {"model_type": "llama", **SMALL, "hidden_size": 1e3, "num_attention_heads": 8.0},
            "hidden_size",
            1000,
        ),
        ({"model_type": "nobody_knows", "hidden_act": "gelu", **SMALL}, "is_gated", False),
        ({"model_type": "nobody_knows", "layer_norm_eps": 1e-5, **SMALL}, "norm", Norm.LAYERNORM),
    ],
)
def test_what_a_model_type_implies(config: dict[str, Any], field: str, value: object) -> None:
    assert getattr(shape_of(config), field) == value


def test_names_of_older_types_are_read_with_their_defaults() -> None:
    gpt2 = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    }
    assert count_parameters(shape_of({**gpt2, "n_inner": None})) == 124_439_808
    opt = {"model_type": "opt", "num_hidden_layers": 24, "hidden_size": 2048, "ffn_dim": 8192}
    shape = shape_of({**opt, "num_attention_heads": 32, "vocab_size": 50272, "max_position_embeddings": 2048})
    assert count_parameters(shape) == 1_315_758_080
    bloom = {
        "model_type": "bloom",
        "n_layer": 24,
        "n_embed": 1024,
        "num_attention_heads": 16,
        "vocab_size": 250880,
    }
    assert shape_of(bloom).ffn_size == 4096


@pytest.mark.parametrize(
    ("more", "with_experts"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"decoder_sparse_step": 2}, [1, 3, 5]),
        ({"mlp_only_layers": [0, 1]}, [2, 3, 4, 5]),
        ({"mlp_only_layers": []}, [0, 1, 2, 3, 4, 5]),
        ({"mlp_only_layers": [0, 1, 2, 3, 4, 5]}, []),
        ({"first_k_dense_replace": 2}, [2, 3, 4, 5]),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, [2, 4]),
        ({"first_k_dense_replace": 0, "moe_layer_freq": 1}, [0, 1, 2, 3, 4, 5]),
        ({"moe_layer_freq": [0, 1, 1, 1, 1, 1]}, [1, 2, 3, 4, 5]),
        ({"moe_layers": [1, 3, 5]}, [1, 3, 5]),
    ],
)
def test_which_layers_have_experts(more: dict[str, Any], with_experts: list[int]) -> None:
    shape = shape_of({"model_type": "qwen3_moe", "num_experts": 8, **EXPERTS, **SMALL, **more})
    assert [layer for layer in range(6) if shape.has_experts(layer)] == with_experts


def test_an_irregular_pattern_keeps_the_number_of_expert_layers_and_is_told() -> None:
    model = read(
        {"model_type": "qwen3_moe", "num_experts": 8, **EXPERTS, **SMALL, "mlp_only_layers": [1, 2, 4]}
    )
    assert model.shape is not None
    assert sum(model.shape.has_experts(layer) for layer in range(6)) == 3
    assert any("no regular pattern" in note for note in model.notes)


def test_one_expert_or_none_is_a_dense_model() -> None:
    assert shape_of({"model_type": "llama", "num_experts": 0, **SMALL}).moe is None
    assert shape_of({"model_type": "llama", "num_local_experts": 1, **SMALL}).moe is None


def test_queries_without_a_low_rank_are_told_by_null() -> None:
    shape = shape_of({**DEEPSEEK, "q_lora_rank": None})
    assert shape.mla is not None and shape.mla.q_lora_rank is None


def test_of_a_model_of_several_modalities_the_language_part_is_counted_and_that_is_told() -> None:
    model = read(
        {
            "model_type": "gemma3",
            "vision_config": {"hidden_size": 1152},
            "text_config": {
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "hidden_size": 2560,
                "intermediate_size": 10240,
            },
        }
    )
    assert model.shape is not None
    assert count_parameters(model.shape) == count_parameters(preset("gemma3-4b").shape or model.shape)
    assert any("vision" in note for note in model.notes)
    assert any("by default" in note for note in model.notes)


def test_a_language_part_that_leaves_out_the_defaults_of_its_class_has_them() -> None:
    model = read({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}})
    assert model.shape is not None
    assert (model.shape.num_layers, model.shape.ffn_size, model.shape.vocab_size) == (32, 11008, 32064)
    assert "hidden_size is not in the file; llama has 4096 by default." in model.notes


def test_an_unknown_type_is_read_and_what_was_assumed_is_told() -> None:
    model = read({"model_type": "nobody_knows", **SMALL})
    assert model.shape is not None
    assert any("`nobody_knows` is not known" in note for note in model.notes)
    assert any("no model_type" in note for note in read(SMALL).notes)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"model_type": "t5", "d_model": 512, "num_layers": 6}, "encoder-decoder"),
        ({"model_type": "unheard_of", "is_encoder_decoder": True, **SMALL}, "encoder-decoder"),
        ({"model_type": "bert", **SMALL}, "an encoder"),
        ({"model_type": "unheard_of", "architectures": ["XForMaskedLM"], **SMALL}, "an encoder"),
        ({"model_type": "mamba", **SMALL}, "state-space"),
        (
            {"model_type": "x", "layer_types": ["linear_attention", "full_attention"], **SMALL},
            "linear-attention",
        ),
    ],
)
def test_what_our_formulas_do_not_cover_is_refused_by_name(config: dict[str, Any], says: str) -> None:
    problem = refused(config)
    assert says in problem.message
    assert "--params" in (problem.hint or "")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"zero_optimization": {"stage": 3}}, "a DeepSpeed configuration"),
        ({"peft_type": "LORA", "r": 8}, "an adapter"),
        ({"weight_map": {}, "metadata": {}}, "index of a checkpoint"),
        ({"tokenizer_class": "X"}, "a tokenizer's configuration"),
        ({"_class_name": "Flux", "_diffusers_version": "0.3"}, "a diffusers configuration"),
        ({"name": "package", "version": 1}, "none of its sizes, but `name`, `version`"),
        ({}, "none of its sizes, but nothing"),
    ],
)
def test_a_file_that_is_something_else_is_named(config: dict[str, Any], says: str) -> None:
    assert says in refused(config).message


def test_missing_sizes_are_named_all_at_once() -> None:
    config = {key: value for key, value in LLAMA.items() if key not in ("num_hidden_layers", "vocab_size")}
    assert "num_hidden_layers, vocab_size are missing" in refused(config).message
    assert "num_experts_per_tok is missing" in refused({**LLAMA, "num_local_experts": 8}).message


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("NaN", "no whole number"),
        ("Infinity", "no whole number"),
        ("-4096", "less than 1"),
        ("0", "less than 1"),
        ("4096.5", "no whole number"),
        ("1e12", "which no model has"),
        ("99999999999999999999", "which no model has"),
        ('"4096"', "is no number"),
        ("true", "is no number"),
        ("[4096]", "is no number"),
        ("{}", "is no number"),
    ],
)
@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "vocab_size", "num_key_value_heads", "head_dim"]
)
def test_an_impossible_size_is_refused_with_its_key(key: str, value: str, says: str) -> None:
    text = json.dumps({**LLAMA, key: "PUT"}).replace('"PUT"', value)
    message = refused(text).message
    assert key in message and says in message


def test_heads_that_do_not_fit_are_refused() -> None:
    assert "does not divide" in refused({**LLAMA, "num_key_value_heads": 7}).message
    assert "not a multiple" in refused({**LLAMA, "num_attention_heads": 24, "num_key_value_heads": 8}).message
    assert "neither true nor false" in refused({**LLAMA, "tie_word_embeddings": "yes"}).message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("not json", "is not JSON"),
        ("[1, 2]", "holds a list"),
        ("3", "a single value"),
        ('{"a": ' * 100_000, "nested too deeply"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "too long"),
        (" " * (5 << 20), "too large"),
    ],
)
def test_a_text_that_is_no_object_is_told_in_one_line(text: str, says: str) -> None:
    message = refused(text).message
    assert says in message
    assert "\n" not in message and len(message) < 200


@pytest.mark.parametrize("cut", range(2, len(json.dumps(LLAMA)) - 1, 7))
def test_a_file_cut_anywhere_is_refused(cut: int) -> None:
    assert "JSON" in refused(json.dumps(LLAMA)[:cut]).message


def test_a_byte_order_mark_is_no_obstacle() -> None:
    assert read("\ufeff" + json.dumps(LLAMA)).shape == preset("llama3-8b").shape


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=6,
)
KEYS = sorted(
    {*LLAMA, *DEEPSEEK, "text_config", "moe_layers", "mlp_only_layers", "layer_types", "n_embd", "head_dim"}
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES), st.sampled_from([{}, LLAMA, DEEPSEEK]))
def test_any_values_give_a_model_or_an_input_error(changes: dict[str, Any], base: dict[str, Any]) -> None:
    try:
        model = read({**base, **changes})
    except InputError as problem:
        assert len(problem.message) < 400
        return
    assert model.shape is not None
    assert count_parameters(model.shape) > 0

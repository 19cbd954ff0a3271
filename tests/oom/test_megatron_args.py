"""Megatron-LM's arguments: what they say, what follows from their absence, and what is not computed."""

from __future__ import annotations

import pytest

from distdoctor.oom.configs.megatron.args import MegatronReading, settings_from_megatron_args
from distdoctor.oom.configs.megatron.layers import expert_pattern, first_and_every
from distdoctor.oom.configs.megatron.layout import stages_of_layout
from distdoctor.oom.megatron_details import Activation, Dispatcher
from distdoctor.oom.settings import Attention, Checkpointing, DataParallel, Precision, Schedule
from distdoctor.oom.shape import ModelShape, Norm

SIZES = {"num-layers": "12", "hidden-size": "512", "num-attention-heads": "8", "seq-length": "1024"}


def read(**flags: str) -> MegatronReading:
    return settings_from_megatron_args(
        {**SIZES, **{name.replace("_", "-"): value for name, value in flags.items()}}
    )


def shape_of(reading: MegatronReading) -> ModelShape:
    model = reading.settings.model
    assert model is not None and model.shape is not None
    return model.shape


def test_defaults_are_megatrons_and_named_as_implied() -> None:
    reading = read(bf16="true")
    settings, shape = reading.settings, shape_of(reading)
    assert (shape.ffn_size, shape.head_size, shape.num_kv_heads) == (2048, 64, 8)
    assert shape.norm is Norm.LAYERNORM and not shape.is_gated and shape.ties_embeddings
    assert shape.has_qkv_bias and shape.has_mlp_bias and shape.has_attention_out_bias
    assert (shape.vocab_size, shape.learned_positions) == (50257, 1024)
    assert (settings.hidden_dropout, settings.attention_dropout) == (0.1, 0.1)
    assert settings.strategy is DataParallel.MEGATRON and settings.precision is Precision.MASTER
    assert settings.grads_in_fp32 and settings.vocab_divisor == 128
    assert {"hidden_dropout", "attention_dropout", "strategy", "vocab_divisor", "tp"} <= set(reading.implied)
    assert "precision" not in reading.implied and not reading.not_covered


def test_what_is_said_is_not_implied() -> None:
    reading = read(hidden_dropout="0.0", tensor_model_parallel_size="2", use_distributed_optimizer="true")
    assert reading.settings.hidden_dropout == 0.0
    assert reading.settings.strategy is DataParallel.MEGATRON_DISTRIBUTED
    assert not {"hidden_dropout", "tp", "strategy"} & set(reading.implied)


def test_a_modern_model() -> None:
    reading = read(
        swiglu="true",
        normalization="RMSNorm",
        disable_bias_linear="true",
        group_query_attention="true",
        num_query_groups="2",
        kv_channels="128",
        position_embedding_type="rope",
        untie_embeddings_and_output_weights="true",
        tokenizer_type="Llama2Tokenizer",
        tokenizer_model="${DATA_PATH}/tokenizer.model",
    )
    shape = shape_of(reading)
    assert (shape.ffn_size, shape.num_kv_heads, shape.head_size) == (1344, 2, 128)
    assert shape.norm is Norm.RMSNORM and shape.is_gated and not shape.ties_embeddings
    assert (shape.learned_positions, shape.vocab_size) == (0, 32000)
    assert not shape.has_mlp_bias and not shape.has_qkv_bias
    assert reading.settings.megatron is not None
    assert reading.settings.megatron.activation is Activation.SWIGLU


@pytest.mark.parametrize(
    ("flags", "virtual"),
    [
        ({"num_layers_per_virtual_pipeline_stage": "1"}, 3),
        ({"num_virtual_stages_per_pipeline_rank": "3"}, 3),
        ({"pipeline_model_parallel_layout": "Et|(tt|)*6tL"}, 2),
        ({"num_layers_per_virtual_pipeline_stage": "3"}, None),
    ],
)
def test_virtual_stages_however_they_are_said(flags: dict[str, str], virtual: int | None) -> None:
    settings = read(pipeline_model_parallel_size="4", **flags).settings
    assert settings.virtual_stages == virtual
    assert settings.schedule is (Schedule.INTERLEAVED if virtual else Schedule.ONE_F_ONE_B)


def test_sequence_parallelism_is_off_without_tensor_parallelism() -> None:
    assert read(sequence_parallel="true").settings.sequence_parallel is False
    assert read(sequence_parallel="true", tensor_model_parallel_size="2").settings.sequence_parallel


def test_experts_and_their_default_parallelism() -> None:
    reading = read(num_experts="8", tensor_model_parallel_size="2", moe_layer_freq="([0]*2+[1]*10)")
    moe = shape_of(reading).moe
    assert moe is not None
    assert (moe.num_experts, moe.experts_per_token, moe.expert_ffn_size) == (8, 2, 2048)
    assert (moe.first_dense_layers, moe.every) == (2, 1)
    assert reading.settings.etp == 2 and "etp" in reading.implied
    assert reading.settings.megatron is not None
    assert reading.settings.megatron.dispatcher is Dispatcher.ALLGATHER


def test_recomputation_and_kernels() -> None:
    settings = read(recompute_granularity="selective", recompute_modules='"[layernorm moe_act]"').settings
    assert settings.checkpointing is Checkpointing.SELECTIVE
    assert settings.megatron is not None
    assert settings.megatron.recompute_modules == ("layernorm", "moe_act")
    assert read(recompute_activations="true").settings.checkpointing is Checkpointing.SELECTIVE
    assert read(attention_backend="unfused # until it is mended").settings.attention is Attention.UNFUSED
    assert read(transformer_impl="local").settings.attention is Attention.UNFUSED


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"hybrid_override_pattern": "M-M*"}, "Mamba"),
        ({"position_embedding_type": "none"}, "hybrids"),
        ({"moe_latent_size": "1024"}, "latent space"),
        ({"optimizer": "muon"}, "Muon"),
        ({"optimizer": "dist_muon"}, "Muon"),
        ({"fp8_format": "hybrid"}, "8-bit"),
        ({"cuda_graph_impl": "transformer_engine"}, "CUDA graphs"),
        ({"use_megatron_fsdp": "true"}, "Megatron-FSDP"),
        ({"moe_token_dispatcher_type": "flex"}, "flex"),
        ({"num_experts": "8", "moe_layer_freq": "[1,0,0,1,0,0,0,0,0,0,0,0]"}, "no regular pattern"),
        ({"num_experts": "8", "multi_latent_attention": "true"}, "--kv-lora-rank"),
    ],
)
def test_what_is_not_covered_is_said_and_why(flags: dict[str, str], word: str) -> None:
    reasons = read(**flags).not_covered
    assert any(word in reason for reason in reasons)
    details = read(**flags).settings.megatron
    assert details is not None and details.not_covered == reasons


def test_switched_off_features_are_no_reason() -> None:
    assert not read(cuda_graph_impl="none", cpu_offloading_num_layers="0").not_covered


def test_variables_and_missing_sizes_stay_open() -> None:
    reading = settings_from_megatron_args({"num-layers": "$LAYERS", "hidden-size": "512"})
    assert reading.settings.model is None
    assert {"--num-layers", "--num-attention-heads"} <= {each.what for each in reading.open_points}
    unknown = read(tokenizer_type="HuggingFaceTokenizer", tokenizer_model="/data/own")
    assert any(each.what == "vocabulary" for each in unknown.open_points)
    assert shape_of(unknown).vocab_size == 0


@pytest.mark.parametrize(
    "text", ["__import__('os')", "([0]*3+[1]*13", "[2]*16", "[0]*99999", "", "[0]" * 9999]
)
def test_patterns_are_read_and_never_run(text: str) -> None:
    assert expert_pattern(text, 16) is None


def test_patterns_become_first_and_every() -> None:
    pattern = expert_pattern("([0]*3+[1]*13)", 16)
    assert pattern is not None and first_and_every(pattern) == (3, 1)
    alternating = expert_pattern("([0]*1+[1]*1)*8", 16)
    assert alternating is not None and first_and_every(alternating) == (1, 2)
    assert expert_pattern("2", 4) == (True, False, True, False)


def test_layouts_are_expanded_within_bounds() -> None:
    assert stages_of_layout("Et*3|(tt|)*6tmL") == ("Ettt", "tt", "tt", "tt", "tt", "tt", "tt", "tmL")
    assert stages_of_layout("Ett|ttL") == ("Ett", "ttL")
    for text in ("", "rm -rf", "E" * 5000, "(t*9999|)*9999"):
        assert stages_of_layout(text) is None

"""NeMo's YAML: interpolations, shapes, precision, ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.oom.configs.nemo import read as nemo
from distdoctor.oom.configs.nemo.omegaconf import resolved
from distdoctor.oom.configs.parameter_count import parameters_of
from distdoctor.oom.configs.text.yaml_text import read_yaml
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import DataParallel, Precision

CASES = Path(__file__).parents[3] / "shared" / "cases" / "launch_configs"

TEXT = """trainer:
  devices: 8
  num_nodes: 2
  precision: bf16
exp_manager:
  size: ${multiply:${model.tensor_model_parallel_size}, ${model.pipeline_model_parallel_size}}
model:
  micro_batch_size: 1
  global_batch_size: 32
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  encoder_seq_length: 8192
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  num_query_groups: 8
  kv_channels: null
  normalization: rmsnorm
  bias: False
  activation: fast-swiglu
  position_embedding_type: rope
  share_embeddings_and_output_weights: False
  megatron_amp_O2: True
  sequence_parallel: True
  activations_checkpoint_granularity: selective
  tokenizer:
    model: ???
  optim:
    name: distributed_fused_adam
"""


def test_a_job_on_two_nodes() -> None:
    assert nemo.sniff("conf.yaml", TEXT) > 0.9
    config = nemo.read("conf.yaml", TEXT)
    settings = config.settings
    assert (settings.world_size, settings.tp, settings.pp, settings.seq_len) == (16, 4, 2, 8192)
    assert settings.strategy is DataParallel.MEGATRON_DISTRIBUTED
    assert settings.precision is Precision.MASTER
    assert settings.model is not None
    assert settings.model.shape is not None
    assert settings.model.shape.num_kv_heads == 8
    assert config.defects == ()


def test_a_vocabulary_that_two_published_models_differ_in_stays_open() -> None:
    config = nemo.read("conf.yaml", TEXT)
    assert config.settings.model is not None
    assert config.settings.model.shape is not None
    assert config.settings.model.shape.vocab_size == 0, "Llama 3 8B and Mistral 7B have these sizes"
    assert any(each.what == "the vocabulary" for each in config.open_points)


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("precision: bf16", "precision: 32", Defect.COSTLY_PRECISION),
        ("tensor_model_parallel_size: 4", "tensor_model_parallel_size: 3", Defect.MESH_DOES_NOT_DIVIDE),
        ("global_batch_size: 32", "global_batch_size: 33", Defect.BATCH_DOES_NOT_DIVIDE),
        ("tensor_model_parallel_size: 4", "tensor_model_parallel_size: 1", Defect.INEFFECTIVE),
    ],
)
def test_a_contradiction_is_told(old: str, new: str, kind: Defect) -> None:
    assert kind in [each.kind for each in nemo.read("conf.yaml", TEXT.replace(old, new)).defects]


def test_fp32_on_a_small_model_is_no_defect() -> None:
    small = TEXT.replace("precision: bf16", "precision: 32").replace(
        "hidden_size: 4096", "hidden_size: 512", 1
    )
    small = small.replace("ffn_hidden_size: 14336", "ffn_hidden_size: 2048").replace(
        "num_layers: 32", "num_layers: 4"
    )
    kinds = [each.kind for each in nemo.read("conf.yaml", small).defects]
    assert Defect.COSTLY_PRECISION not in kinds or "vocabulary" in str(
        nemo.read("conf.yaml", small).open_points
    )


def test_what_is_to_be_filled_in_is_open() -> None:
    config = nemo.read(
        "conf.yaml", TEXT.replace("num_layers: 32", "num_layers: ???").replace("devices: 8", "devices: -1")
    )
    assert config.settings.model is None
    assert config.settings.world_size is None
    assert {each.settles for each in config.open_points} >= {"model", "world_size"}


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("${model.hidden_size}", 4096),
        ("${.encoder_seq_length}", 8192),
        ("${multiply:${model.tensor_model_parallel_size}, ${model.pipeline_model_parallel_size}}", 8),
        ("${oc.env:HOME,/tmp}", "/tmp"),
        ("${model.nothing}", "${model.nothing}"),
        ("${model.kv_channels}", None),
        ("${exp_manager.size}", 8),
        ("run-${trainer.num_nodes}", "run-2"),
        ("${eval:__import__('os')}", "${eval:__import__('os')}"),
        ("${" * 500, "${" * 500),
    ],
)
def test_interpolations(value: str, result: object) -> None:
    root = read_yaml(TEXT, "conf.yaml").documents[0]
    assert resolved(root, value, "model.max_position_embeddings") == result


def test_a_circle_of_references_ends() -> None:
    root = read_yaml("a: ${b}\nb: ${a}\n", "x.yaml").documents[0]
    assert resolved(root, "${a}", "c") in ("${a}", "${b}")


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of real cases is not here")
def test_the_real_file_is_a_model_of_7b_in_fp32_on_one_gpu() -> None:
    path = CASES / "nemo_llama_conf.yaml"
    config = nemo.read(str(path), path.read_text(encoding="utf-8"))
    assert (config.settings.world_size, config.settings.precision) == (1, Precision.FP32)
    assert config.settings.model is not None
    assert parameters_of(config.settings.model) == pytest.approx(6.74e9, rel=1e-3)
    assert [each.kind for each in config.defects] == [Defect.COSTLY_PRECISION]

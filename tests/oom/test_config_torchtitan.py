"""TorchTitan in TOML and in Python; the Python is read as a tree and never run."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest

from distdoctor.errors import InputError
from distdoctor.oom.configs.read import best_reader
from distdoctor.oom.configs.torchtitan import python as torchtitan_python
from distdoctor.oom.configs.torchtitan import toml as torchtitan_toml
from distdoctor.oom.facts.launch import Defect, LaunchConfig
from distdoctor.oom.settings import Checkpointing, DataParallel, Precision, Schedule

REGISTRY = Path(__file__).parent / "titan_registry" / "models"
CASES = Path(__file__).parents[3] / "shared" / "cases" / "launch_configs"

SPRING_2024 = """[model]
name = "llama2"
flavor = "13B"
[training]
batch_size = 4
seq_len = 4096
data_parallel_degree = -1
tensor_parallel_degree = 2
compile = false
[activation_checkpoint]
mode = 'selective'
selective_ac_option = '2'
"""

AUTUMN_2024 = """[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 8
seq_len = 8192
data_parallel_shard_degree = 4
tensor_parallel_degree = 2
[experimental]
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "Interleaved1F1B"
pipeline_parallel_microbatches = 8
[activation_checkpoint]
mode = "full"
[float8]
enable_float8_linear = true
"""

YEAR_2025 = """# preset for 128 H100 GPUs
[model]
name = "llama3"
flavor = "70B"
converters = ["float8"]
[optimizer]
name = "AdamW"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
context_parallel_degree = 1
[compile]
enable = true
components = ["model", "loss"]
[activation_checkpoint]
mode = "none"
"""


def toml(text: str) -> LaunchConfig:
    assert torchtitan_toml.sniff("train.toml", text) > 0.9
    return torchtitan_toml.read("train.toml", text)


def python(family: str, name: str) -> LaunchConfig:
    path = REGISTRY / family / "config_registry.py"
    return torchtitan_python.read(f"{path}:{name}", path.read_text(encoding="utf-8"))


def test_degrees_in_the_training_section() -> None:
    settings = toml(SPRING_2024).settings
    assert (settings.tp, settings.dp_shard, settings.micro_batch, settings.seq_len) == (2, -1, 4, 4096)
    assert settings.strategy is DataParallel.FSDP
    assert settings.model is not None
    assert settings.model.name == "llama2-13b"
    assert (settings.checkpointing, settings.checkpoint_layers) == (Checkpointing.FULL, 20)


def test_a_pipeline_in_the_experimental_section() -> None:
    config = toml(AUTUMN_2024)
    settings = config.settings
    assert (settings.pp, settings.tp, settings.dp_shard) == (4, 2, 4)
    assert settings.schedule is Schedule.INTERLEAVED
    assert (settings.micro_batch, settings.accumulation_steps) == (1, 8)
    assert settings.world_size == 32
    assert "world_size" in config.implied
    assert settings.reshard_after_forward is False
    assert settings.fp8


def test_float8_does_not_shrink_states_and_a_comment_is_no_setting() -> None:
    config = toml(YEAR_2025)
    assert config.settings.fp8
    assert config.settings.precision is Precision.MIXED
    assert any("keep their size" in each.text for each in config.statements)
    assert config.settings.world_size is None
    assert any("128 H100" in note for note in config.notes)
    assert config.settings.checkpointing is Checkpointing.NONE
    assert "a multiple of 16" in next(each.why for each in config.open_points if each.settles == "world_size")
    assert config.defects == ()


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("tensor_parallel_degree = 8", "tensor_parallel_degree = 6", Defect.MESH_DOES_NOT_DIVIDE),
        ("tensor_parallel_degree = 8", "tensor_parallel_degree = -1", Defect.CONFLICT),
        ("seq_len = 8192", "seq_len = 8190", Defect.BATCH_DOES_NOT_DIVIDE),
        ("context_parallel_degree = 1", "expert_parallel_degree = 8", Defect.INEFFECTIVE),
    ],
)
def test_a_contradiction_is_told(old: str, new: str, kind: Defect) -> None:
    assert kind in [each.kind for each in toml(YEAR_2025.replace(old, new)).defects]


def test_a_pipeline_with_too_few_microbatches_is_slow() -> None:
    config = toml(
        AUTUMN_2024.replace("pipeline_parallel_microbatches = 8", "pipeline_parallel_microbatches = 2")
    )
    assert [each.kind for each in config.defects] == [Defect.SLOW_BY_DESIGN]


def test_an_error_in_the_toml_names_its_line() -> None:
    with pytest.raises(InputError, match="line 2"):
        torchtitan_toml.read("a.toml", "[training]\nseq_len = = 3\n")


def test_a_registry_with_several_functions_asks_which() -> None:
    path = REGISTRY / "llama3" / "config_registry.py"
    config = torchtitan_python.read(str(path), path.read_text(encoding="utf-8"))
    assert config.settings.model is None
    point = next(each for each in config.open_points if each.what == "which configuration")
    assert "llama3_70b" in point.why
    assert "config_registry.py:" in point.how


def test_tokens_of_a_microbatch_become_sequences() -> None:
    settings = python("llama3", "llama3_70b").settings
    assert (settings.micro_batch, settings.seq_len, settings.tp) == (8, 8192, 8)
    assert settings.checkpointing is Checkpointing.FULL
    assert settings.model is not None
    assert settings.model.name == "llama3-70b"
    assert settings.fused_loss is True
    assert settings.world_size is None


def test_a_function_that_changes_another_ones_configuration() -> None:
    settings = python("llama3", "llama3_tiny_tp").settings
    assert (settings.tp, settings.seq_len, settings.micro_batch) == (2, 4096, 4)
    assert settings.checkpointing is Checkpointing.NONE


def test_constants_helpers_and_a_memory_budget() -> None:
    config = python("llama3", "llama3_8b")
    assert (config.settings.micro_batch, config.settings.seq_len) == (1, 8192)
    assert config.settings.checkpointing is None
    assert any("0.5" in each.why for each in config.open_points)


def test_quantised_products_under_a_pipeline() -> None:
    settings = python("llama3", "llama3_405b").settings
    assert (settings.fp8, settings.pp, settings.accumulation_steps, settings.compiled) == (True, 2, 16, True)


def test_a_model_of_experts_with_batches_in_sequences() -> None:
    settings = python("deepseek_v3", "deepseek_v3_671b").settings
    assert (settings.ep, settings.micro_batch, settings.seq_len) == (2, 4, 4096)
    assert settings.model is not None
    assert settings.model.name == "deepseek-v3"
    assert settings.schedule is None, "one stage has no schedule"
    assert settings.compiled is False


HOSTILE = """import os
from torchtitan.trainer import Trainer
from torchtitan.config import TrainingConfig
open({marker!r}, "w").write("ran")
os.system("touch " + {marker!r})
def run(x=os.system("touch " + {marker!r})) -> Trainer.Config:
    os.system("touch " + {marker!r})
    return Trainer.Config(model_spec=model_registry("8B"), training=TrainingConfig(
        local_batch_size=[open({marker!r}, "w")][0], seq_len=10 ** 10 ** 10))
"""


def test_python_is_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    config = torchtitan_python.read("models/llama3/a.py", HOSTILE.format(marker=str(marker)))
    assert not marker.exists()
    assert config.settings.micro_batch is None
    assert config.settings.seq_len is None
    assert {"micro_batch", "seq_len"} <= {each.settles for each in config.open_points}


@pytest.mark.parametrize(
    "text",
    [
        "from torchtitan.config import x\na = " + "(" * 5000 + ")" * 5000,
        "def f():\n    return f()\n",
        "def f() -> Trainer.Config:\n    return f()\n",
        "def f() -> Trainer.Config:\n    return g()\ndef g():\n    return Trainer.Config(training=[f(), f(), f()])\n",
        "x = " + "+".join(["1"] * 20_000) + "\n",
        "def f() -> Trainer.Config:\n    return Trainer.Config(training=" + "[" * 90 + "]" * 90 + ")\n",
        "\x00",
    ],
)
def test_hostile_python_ends_soon(text: str) -> None:
    start = time.process_time()
    with suppress(InputError):
        torchtitan_python.read("a.py", text)
    assert time.process_time() - start < 5


def test_an_error_in_the_python_names_its_line() -> None:
    with pytest.raises(InputError, match="line 3"):
        torchtitan_python.read("a.py", "def f():\n    return 1\ndef g(:\n")


def test_a_function_that_is_not_there() -> None:
    path = REGISTRY / "llama3" / "config_registry.py"
    with pytest.raises(InputError, match="llama3_9b"):
        torchtitan_python.read(f"{path}:llama3_9b", path.read_text(encoding="utf-8"))


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of real cases is not here")
@pytest.mark.parametrize(
    ("name", "model", "tp", "micro"),
    [
        ("titan_llama3_8b.toml", "llama3-8b", 1, 1),
        ("titan_llama3_405b.toml", "llama3-405b", 8, 2),
        ("titan_2024_llama3_70b.toml", "llama3-70b", 8, 16),
    ],
)
def test_real_files(name: str, model: str, tp: int, micro: int) -> None:
    path = CASES / name
    text = path.read_text(encoding="utf-8")
    reader = best_reader(str(path), text)
    assert reader is not None
    settings = reader.read(str(path), text).settings
    assert settings.model is not None
    assert (settings.model.name, settings.tp, settings.micro_batch) == (model, tp, micro)
    assert settings.world_size is None
    assert settings.precision is Precision.MIXED

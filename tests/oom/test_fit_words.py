"""Changes in the words of a configuration: a file with them is read as the changed job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from distdoctor.oom.configs.read import read_config_text
from distdoctor.oom.facts.launch import ConfigFamily, LaunchConfig
from distdoctor.oom.job import Job, resolve
from distdoctor.oom.models.presets import preset
from distdoctor.oom.search.catalog import changes_of
from distdoctor.oom.search.change import Axis, changed, global_batch_of, spelled_out
from distdoctor.oom.search.family_words import BATCH, WRITERS
from distdoctor.oom.search.room import Room
from distdoctor.oom.search.search import search
from distdoctor.oom.search.sentences import what_to_do
from distdoctor.oom.search.trial import Trials
from distdoctor.oom.search.words_for import lines_for, without_words
from distdoctor.oom.settings import (
    Adapter,
    Attention,
    Checkpointing,
    DataParallel,
    OptimizerLoop,
    Schedule,
    Settings,
)
from distdoctor.units import GIB

FILES = {
    ConfigFamily.TORCHTITAN: (
        "train.toml",
        {
            "model": {"name": "llama3", "flavor": "8B"},
            "training": {"local_batch_size": 8, "seq_len": 4096},
            "parallelism": {"data_parallel_shard_degree": 8, "tensor_parallel_degree": 1},
            "activation_checkpoint": {"mode": "none"},
        },
    ),
    ConfigFamily.DEEPSPEED: (
        "ds.json",
        {
            "train_micro_batch_size_per_gpu": 8,
            "gradient_accumulation_steps": 1,
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": 1},
        },
    ),
    ConfigFamily.ACCELERATE: (
        "accelerate.yaml",
        {
            "compute_environment": "LOCAL_MACHINE",
            "distributed_type": "FSDP",
            "mixed_precision": "bf16",
            "num_machines": 1,
            "num_processes": 8,
            "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": False},
        },
    ),
    ConfigFamily.HF_TRAINER: (
        "args.yaml",
        {
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 1,
            "learning_rate": 0.0001,
            "output_dir": "out",
            "bf16": True,
        },
    ),
    ConfigFamily.AXOLOTL: (
        "axolotl.yml",
        {
            "base_model": "meta-llama/Meta-Llama-3-8B",
            "datasets": "x",
            "micro_batch_size": 8,
            "gradient_accumulation_steps": 1,
            "sequence_len": 4096,
            "optimizer": "adamw_torch",
            "bf16": True,
        },
    ),
    ConfigFamily.LLAMA_FACTORY: (
        "sft.yaml",
        {
            "model_name_or_path": "meta-llama/Meta-Llama-3-8B",
            "stage": "sft",
            "do_train": True,
            "finetuning_type": "full",
            "dataset": "x",
            "template": "llama3",
            "cutoff_len": 4096,
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 1,
            "disable_gradient_checkpointing": True,
            "output_dir": "out",
        },
    ),
}
DEEPSPEED_PLUGIN = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "DEEPSPEED",
    "mixed_precision": "bf16",
    "num_machines": 1,
    "num_processes": 8,
    "deepspeed_config": {"zero_stage": 1, "gradient_accumulation_steps": 1},
}
MEGATRON = {
    "num-layers": 32,
    "hidden-size": 4096,
    "num-attention-heads": 32,
    "seq-length": 4096,
    "max-position-embeddings": 4096,
    "micro-batch-size": 8,
    "global-batch-size": 64,
    "tensor-model-parallel-size": 1,
    "bf16": True,
}

# What a change must be read as, by field of Settings.
FIELDS = {
    Axis.STRATEGY: ("strategy",),
    Axis.SHARDS: ("dp_shard", "dp_replicate"),
    Axis.TENSOR: ("tp",),
    Axis.CONTEXT: ("cp",),
    Axis.PIPELINE: ("pp", "schedule", "micro_batch", "accumulation_steps"),
    Axis.SCHEDULE: ("schedule",),
    Axis.EXPERTS: ("ep",),
    Axis.OPTIMIZER: ("optimizer",),
    Axis.OFFLOAD: ("offload_optimizer",),
    Axis.ACTIVATION_OFFLOAD: ("offload_activations",),
    Axis.ATTENTION: ("attention",),
    Axis.LOSS: ("fused_loss",),
    Axis.LOSS_PARALLEL: ("loss_parallel",),
    Axis.SEQUENCE_PARALLEL: ("sequence_parallel",),
    Axis.OPTIMIZER_LOOP: ("optimizer_loop",),
    Axis.RESHARD: ("reshard_after_forward",),
    Axis.CHECKPOINTING: ("checkpointing",),
    Axis.MICRO_BATCH: ("micro_batch",),
}


def put(tree: dict[str, Any], name: str, value: object) -> None:
    *sections, last = name.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[last] = value


def text_of(path: str, tree: dict[str, Any]) -> str:
    if path.endswith(".json"):
        return json.dumps(tree, indent=2)
    if path.endswith(".toml"):
        lines = []
        for section, values in tree.items():
            lines.append(f"[{section}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        return "\n".join(lines) + "\n"
    return "\n".join(yaml_lines(tree, "")) + "\n"


def yaml_lines(tree: dict[str, Any], indent: str) -> list[str]:
    lines = []
    for key, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", *yaml_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {json.dumps(value) if isinstance(value, bool) else value}")
    return lines


def script(flags: dict[str, Any]) -> str:
    words = " \\\n  ".join(
        f"--{name}" if value is True else f"--{name} {value}" for name, value in flags.items()
    )
    return f"#!/bin/bash\ntorchrun --nproc_per_node 8 pretrain_gpt.py \\\n  {words}\n"


def copied(tree: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(tree))
    return copy


def start_of(family: ConfigFamily, axis: Axis) -> Job:
    """A job in which `axis` can be changed."""
    strategy = {
        ConfigFamily.DEEPSPEED: DataParallel.ZERO1,
        ConfigFamily.MEGATRON: DataParallel.MEGATRON,
    }.get(family, DataParallel.FSDP)
    more: dict[str, object] = {}
    model = "mixtral-8x7b" if axis is Axis.EXPERTS else "llama3-8b"
    if axis is Axis.SHARDS:
        more = {"dp_replicate": 4, "dp_shard": 2}
    if axis is Axis.STRATEGY and family in (ConfigFamily.TORCHTITAN, ConfigFamily.ACCELERATE):
        strategy = DataParallel.DDP
    if axis is Axis.SCHEDULE:
        more = {"pp": 4, "schedule": Schedule.GPIPE}
    if axis in (Axis.LOSS_PARALLEL, Axis.SEQUENCE_PARALLEL):
        more = {"tp": 4, "loss_parallel": False, "sequence_parallel": False}
    if axis is Axis.ATTENTION:
        more = {"attention": Attention.UNFUSED}
    if axis is Axis.RESHARD:
        more = {"reshard_after_forward": False}
    if axis is Axis.FROZEN_BITS:
        more = {"adapter": Adapter(rank=8)}
    seq_len = 32768 if axis is Axis.CONTEXT else 4096
    return spelled_out(
        resolve(
            Settings(  # type: ignore[arg-type]
                model=preset(model),
                world_size=8,
                strategy=strategy,
                micro_batch=8,
                seq_len=seq_len,
                optimizer_loop=OptimizerLoop.FOREACH,
                **more,
            )
        )
    )


CASES = [(family, axis) for family, writers in WRITERS.items() for axis in writers]


@pytest.mark.parametrize(("family", "axis"), CASES, ids=lambda each: each.name)
def test_a_file_with_these_keys_is_read_as_the_changed_job(family: ConfigFamily, axis: Axis) -> None:
    start = start_of(family, axis)
    options = changes_of(start, axis)
    assert options, "nothing to change"
    tried = 0
    for change in options:
        after = changed(start, change, global_batch=global_batch_of(start))
        keys = WRITERS[family][axis](after)
        if not keys:
            continue
        tried += 1
        read = read_with(family, start, keys)
        assert read.family is family
        if axis is Axis.FROZEN_BITS:
            assert read.settings.adapter is not None and read.settings.adapter.base_bits == 4
            continue
        for field in FIELDS[axis]:
            wanted = getattr(after.said, field)
            if field == "strategy" and family is ConfigFamily.MEGATRON:
                wanted = DataParallel.MEGATRON_DISTRIBUTED
            if field in ("schedule", "accumulation_steps") and family is ConfigFamily.MEGATRON:
                # Megatron-LM knows one schedule, and accumulation follows from its global batch.
                continue
            assert getattr(read.settings, field) == wanted, field
    assert tried


def read_with(family: ConfigFamily, start: Job, keys: Any) -> LaunchConfig:
    if family is ConfigFamily.MEGATRON:
        flags: dict[str, Any] = dict(MEGATRON)
        if start.shape is not None and start.shape.moe is not None:
            flags |= {"num-experts": 8, "moe-router-topk": 2}
        flags |= {"tensor-model-parallel-size": start.mesh.tp, **dict(keys)}
        return read_config_text("train.sh", script(flags))
    path, tree = FILES[family]
    tree = copied(tree)
    if any(name.startswith("deepspeed_config") for name, _ in keys):
        tree = copied(DEEPSPEED_PLUGIN)
    if family is ConfigFamily.TORCHTITAN:
        put(tree, "parallelism.tensor_parallel_degree", start.mesh.tp)
        if start.mesh.pp > 1:
            put(tree, "parallelism.pipeline_parallel_degree", start.mesh.pp)
    if family is ConfigFamily.AXOLOTL and start.said.adapter is not None:
        tree |= {"lora_r": 8, "lora_alpha": 16}
    if family is ConfigFamily.DEEPSPEED and any(name.endswith("offload_param.device") for name, _ in keys):
        put(tree, "zero_optimization.stage", 3)
    for name, value in keys:
        put(tree, name, value)
    return read_config_text(path, text_of(path, tree))


@pytest.mark.parametrize("family", list(BATCH), ids=lambda each: each.name)
def test_the_key_that_keeps_the_global_batch_is_read(family: ConfigFamily) -> None:
    start = start_of(family, Axis.MICRO_BATCH)
    change = changes_of(start, Axis.MICRO_BATCH)[-1]
    after = changed(start, change, global_batch=global_batch_of(start))
    keys = [*WRITERS[family].get(Axis.MICRO_BATCH, lambda _: [])(after), *BATCH[family](after)]
    if not keys:
        return
    settings = read_with(family, start, keys).settings
    if family is ConfigFamily.TORCHTITAN:
        assert settings.global_batch == 64
    else:
        assert settings.accumulation_steps == 8


def test_two_files_each_get_their_own_lines() -> None:
    titan = read_config_text("train.toml", text_of(*FILES[ConfigFamily.TORCHTITAN]))
    start = start_of(ConfigFamily.TORCHTITAN, Axis.MICRO_BATCH)
    trials = Trials(start, Room(capacity=39.4 * GIB))
    trial = trials.with_change(trials.start, changes_of(trials.start.job, Axis.MICRO_BATCH)[-1])
    assert trial is not None
    trial = trials.with_change(trial, changes_of(trial.job, Axis.CHECKPOINTING)[-1])
    assert trial is not None
    lines, wordless = lines_for(trial, [titan])
    assert not wordless
    assert lines[0].settings == (
        "training.local_batch_size = 1",
        'activation_checkpoint.mode = "full"',
        "training.global_batch_size = 64",
    )


def test_a_sentence_names_the_file_and_its_keys() -> None:
    titan = read_config_text("conf/train.toml", text_of(*FILES[ConfigFamily.TORCHTITAN]))
    outcome = search(resolve(Settings(model=preset("llama3-8b"), world_size=8)), Room(capacity=39.4 * GIB))
    text = what_to_do(outcome.proposals[0], [titan])
    assert text.startswith('In train.toml set activation_checkpoint.mode = "selective" and ')


def test_a_trainer_is_not_told_to_checkpoint_selectively() -> None:
    trainer = read_config_text("args.yaml", text_of(*FILES[ConfigFamily.HF_TRAINER]))
    without = without_words([trainer])
    outcome = search(
        resolve(Settings(model=preset("llama3-8b"), world_size=8)),
        Room(capacity=39.4 * GIB),
        without=without,
    )
    assert outcome.proposals[0].trial.job.checkpointing is Checkpointing.FULL
    assert what_to_do(outcome.proposals[0], [trainer]).startswith(
        "In args.yaml set gradient_checkpointing: true"
    )


def test_flags_of_a_script_are_flags() -> None:
    config = read_config_text("train.sh", script(MEGATRON))
    start = start_of(ConfigFamily.MEGATRON, Axis.CHECKPOINTING)
    trials = Trials(start, Room(capacity=39.4 * GIB))
    trial = trials.with_change(trials.start, changes_of(start, Axis.CHECKPOINTING)[-1])
    assert trial is not None
    lines, _ = lines_for(trial, [config])
    assert lines[0].settings == (
        "--recompute-granularity full",
        "--recompute-method uniform",
        "--recompute-num-layers 1",
    )


def test_what_no_file_has_a_key_for_is_told_in_words() -> None:
    deepspeed = read_config_text("ds.json", text_of(*FILES[ConfigFamily.DEEPSPEED]))
    start = start_of(ConfigFamily.DEEPSPEED, Axis.LOSS)
    trials = Trials(start, Room(capacity=39.4 * GIB))
    trial = trials.with_change(trials.start, changes_of(start, Axis.LOSS)[0])
    assert trial is not None
    lines, wordless = lines_for(trial, [deepspeed])
    assert not lines and wordless == {Axis.LOSS}

"""A change in the words of the file that the job is configured by: which keys to set to what.

Only keys are here that the readers in `configs/` read, so that a file with them is understood as the changed job. A
family that has no key for a change has no words for it: then the change is told as a line of code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from distdoctor.oom.facts.launch import ConfigFamily, LaunchConfig
from distdoctor.oom.job import Job
from distdoctor.oom.search.change import Axis, global_batch_of
from distdoctor.oom.search.trial import Trial
from distdoctor.oom.settings import Checkpointing, DataParallel, Optimizer, Schedule

Value = str | int | bool
Keys = Sequence[tuple[str, Value]]
_Writer = Callable[[Job], Keys]

# TorchTitan's names of schedules (torch.distributed.pipelining.schedules).
_TITAN_SCHEDULES = {Schedule.ONE_F_ONE_B: "1F1B", Schedule.INTERLEAVED: "Interleaved1F1B"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """What to set in one file."""

    path: str
    settings: tuple[str, ...]
    """`activation_checkpoint.mode = "full"`, `--micro-batch-size 1` …"""


def lines_for(trial: Trial, configs: Sequence[LaunchConfig]) -> tuple[tuple[Lines, ...], frozenset[Axis]]:
    """(what to set, by file, in the order of the changes; the axes that no file has words for)."""
    by_path: dict[str, dict[str, None]] = {}
    wordless: set[Axis] = set()
    for change in trial.changes:
        found = _first(change.axis, trial.job, configs)
        if found is None:
            wordless.add(change.axis)
            continue
        config, keys = found
        by_path.setdefault(config.path, {}).update(dict.fromkeys(_written(config, keys)))
    for config, keys in _accumulation(trial.job, configs, trial):
        by_path.setdefault(config.path, {}).update(dict.fromkeys(_written(config, keys)))
    return (
        tuple(Lines(path=path, settings=tuple(each)) for path, each in by_path.items()),
        frozenset(wordless),
    )


def without_words(configs: Sequence[LaunchConfig]) -> frozenset[tuple[int, int]]:
    """Changes that the job's framework cannot do: (axis, strength). Trainers and DeepSpeed checkpoint whole layers."""
    selective = {ConfigFamily.TORCHTITAN, ConfigFamily.MEGATRON, ConfigFamily.NEMO}
    training = [config.family for config in configs if config.family in _WRITERS]
    if training and not selective & set(training):
        return frozenset({(int(Axis.CHECKPOINTING), 1)})
    return frozenset()


def _first(axis: Axis, job: Job, configs: Sequence[LaunchConfig]) -> tuple[LaunchConfig, Keys] | None:
    """The first file with words for this axis; one that already says something of it before the others."""
    candidates = []
    for config in configs:
        writer = _WRITERS.get(config.family, {}).get(axis)
        keys = writer(job) if writer is not None else ()
        if keys:
            names = {name.rsplit(".", 1)[-1] for name, _ in keys}
            said = any(key.name.rsplit(".", 1)[-1] in names for _, key in config.setting_keys)
            candidates.append((not said, config, keys))
    if not candidates:
        return None
    _, config, keys = min(candidates, key=lambda each: each[0])
    return config, keys


def _accumulation(job: Job, configs: Sequence[LaunchConfig], trial: Trial) -> list[tuple[LaunchConfig, Keys]]:
    """The key that keeps the global batch, where a change asks for more accumulation."""
    if not _changes_batch(trial):
        return []
    for config in configs:
        writer = _BATCH.get(config.family)
        if writer is not None and (keys := writer(job)):
            return [(config, keys)]
    return []


def _changes_batch(trial: Trial) -> bool:
    """Whether the number of data-parallel ranks or the micro-batch is another, so that accumulation is as well."""
    moves = {Axis.MICRO_BATCH, Axis.TENSOR, Axis.CONTEXT, Axis.PIPELINE}
    return bool(moves & trial.axes)


def _written(config: LaunchConfig, keys: Keys) -> list[str]:
    """In the grammar of the file, with the file's own spelling of a key that is there already."""
    there = {key.name.rsplit(".", 1)[-1]: key.name for _, key in config.setting_keys}
    style = _style(config)
    return [style(there.get(name.rsplit(".", 1)[-1], name), value) for name, value in keys]


def _style(config: LaunchConfig) -> Callable[[str, Value], str]:
    path = config.path.lower()
    if config.family is ConfigFamily.MEGATRON and not path.endswith((".yaml", ".yml")):
        return _flag
    if path.endswith((".sh", ".slurm", ".sbatch")):
        return _flag
    if path.endswith((".toml", ".py")) or ".py:" in path:
        return lambda name, value: f"{name} = {_toml(value)}"
    if path.endswith(".json"):
        return lambda name, value: f'"{name}": {json.dumps(value)}'
    return lambda name, value: f"{name}: {_plain(value)}"


def _flag(name: str, value: Value) -> str:
    name = f"--{name.removeprefix('--')}"
    return name if value is True else f"{name} {value}"


def _toml(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) else _plain(value)


def _plain(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _titan_checkpointing(job: Job) -> Keys:
    keys: list[tuple[str, Value]] = [("activation_checkpoint.mode", job.checkpointing.value)]
    if job.checkpointing is Checkpointing.SELECTIVE:
        keys.append(("activation_checkpoint.selective_ac_option", "op"))
    return keys


def _titan_batch(job: Job) -> Keys:
    return [("training.global_batch_size", global_batch_of(job))]


def _titan_micro(job: Job) -> Keys:
    if job.mesh.pp > 1:
        return [("parallelism.pipeline_parallel_microbatch_size", job.micro_batch)]
    return [("training.local_batch_size", job.micro_batch)]


def _titan_pipeline(job: Job) -> Keys:
    # A pipeline's local batch is cut into its micro-batches.
    return [
        ("parallelism.pipeline_parallel_degree", job.mesh.pp),
        ("parallelism.pipeline_parallel_schedule", "1F1B"),
        ("parallelism.pipeline_parallel_microbatch_size", job.micro_batch),
        ("training.local_batch_size", job.micro_batch * job.num_micro_batches),
    ]


def _titan_shards(job: Job) -> Keys:
    return [
        ("parallelism.data_parallel_replicate_degree", job.mesh.dp_replicate),
        ("parallelism.data_parallel_shard_degree", job.mesh.dp_shard),
    ]


def _titan_degree(name: str, field: str) -> _Writer:
    """A degree, and the shards that it leaves."""

    def keys(job: Job) -> Keys:
        return [(f"parallelism.{name}", getattr(job.mesh, field)), *_titan_shards(job)]

    return keys


def _titan_schedule(job: Job) -> Keys:
    name = _TITAN_SCHEDULES.get(job.schedule)
    return [("parallelism.pipeline_parallel_schedule", name)] if name else ()


_TITAN: Mapping[Axis, _Writer] = {
    Axis.STRATEGY: _titan_shards,
    Axis.SHARDS: _titan_shards,
    Axis.TENSOR: _titan_degree("tensor_parallel_degree", "tp"),
    Axis.CONTEXT: _titan_degree("context_parallel_degree", "cp"),
    Axis.PIPELINE: _titan_pipeline,
    Axis.SCHEDULE: _titan_schedule,
    Axis.EXPERTS: lambda job: [("parallelism.expert_parallel_degree", job.mesh.ep)],
    Axis.OFFLOAD: lambda job: (
        [("training.enable_cpu_offload", True)] if job.strategy is DataParallel.FSDP else ()
    ),
    Axis.LOSS_PARALLEL: lambda _: [("parallelism.disable_loss_parallel", False)],
    Axis.OPTIMIZER_LOOP: lambda _: [("optimizer.implementation", "fused")],
    Axis.RESHARD: lambda _: [("parallelism.fsdp_reshard_after_forward", "always")],
    Axis.CHECKPOINTING: _titan_checkpointing,
    Axis.MICRO_BATCH: _titan_micro,
}


def _deepspeed_offload(job: Job) -> Keys:
    keys: list[tuple[str, Value]] = [("zero_optimization.offload_optimizer.device", "cpu")]
    if job.strategy is DataParallel.ZERO3:
        keys.append(("zero_optimization.offload_param.device", "cpu"))
    return keys


_DEEPSPEED: Mapping[Axis, _Writer] = {
    Axis.STRATEGY: lambda job: (
        [("zero_optimization.stage", int(job.strategy.value[-1]))]
        if job.strategy.value.startswith("zero")
        else ()
    ),
    Axis.OFFLOAD: _deepspeed_offload,
    Axis.MICRO_BATCH: lambda job: [("train_micro_batch_size_per_gpu", job.micro_batch)],
}


def _accelerate_offload(job: Job) -> Keys:
    if job.strategy is DataParallel.FSDP:
        return [("fsdp_config.fsdp_offload_params", True)]
    keys: list[tuple[str, Value]] = [("deepspeed_config.offload_optimizer_device", "cpu")]
    if job.strategy is DataParallel.ZERO3:
        keys.append(("deepspeed_config.offload_param_device", "cpu"))
    return keys


def _accelerate_strategy(job: Job) -> Keys:
    if job.strategy is DataParallel.FSDP:
        return [
            ("distributed_type", "FSDP"),
            ("fsdp_config.fsdp_version", 2),
            ("fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
        ]
    return [("deepspeed_config.zero_stage", int(job.strategy.value[-1]))]


def _whole_layers(job: Job, name: str, *, value: bool = True) -> Keys:
    """Of trainers that checkpoint whole layers or none."""
    return [(name, value)] if job.checkpointing is Checkpointing.FULL else ()


_ACCELERATE: Mapping[Axis, _Writer] = {
    Axis.STRATEGY: _accelerate_strategy,
    Axis.OFFLOAD: _accelerate_offload,
    Axis.RESHARD: lambda _: [("fsdp_config.fsdp_reshard_after_forward", True)],
    Axis.CHECKPOINTING: lambda job: (
        _whole_layers(job, "fsdp_config.fsdp_activation_checkpointing")
        if job.strategy is DataParallel.FSDP
        else ()
    ),
}

_TRAINER: Mapping[Axis, _Writer] = {
    Axis.CHECKPOINTING: lambda job: _whole_layers(job, "gradient_checkpointing"),
    Axis.MICRO_BATCH: lambda job: [("per_device_train_batch_size", job.micro_batch)],
    Axis.LOSS: lambda _: [("use_liger_kernel", True)],
    Axis.OPTIMIZER_LOOP: lambda _: [("optim", "adamw_torch_fused")],
    Axis.OPTIMIZER: lambda job: (
        [("optim", "adamw_bnb_8bit")] if job.optimizer is Optimizer.ADAMW_8BIT else ()
    ),
}

_AXOLOTL: Mapping[Axis, _Writer] = {
    Axis.CHECKPOINTING: lambda job: _whole_layers(job, "gradient_checkpointing"),
    Axis.MICRO_BATCH: lambda job: [("micro_batch_size", job.micro_batch)],
    Axis.LOSS: lambda _: [("liger_fused_linear_cross_entropy", True)],
    Axis.ATTENTION: lambda _: [("flash_attention", True)],
    Axis.OPTIMIZER_LOOP: lambda _: [("optimizer", "adamw_torch_fused")],
    Axis.OPTIMIZER: lambda job: (
        [("optimizer", "adamw_torch_8bit")] if job.optimizer is Optimizer.ADAMW_8BIT else ()
    ),
    Axis.FROZEN_BITS: lambda _: [("adapter", "qlora"), ("load_in_4bit", True)],
    Axis.ACTIVATION_OFFLOAD: lambda _: [("activation_offloading", True)],
}

_LLAMA_FACTORY: Mapping[Axis, _Writer] = {
    Axis.CHECKPOINTING: lambda job: _whole_layers(job, "disable_gradient_checkpointing", value=False),
    Axis.MICRO_BATCH: lambda job: [("per_device_train_batch_size", job.micro_batch)],
    Axis.LOSS: lambda _: [("enable_liger_kernel", True)],
    Axis.ATTENTION: lambda _: [("flash_attn", "fa2")],
    Axis.OPTIMIZER_LOOP: lambda _: [("optim", "adamw_torch_fused")],
    Axis.OPTIMIZER: lambda job: (
        [("optim", "adamw_bnb_8bit")] if job.optimizer is Optimizer.ADAMW_8BIT else ()
    ),
}


def _megatron_checkpointing(job: Job) -> Keys:
    keys: list[tuple[str, Value]] = [("recompute-granularity", job.checkpointing.value)]
    if job.checkpointing is Checkpointing.FULL:
        keys += [("recompute-method", "uniform"), ("recompute-num-layers", 1)]
    return keys


_MEGATRON: Mapping[Axis, _Writer] = {
    Axis.STRATEGY: lambda _: [("use-distributed-optimizer", True)],
    Axis.TENSOR: lambda job: [("tensor-model-parallel-size", job.mesh.tp), ("sequence-parallel", True)],
    Axis.CONTEXT: lambda job: [("context-parallel-size", job.mesh.cp)],
    Axis.PIPELINE: lambda job: [("pipeline-model-parallel-size", job.mesh.pp)],
    Axis.EXPERTS: lambda job: [("expert-model-parallel-size", job.mesh.ep)],
    Axis.SEQUENCE_PARALLEL: lambda _: [("sequence-parallel", True)],
    Axis.CHECKPOINTING: _megatron_checkpointing,
    Axis.MICRO_BATCH: lambda job: [("micro-batch-size", job.micro_batch)],
}

_WRITERS: Mapping[ConfigFamily, Mapping[Axis, _Writer]] = {
    ConfigFamily.TORCHTITAN: _TITAN,
    ConfigFamily.DEEPSPEED: _DEEPSPEED,
    ConfigFamily.ACCELERATE: _ACCELERATE,
    ConfigFamily.HF_TRAINER: _TRAINER,
    ConfigFamily.AXOLOTL: _AXOLOTL,
    ConfigFamily.LLAMA_FACTORY: _LLAMA_FACTORY,
    ConfigFamily.MEGATRON: _MEGATRON,
}

# What keeps the global batch: Megatron-LM is given the global batch itself, and needs nothing.
_BATCH: Mapping[ConfigFamily, _Writer] = {
    ConfigFamily.TORCHTITAN: _titan_batch,
    ConfigFamily.DEEPSPEED: lambda job: [("gradient_accumulation_steps", job.num_micro_batches)],
    ConfigFamily.ACCELERATE: lambda job: (
        [("deepspeed_config.gradient_accumulation_steps", job.num_micro_batches)]
        if job.strategy.value.startswith("zero")
        else ()
    ),
    ConfigFamily.HF_TRAINER: lambda job: [("gradient_accumulation_steps", job.num_micro_batches)],
    ConfigFamily.AXOLOTL: lambda job: [("gradient_accumulation_steps", job.num_micro_batches)],
    ConfigFamily.LLAMA_FACTORY: lambda job: [("gradient_accumulation_steps", job.num_micro_batches)],
}

"""Keys of each family of configurations, by what is changed: name and value, from the changed job.

Only keys are here that the readers in `configs/` read; tests/oom/test_fit_words.py writes each into a file and reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from distdoctor.oom.facts.launch import ConfigFamily
from distdoctor.oom.job import Job
from distdoctor.oom.search.change import Axis, global_batch_of
from distdoctor.oom.settings import Checkpointing, DataParallel, Optimizer, Schedule

Value = str | int | bool
Keys = Sequence[tuple[str, Value]]
Writer = Callable[[Job], Keys]

# TorchTitan's names of schedules (torch.distributed.pipelining.schedules).
_TITAN_SCHEDULES = {Schedule.ONE_F_ONE_B: "1F1B", Schedule.INTERLEAVED: "Interleaved1F1B"}


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


def _titan_degree(name: str, field: str) -> Writer:
    """A degree, and the shards that it leaves."""

    def keys(job: Job) -> Keys:
        return [(f"parallelism.{name}", getattr(job.mesh, field)), *_titan_shards(job)]

    return keys


def _titan_schedule(job: Job) -> Keys:
    name = _TITAN_SCHEDULES.get(job.schedule)
    return [("parallelism.pipeline_parallel_schedule", name)] if name else ()


_TITAN: Mapping[Axis, Writer] = {
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


_DEEPSPEED: Mapping[Axis, Writer] = {
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


_ACCELERATE: Mapping[Axis, Writer] = {
    Axis.STRATEGY: _accelerate_strategy,
    Axis.OFFLOAD: _accelerate_offload,
    Axis.RESHARD: lambda _: [("fsdp_config.fsdp_reshard_after_forward", True)],
    Axis.CHECKPOINTING: lambda job: (
        _whole_layers(job, "fsdp_config.fsdp_activation_checkpointing")
        if job.strategy is DataParallel.FSDP
        else ()
    ),
}

_TRAINER: Mapping[Axis, Writer] = {
    Axis.CHECKPOINTING: lambda job: _whole_layers(job, "gradient_checkpointing"),
    Axis.MICRO_BATCH: lambda job: [("per_device_train_batch_size", job.micro_batch)],
    Axis.LOSS: lambda _: [("use_liger_kernel", True)],
    Axis.OPTIMIZER_LOOP: lambda _: [("optim", "adamw_torch_fused")],
    Axis.OPTIMIZER: lambda job: (
        [("optim", "adamw_bnb_8bit")] if job.optimizer is Optimizer.ADAMW_8BIT else ()
    ),
}

_AXOLOTL: Mapping[Axis, Writer] = {
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

_LLAMA_FACTORY: Mapping[Axis, Writer] = {
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


_MEGATRON: Mapping[Axis, Writer] = {
    Axis.STRATEGY: lambda _: [("use-distributed-optimizer", True)],
    Axis.TENSOR: lambda job: [("tensor-model-parallel-size", job.mesh.tp), ("sequence-parallel", True)],
    Axis.CONTEXT: lambda job: [("context-parallel-size", job.mesh.cp)],
    Axis.PIPELINE: lambda job: [("pipeline-model-parallel-size", job.mesh.pp)],
    Axis.EXPERTS: lambda job: [("expert-model-parallel-size", job.mesh.ep)],
    Axis.SEQUENCE_PARALLEL: lambda _: [("sequence-parallel", True)],
    Axis.CHECKPOINTING: _megatron_checkpointing,
    Axis.MICRO_BATCH: lambda job: [("micro-batch-size", job.micro_batch)],
}

WRITERS: Mapping[ConfigFamily, Mapping[Axis, Writer]] = {
    ConfigFamily.TORCHTITAN: _TITAN,
    ConfigFamily.DEEPSPEED: _DEEPSPEED,
    ConfigFamily.ACCELERATE: _ACCELERATE,
    ConfigFamily.HF_TRAINER: _TRAINER,
    ConfigFamily.AXOLOTL: _AXOLOTL,
    ConfigFamily.LLAMA_FACTORY: _LLAMA_FACTORY,
    ConfigFamily.MEGATRON: _MEGATRON,
}

# What keeps the global batch: Megatron-LM is given the global batch itself, and needs nothing.
BATCH: Mapping[ConfigFamily, Writer] = {
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

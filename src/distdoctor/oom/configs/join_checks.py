"""Defects that show only when all files of a job, or all values of one, are seen together."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.configs.parameter_count import parameters_of, size_in_name
from distdoctor.oom.facts.launch import ConfigDefect, ConfigFamily, ConfigKey, Defect, LaunchConfig
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload, Precision, Settings
from distdoctor.units import GIB, format_bytes

# What Adam's states take on the host for each parameter: fp32 parameters, gradients and two moments (ZeRO, arXiv
# 1910.02054), and the least of it when everything is 16 bit.
MOST_BYTES, LEAST_BYTES = 16, 8

# A name and a computed size further apart than this disagree: sizes in names are rounded, embeddings counted or not.
NAME_TOLERANCE = 0.25


def check_together(configs: Sequence[LaunchConfig], joined: Settings) -> list[ConfigDefect]:
    """Contradictions between the joined settings."""
    found: list[ConfigDefect] = []
    if not configs:
        return found
    found += _ranks(configs, joined)
    found += _visible(configs, joined)
    found += _mesh(configs, joined)
    found += _batch(configs, joined)
    found += _checkpointing(configs)
    found += _host_memory(configs, joined)
    found += _name(joined)
    found += _quantised_base(configs, joined)
    return found


def _keys(configs: Sequence[LaunchConfig], *names: str) -> tuple[ConfigKey, ...]:
    found = []
    for config in configs:
        keys = dict(config.setting_keys)
        file = config.path.rsplit("/", 1)[-1]
        for name in names:
            key = keys.get(name)
            if key is not None and getattr(config.settings, name) is not None:
                found.append(ConfigKey(name=f"{file}: {key.name}", value=key.value, line=key.line))
    return tuple(found)


def _ranks(configs: Sequence[LaunchConfig], joined: Settings) -> list[ConfigDefect]:
    world, nodes, per_node = joined.world_size, joined.num_nodes, joined.gpus_per_node
    if len(configs) < 2 or world is None or nodes is None or per_node is None or nodes * per_node == world:
        return []
    implied = {name for each in configs for name in each.implied}
    if {"world_size", "num_nodes", "gpus_per_node"} & implied:
        return []
    return [
        ConfigDefect(
            kind=Defect.MESH_DOES_NOT_DIVIDE,
            title=f"{nodes} nodes x {per_node} ranks = {nodes * per_node}, but the files also say {world} ranks"[
                :80
            ],
            why="The files describe different numbers of ranks; the rendezvous waits for those that never come.",
            fix="make number of nodes x ranks of a node the number of processes everywhere",
            keys=_keys(configs, "world_size", "num_nodes", "gpus_per_node"),
            is_certain=False,
        )
    ]


def _visible(configs: Sequence[LaunchConfig], joined: Settings) -> list[ConfigDefect]:
    """A number of ranks in one file, and in another the GPUs that they may use."""
    saying = next((each for each in configs if each.visible_gpus is not None), None)
    world, nodes = joined.world_size, joined.num_nodes
    per_node = joined.gpus_per_node or (world if nodes == 1 else None)
    implied = {name for each in configs for name in each.implied}
    if (
        saying is None
        or saying.visible_gpus is None
        or per_node is None
        or {"world_size", "gpus_per_node"} & implied
    ):
        return []
    visible = len([each for each in saying.visible_gpus.value.split(",") if each.strip()])
    by_others = [each for each in configs if each is not saying]
    keys = _keys(by_others, "gpus_per_node", "world_size")
    if per_node <= visible or not keys:
        return []
    key = saying.visible_gpus
    file = saying.path.rsplit("/", 1)[-1]
    return [
        ConfigDefect(
            kind=Defect.MORE_RANKS_THAN_DEVICES,
            title=f"{per_node} ranks on a node, but CUDA_VISIBLE_DEVICES names {visible} GPUs",
            why="Ranks beyond the last GPU fail with `invalid device ordinal`.",
            fix=f"start {visible} ranks, or name more GPUs",
            keys=(ConfigKey(name=f"{file}: {key.name}", value=key.value, line=key.line), *keys),
            stops_job=True,
        )
    ]


def _mesh(configs: Sequence[LaunchConfig], joined: Settings) -> list[ConfigDefect]:
    world = joined.world_size
    degrees = {name: getattr(joined, name) or 1 for name in ("pp", "dp_replicate", "cp", "tp")}
    shard = joined.dp_shard
    if world is None:
        return []
    product = 1
    for size in degrees.values():
        product *= size
    exact = shard is not None and shard > 0
    total = product * shard if exact and shard is not None else product
    fits = total == world if exact else world % product == 0
    said = any(
        "degrees" in each.title or " x " in each.title
        for config in configs
        for each in config.defects
        if each.kind is Defect.MESH_DOES_NOT_DIVIDE
    )
    if fits or total == 1 or said:
        return []
    shown = " x ".join(
        f"{name} {size}"
        for name, size in {**degrees, **({"dp_shard": shard} if exact else {})}.items()
        if size and size > 1
    )
    shown_total = f" = {total}" if " x " in shown else ""
    return [
        ConfigDefect(
            kind=Defect.MESH_DOES_NOT_DIVIDE,
            title=f"{shown}{shown_total} does not {'make' if exact else 'divide'} {world} ranks"[:80],
            why="The product of all degrees must be the number of ranks; what is left over belongs to no group.",
            fix=f"change the degrees, or start {total} ranks" + ("" if exact else " or a multiple"),
            keys=_keys(configs, "world_size", *degrees, "dp_shard"),
            stops_job=True,
            is_certain="world_size" not in {name for each in configs for name in each.implied},
        )
    ]


def _batch(configs: Sequence[LaunchConfig], joined: Settings) -> list[ConfigDefect]:
    """global = micro x accumulation x data-parallel ranks, once the files together say all of it."""
    total, micro, world = joined.global_batch, joined.micro_batch, joined.world_size
    if total is None or micro is None or world is None:
        return []
    if any(each.kind is Defect.BATCH_DOES_NOT_DIVIDE for config in configs for each in config.defects):
        return []
    ways = (joined.tp or 1) * (joined.pp or 1) * (joined.cp or 1)
    if world % ways:
        return []
    ranks = world // ways
    steps = joined.accumulation_steps
    need = micro * ranks * (steps or 1)
    if total % need == 0 and (steps is None or total == need):
        return []
    shown = f"{micro} x {steps} x {ranks}" if steps else f"{micro} x {ranks}"
    return [
        ConfigDefect(
            kind=Defect.BATCH_DOES_NOT_DIVIDE,
            title=f"global batch {total} is not {shown} = {need}"
            if steps
            else f"global batch {total} is no multiple of {shown} = {need}",
            why="The global batch is micro-batch x accumulation x data-parallel ranks "
            f"({world} ranks / {ways} of model parallelism = {ranks}); DeepSpeed and Megatron check it at start.",
            fix=f"set the global batch to {need}" + ("" if steps else " or a multiple of it"),
            keys=_keys(
                configs, "global_batch", "micro_batch", "accumulation_steps", "world_size", "tp", "pp", "cp"
            ),
            stops_job=True,
            is_certain="world_size" not in {name for each in configs for name in each.implied},
        )
    ]


def _checkpointing(configs: Sequence[LaunchConfig]) -> list[ConfigDefect]:
    """Trainer.create_accelerator_and_postprocess refuses FSDP's and the trainer's own checkpointing together."""
    full = [each for each in configs if each.settings.checkpointing is Checkpointing.FULL]
    by_fsdp = next(
        (
            each
            for each in full
            if "fsdp" in dict(each.setting_keys).get("checkpointing", ConfigKey(name="", value="")).name
        ),
        None,
    )
    by_trainer = next(
        (
            each
            for each in full
            if each is not by_fsdp
            and "gradient_checkpointing"
            in dict(each.setting_keys).get("checkpointing", ConfigKey(name="", value="")).name
        ),
        None,
    )
    if by_fsdp is None or by_trainer is None:
        return []
    return [
        ConfigDefect(
            kind=Defect.CONFLICT,
            title="two kinds of activation checkpointing are on",
            why="The trainer refuses gradient_checkpointing together with FSDP's activation_checkpointing.",
            fix="set `gradient_checkpointing: false` and keep FSDP's",
            keys=_keys((by_fsdp, by_trainer), "checkpointing"),
            stops_job=True,
        )
    ]


def _host_memory(configs: Sequence[LaunchConfig], joined: Settings) -> list[ConfigDefect]:
    """Offloaded states against the memory that a pod may use."""
    limit = next((each.host_memory_limit_bytes for each in configs if each.host_memory_limit_bytes), None)
    params = parameters_of(joined.model) if joined.model is not None else None
    nodes = joined.num_nodes
    if (
        params is None
        or joined.adapter is not None
        or joined.offload_optimizer is not Offload.CPU
        or not nodes
    ):
        return []
    whole = joined.offload_params is Offload.CPU
    most = (MOST_BYTES if whole else 12) * params // nodes
    least = (LEAST_BYTES if whole else 4) * params // nodes
    if joined.precision is not Precision.PURE16:
        least = most
    if limit is None or least <= limit:
        return []
    return [
        ConfigDefect(
            kind=Defect.HOST_MEMORY,
            title=f"a pod may use {format_bytes(limit)}, and offloaded states need {format_bytes(least)}"[
                :80
            ],
            why=f"{params / 1e9:.1f} billion parameters x {least * nodes // params} bytes over {nodes} node"
            f"{'s' if nodes > 1 else ''}, before buffers and the page cache. Beyond the limit the kernel kills a rank.",
            fix=f"raise `limits.memory` to at least {int(least * 1.2 / GIB)}Gi, use more nodes, or keep states on the GPUs",
            keys=_keys(configs, "offload_optimizer", "offload_params", "num_nodes"),
            stops_job=True,
            is_certain=False,
        )
    ]


def _name(joined: Settings) -> list[ConfigDefect]:
    model = joined.model
    params = parameters_of(model) if model is not None else None
    named = size_in_name(model.name) if model is not None else None
    if model is None or params is None or named is None or abs(params - named) <= NAME_TOLERANCE * named:
        return []
    return [
        ConfigDefect(
            kind=Defect.NAME_DISAGREES,
            title=f"{model.name[:30]} by name, {params / 1e9:.1f} billion parameters by its sizes"[:80],
            why="Sizes decide memory; the name is only a name. One of the two is not what was meant.",
            fix="compare the number of layers, the hidden size and the vocabulary with the model that is meant",
            is_certain=False,
        )
    ]


def _quantised_base(configs: Sequence[LaunchConfig], joined: Settings) -> list[ConfigDefect]:
    """DeepSpeed's stage 3 beside LoRA on a quantised base."""
    adapter = joined.adapter
    if adapter is None or adapter.base_bits == 16 or joined.strategy is not DataParallel.ZERO3:
        return []
    if not any(each.family is ConfigFamily.DEEPSPEED for each in configs):
        return []
    return [
        ConfigDefect(
            kind=Defect.INEFFECTIVE,
            title=f"ZeRO-3 does not shard a {adapter.base_bits}-bit base in most versions",
            why="bitsandbytes weights are no plain tensors; each rank then holds the whole quantised model. transformers "
            "and peft support it for some versions only.",
            fix="check the memory after loading, or take FSDP with bnb_4bit_quant_storage set to the type of computation",
            keys=_keys(configs, "adapter", "strategy"),
            is_certain=False,
        )
    ]

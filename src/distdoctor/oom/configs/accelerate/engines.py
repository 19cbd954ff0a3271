"""DeepSpeed and Megatron-LM below accelerate: the plugin's own keys, or a DeepSpeed file that they point to.

accelerate, utils/dataclasses.py: `DeepSpeedPlugin` (zero_stage 2 by default; a deepspeed_config_file excludes
the other keys), `MegatronLMPlugin`.
"""

from __future__ import annotations

from distdoctor.oom.configs.host_memory import say_offload
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Section
from distdoctor.oom.configs.text.values import as_flag, as_word
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload

_STAGES = {0: DataParallel.DDP, 1: DataParallel.ZERO1, 2: DataParallel.ZERO2, 3: DataParallel.ZERO3}
_OFFLOAD = {"none": Offload.NONE, "cpu": Offload.CPU, "nvme": Offload.NVME, "no": Offload.NONE}

# Keys that stop the launch when deepspeed_config_file is given (`_deepspeed_config_checks`).
_AMBIGUOUS = (
    *("gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device"),
    *(
        "offload_param_device",
        "offload_param_nvme_path",
        "offload_optimizer_nvme_path",
        "zero3_save_16bit_model",
    ),
)


def read_deepspeed_plugin(reading: Reading, root: Section) -> None:
    """Fill in what accelerate's deepspeed_config says."""
    section = root.section("deepspeed_config")
    file_key = section.get("deepspeed_config_file")
    file = as_word(file_key.value) if file_key is not None else None
    if file_key is not None and file and file.lower() != "none":
        reading.references.append(file)
        reading.say("strategy", f"DeepSpeed, as {file} says", file_key)
        reading.leave_open(
            f"what {file} says",
            "the file is named, and was not given",
            settles="strategy",
            how_to=f"give `{file}` as another file",
        )
        both = [each for name in _AMBIGUOUS if (each := section.get(name)) is not None]
        precision = root.get("mixed_precision")
        if precision is not None and (as_word(precision.value) or "no").lower() not in ("no", "null"):
            both.append(precision)
        if both:
            reading.defect(
                Defect.CONFLICT,
                "deepspeed_config_file excludes other DeepSpeed settings beside it",
                file_key,
                *both,
                why="accelerate stops: when using `deepspeed_config_file`, these variables belong into that file.",
                fix=f"remove {', '.join(each.name.rsplit('.', 1)[-1] for each in both)} here and set them in {file}",
                stops=True,
                sure=False,
            )
        return
    stage_key = section.get("zero_stage")
    stage = reading.integer(stage_key, settles="strategy", what="the ZeRO stage")
    if stage_key is None:
        stage = 2
        reading.set("strategy", DataParallel.ZERO2, implied=True)
        reading.say("strategy", "ZeRO-2: no zero_stage, which accelerate takes as 2")
    elif stage is not None and stage in _STAGES:
        reading.set("strategy", _STAGES[stage], stage_key)
        reading.say(
            "strategy", f"DeepSpeed ZeRO-{stage}" if stage else "DeepSpeed without ZeRO (stage 0)", stage_key
        )
    elif stage is not None:
        reading.defect(
            Defect.CONFLICT,
            f"ZeRO has the stages 0 to 3; this file says {stage}",
            stage_key,
            why="DeepSpeed refuses the configuration.",
            fix="set `zero_stage` to 0, 1, 2 or 3",
            stops=True,
        )
    _offload(reading, section, stage)
    reading.fill("accumulation_steps", section.get("gradient_accumulation_steps"))
    _loading(reading, section, stage)


def _offload(reading: Reading, section: Section, stage: int | None) -> None:
    param_key, optimizer_key = section.get("offload_param_device"), section.get("offload_optimizer_device")
    params = reading.choice(param_key, _OFFLOAD)
    optimizer = reading.choice(optimizer_key, _OFFLOAD)
    if params not in (None, Offload.NONE) and stage in (0, 1, 2):
        reading.defect(
            Defect.INEFFECTIVE,
            f"offload_param_device works in ZeRO stage 3 only; this is stage {stage}",
            param_key,
            section.get("zero_stage"),
            why="Below stage 3 every rank computes with its whole copy of the parameters, on the GPU.",
            fix="set `zero_stage: 3`, or `offload_param_device: none`",
        )
        params = None
    reading.set("offload_params", params, param_key)
    reading.set("offload_optimizer", optimizer, optimizer_key)
    say_offload(
        reading,
        params=params,
        optimizer=optimizer,
        keys=(param_key, optimizer_key),
        bytes_per_param="16 to 18",
    )


def _loading(reading: Reading, section: Section, stage: int | None) -> None:
    init = section.get("zero3_init_flag")
    if stage == 3 and init is not None and as_flag(init.value) is False:
        reading.say(
            "host memory",
            "zero3_init_flag is false: every rank builds the whole model before it is sharded",
            init,
        )
    save = section.get("zero3_save_16bit_model")
    if stage == 3 and save is not None and as_flag(save.value):
        reading.say("checkpoint", "saving gathers the whole 16-bit model on rank 0's host", save)


def read_megatron_plugin(reading: Reading, root: Section) -> None:
    """Fill in what accelerate's megatron_lm_config says."""
    section = root.section("megatron_lm_config")
    sharded = section.get("megatron_lm_use_distributed_optimizer")
    is_sharded = reading.flag(sharded)
    reading.set(
        "strategy", DataParallel.MEGATRON_DISTRIBUTED if is_sharded else DataParallel.MEGATRON, sharded
    )
    tp = reading.fill("tp", section.get("megatron_lm_tp_degree"))
    pp = reading.fill("pp", section.get("megatron_lm_pp_degree"))
    reading.fill("accumulation_steps", section.get("megatron_lm_num_micro_batches"))
    sequence = section.get("megatron_lm_sequence_parallelism")
    reading.set("sequence_parallel", reading.flag(sequence), sequence)
    recompute = section.get("megatron_lm_recompute_activations")
    if reading.flag(recompute):
        reading.set("checkpointing", Checkpointing.SELECTIVE, recompute)
    reading.say(
        "strategy",
        f"Megatron-LM, tp {tp or 1} x pp {pp or 1}" + (", distributed optimizer" if is_sharded else ""),
        root.get("megatron_lm_config"),
    )
    if reading.get("sequence_parallel") and tp == 1:
        reading.defect(
            Defect.INEFFECTIVE,
            "sequence parallelism without tensor parallelism has no effect",
            sequence,
            section.get("megatron_lm_tp_degree"),
            why="It splits what tensor parallelism replicates; with tp 1 nothing is replicated.",
            fix="set `megatron_lm_sequence_parallelism: false`, or tp above 1",
        )
    world = reading.get("world_size")
    if world is not None and tp and pp and world % (tp * pp):
        reading.defect(
            Defect.MESH_DOES_NOT_DIVIDE,
            f"tp {tp} x pp {pp} = {tp * pp} does not divide {world} processes",
            section.get("megatron_lm_tp_degree"),
            section.get("megatron_lm_pp_degree"),
            root.get("num_processes"),
            why="Every data-parallel copy needs tp x pp ranks.",
            fix=f"set `num_processes` to a multiple of {tp * pp}",
            stops=True,
        )

"""DeepSpeed's JSON: which states ZeRO shards, what is offloaded, which types, and what the batch sizes demand.

Sources: deepspeed.ai, "DeepSpeed Configuration JSON"; DeepSpeed 0.19, runtime/config.py (batch assertion, both
16-bit modes), runtime/engine.py (`_do_optimizer_sanity_check`: stage 0 with bf16 uses BF16_Optimizer; 1-bit
optimizers refuse ZeRO), runtime/zero/config.py (keys and defaults).
"""

from __future__ import annotations

import re

from distdoctor.oom.configs.deepspeed.batch import read_batch
from distdoctor.oom.configs.deepspeed.names import check_names
from distdoctor.oom.configs.deepspeed.optimizer import read_optimizer
from distdoctor.oom.configs.deepspeed.types import read_types
from distdoctor.oom.configs.deepspeed.zero import read_zero
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.json_text import begins_with_object, read_json
from distdoctor.oom.configs.text.tree import Entry, Section, repeated
from distdoctor.oom.configs.text.values import as_flag
from distdoctor.oom.facts.launch import ConfigFamily, Defect, LaunchConfig
from distdoctor.oom.settings import DataParallel

_STAGES = {0: DataParallel.DDP, 1: DataParallel.ZERO1, 2: DataParallel.ZERO2, 3: DataParallel.ZERO3}

_SURE = ("zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer")
_LIKELY = (
    "train_batch_size",
    "fp16",
    "bf16",
    "gradient_accumulation_steps",
    "steps_per_print",
    "tensor_parallel",
)


def sniff(path: str, text: str) -> float:  # noqa: ARG001 - readers share one signature
    """How much this looks like DeepSpeed's JSON: 0 to 1."""
    if not begins_with_object(text):
        return 0.0
    keys = set(re.findall(r'"(\w+)"\s*:', text))
    if any(key in keys for key in _SURE):
        return 0.95
    return (
        0.7 if sum(key in keys for key in _LIKELY) >= 2 and "per_device_train_batch_size" not in keys else 0.0
    )


def read(path: str, text: str) -> LaunchConfig:
    """The configuration in `text`. Raises InputError with the line when it is no JSON."""
    found = read_json(text, path)
    reading = Reading(path=path, family=ConfigFamily.DEEPSPEED)
    if found.lenient:
        reading.note(
            f"holds {', '.join(found.lenient)}: DeepSpeed itself reads that, Hugging Face's json.load does not"
        )
    for entry in repeated(found.root):
        reading.defect(
            Defect.CONFLICT,
            f"{entry.name.rsplit('.', 1)[-1]} stands twice in the same section"[:80],
            entry,
            why="DeepSpeed refuses a file with duplicate keys; Hugging Face silently takes the last one.",
            fix="keep one of them",
            stops=True,
            sure=False,
        )
    read_section(reading, found.root)
    reading.leave_open("the model", "a DeepSpeed file names none", settles="model")
    return reading.done()


def read_section(reading: Reading, root: Section) -> None:
    """Everything that a DeepSpeed configuration says, wherever it stands (also inside a trainer's YAML)."""
    stage = _stage(reading, root)
    read_types(reading, root, stage)
    read_optimizer(reading, root, stage)
    if stage is not None:
        read_zero(reading, root.section("zero_optimization"), stage)
    _parallel(reading, root, stage)
    read_batch(reading, root, tp=reading.get("tp") or 1)
    _activations(reading, root)
    _slow(reading, root)
    check_names(reading, root)
    if reading.in_hf:
        reading.note('"auto" values are filled in by the Hugging Face trainer at run time')


def _stage(reading: Reading, root: Section) -> int | None:
    entry = root.get("zero_optimization")
    if entry is None or entry.value is None:
        reading.set("strategy", DataParallel.DDP)
        reading.say("strategy", "plain data parallel: no zero_optimization section, which means stage 0")
        return 0
    if isinstance(entry.value, bool):
        # runtime/zero/config.py, read_zero_config_deprecated.
        stage = int(entry.value)
        reading.note("`zero_optimization: true` is the old spelling of stage 1")
        stage_entry: Entry | None = entry
    else:
        stage_entry = root.section("zero_optimization").get("stage")
        if stage_entry is None:
            reading.set("strategy", DataParallel.DDP, entry)
            reading.say(
                "strategy", "plain data parallel: zero_optimization names no stage, the default is 0", entry
            )
            return 0
        read_stage = reading.integer(stage_entry, settles="strategy", minimum=0, what="the ZeRO stage")
        if read_stage is None:
            return None
        stage = read_stage
    if stage not in _STAGES:
        reading.defect(
            Defect.CONFLICT,
            f"ZeRO has the stages 0 to 3; this file says {stage}",
            stage_entry,
            why="DeepSpeed refuses the configuration.",
            fix="set `zero_optimization.stage` to 0, 1, 2 or 3",
            stops=True,
        )
        return None
    reading.set("strategy", _STAGES[stage], stage_entry)
    words = {
        0: "plain data parallel: ZeRO stage 0 shards nothing",
        1: "ZeRO-1: optimizer states are sharded",
        2: "ZeRO-2: optimizer states and gradients are sharded",
        3: "ZeRO-3: optimizer states, gradients and parameters are sharded",
    }
    reading.say("strategy", words[stage], stage_entry)
    return stage


def _parallel(reading: Reading, root: Section, stage: int | None) -> None:
    tensor = root.section("tensor_parallel")
    size = tensor.get("autotp_size") or root.section("tensor_parallel").get("tp_size")
    degree = reading.fill("tp", size)
    if degree is not None and degree > 1:
        reading.say(
            "mesh",
            f"tensor parallel over {degree} ranks (AutoTP): ZeRO shards over ranks / {degree}, "
            f"and the number of ranks must be a multiple of {degree}",
            size,
        )
        reading.leave_open(
            "the number of ranks",
            f"the launcher decides; it must be a multiple of {degree}",
            settles="world_size",
        )
        if stage == 3:
            reading.defect(
                Defect.CONFLICT,
                "AutoTP together with ZeRO stage 3",
                size,
                root.section("zero_optimization").get("stage"),
                why="DeepSpeed before 0.19.4 asserts that the stage is at most 2 when autotp_size is above 1.",
                fix="set the stage to 2, or take DeepSpeed 0.19.4 or newer",
                stops=True,
                sure=False,
            )
    experts = root.section("expert_parallel")
    spread = experts.get("autoep_size")
    switch = experts.get("enabled")
    if spread is not None and switch is not None and as_flag(switch.value):
        groups = reading.fill("ep", spread)
        reading.say("mesh", f"experts are spread over {groups} of the data-parallel ranks (AutoEP)", spread)
    sequence = root.get("sequence_parallel_size")
    ulysses = reading.fill("cp", sequence)
    if ulysses is not None and ulysses > 1:
        reading.say("mesh", f"sequences are split over {ulysses} ranks (Ulysses)", sequence)
    if root.section("pipeline"):
        reading.leave_open(
            "pipeline stages", "the training script gives them to PipelineModule", settles="pp"
        )


def _activations(reading: Reading, root: Section) -> None:
    section = root.section("activation_checkpointing")
    if not section:
        return
    reading.say(
        "activations",
        "activation_checkpointing configures deepspeed.checkpointing; it does not switch checkpointing on",
        root.get("activation_checkpointing"),
    )
    on_host = section.get("cpu_checkpointing")
    if on_host is not None and as_flag(on_host.value):
        reading.say("activations", "checkpoints of activations are kept in host memory", on_host)
        partition = section.get("partition_activations")
        if partition is None or not as_flag(partition.value):
            reading.defect(
                Defect.INEFFECTIVE,
                "cpu_checkpointing without partition_activations has no effect",
                on_host,
                partition,
                why="DeepSpeed offloads activations that are partitioned over model-parallel ranks.",
                fix='add `"partition_activations": true`',
                sure=False,
            )


def _slow(reading: Reading, root: Section) -> None:
    entry = root.get("wall_clock_breakdown")
    if entry is not None and as_flag(entry.value):
        reading.defect(
            Defect.SLOW_BY_DESIGN,
            "wall_clock_breakdown synchronises the GPU at every step",
            entry,
            why="Timers wait for the GPU before and after each phase; fine for a measurement, not for a long run.",
            fix='set `"wall_clock_breakdown": false`',
            sure=False,
        )

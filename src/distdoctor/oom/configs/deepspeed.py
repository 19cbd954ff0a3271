"""DeepSpeed's JSON: which states ZeRO shards, what is offloaded, which types, and what the batch sizes demand.

Sources: deepspeed.ai, "DeepSpeed Configuration JSON"; DeepSpeed 0.19, runtime/config.py (batch assertion, both
16-bit modes), runtime/engine.py (`_do_optimizer_sanity_check`: stage 0 with bf16 uses BF16_Optimizer; 1-bit
optimizers refuse ZeRO), runtime/zero/config.py (keys and defaults).
"""

from __future__ import annotations

import re
from itertools import islice

from distdoctor.oom.configs.deepspeed_batch import read_batch
from distdoctor.oom.configs.deepspeed_keys import OFFLOAD, ONLY_STAGE_3, ROOT, SIXTEEN_BIT, ZERO
from distdoctor.oom.configs.host_memory import say_offload
from distdoctor.oom.configs.json_text import read_json
from distdoctor.oom.configs.near_names import MAX_KEYS, near_name
from distdoctor.oom.configs.optimizers import named_optimizer
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.tree import Entry, Section, repeated
from distdoctor.oom.configs.values import as_flag, as_word, is_auto
from distdoctor.oom.facts.launch import ConfigFamily, Defect, LaunchConfig
from distdoctor.oom.settings import DataParallel, Offload, OptimizerLoop, Precision

_STAGES = {0: DataParallel.DDP, 1: DataParallel.ZERO1, 2: DataParallel.ZERO2, 3: DataParallel.ZERO3}
_OFFLOAD = {"none": Offload.NONE, "cpu": Offload.CPU, "nvme": Offload.NVME}

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
    head = text.lstrip("\ufeff \t\r\n")
    if not head.startswith(("{", "//", "/*", "#")):
        return 0.0
    keys = set(re.findall(r'"(\w+)"\s*:', text))
    if any(key in keys for key in _SURE):
        return 0.95 if head.startswith("{") or "{" in head[:4000] else 0.0
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
    _precision(reading, root, stage)
    _optimizer(reading, root, stage)
    if stage is not None:
        _zero(reading, root.section("zero_optimization"), stage)
    _parallel(reading, root, stage)
    read_batch(reading, root, tp=reading.get("tp") or 1)
    _activations(reading, root)
    _slow(reading, root)
    _names(reading, root)
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


def _precision(reading: Reading, root: Section, stage: int | None) -> None:
    half = root.section("fp16").get("enabled")
    brain = root.first("bf16", "bfloat16")
    brain_enabled = root.section("bf16" if "bf16" in root else "bfloat16").get("enabled")
    fp16 = reading.flag(half, settles="precision", what="fp16")
    bf16 = reading.flag(brain_enabled, settles="precision", what="bf16")
    amp = as_flag(entry.value) if (entry := root.section("amp").get("enabled")) else None
    autocast = root.section("torch_autocast")
    if fp16 and bf16:
        reading.defect(
            Defect.CONFLICT,
            "fp16 and bf16 are both enabled",
            half,
            brain_enabled,
            why="DeepSpeed stops: bfloat16 and fp16 modes cannot be simultaneously enabled.",
            fix='keep one: `"fp16": {"enabled": false}` on GPUs that have bf16 (A100 and newer)',
            stops=True,
        )
        return
    if amp and stage:
        reading.defect(
            Defect.CONFLICT,
            "Apex amp and ZeRO exclude each other",
            root.get("amp"),
            root.get("zero_optimization"),
            why="DeepSpeed supports amp without ZeRO only.",
            fix='replace `"amp"` by `"bf16": {"enabled": true}`',
            stops=True,
        )
    if bf16 or fp16:
        enabled, name = (brain_enabled, "bf16") if bf16 else (half, "fp16")
        reading.dtype = name
        reading.set("precision", Precision.MASTER, enabled)
        reading.say("precision", f"{name} parameters with an fp32 master copy in the optimizer", enabled)
        _grad_type(reading, root, name, stage)
        if bf16 and stage == 0:
            _bf16_optimizer(reading, brain_enabled)
        return
    if as_flag(entry.value) if (entry := autocast.get("enabled")) else False:
        dtype = as_word(entry.value) if (entry := autocast.get("dtype")) else "bfloat16"
        reading.dtype = "fp16" if dtype and "float16" in dtype and "b" not in dtype else "bf16"
        reading.set("precision", Precision.MIXED, root.get("torch_autocast"))
        reading.say(
            "precision", f"fp32 parameters, computed in {dtype} by torch.autocast", root.get("torch_autocast")
        )
        return
    if amp:
        reading.dtype = "fp16"
        reading.set("precision", Precision.MIXED, root.get("amp"))
        return
    open_types = {each.what for each in reading.open_points} & {"fp16", "bf16"}
    if open_types:
        reading.leave_open(
            "the type of parameters",
            f"{' and '.join(sorted(open_types))} decided at run time",
            settles="precision",
        )
        return
    if brain is not None or half is not None:
        reading.dtype = "fp32"
        reading.set("precision", Precision.FP32, half or brain_enabled, implied=True)
        reading.say("precision", "fp32: neither fp16 nor bf16 is enabled", half, brain_enabled)
        return
    reading.dtype = None
    reading.set("precision", Precision.FP32, implied=True)
    reading.say("precision", "fp32: the file enables neither fp16 nor bf16, which is DeepSpeed's default")
    reading.defect(
        Defect.COSTLY_PRECISION,
        "no 16-bit type is enabled: DeepSpeed trains in fp32",
        why="Parameters, gradients and activations take twice the bytes, and tensor cores mostly idle.",
        fix='add `"bf16": {"enabled": true}`, or `"auto"` where the Hugging Face trainer decides',
        sure=False,
    )


def _grad_type(reading: Reading, root: Section, name: str, stage: int | None) -> None:
    entry = root.section("data_types").get("grad_accum_dtype")
    word = reading.word(entry)
    if word is not None:
        reading.set("grads_in_fp32", word in ("fp32", "float32"), entry)
        reading.say("precision", f"gradients accumulate in {word}", entry)
    elif name == "bf16" and stage == 0:
        reading.set("grads_in_fp32", True)
    section = root.section("bf16" if name == "bf16" else "fp16")
    pure = section.first("bf16_master_weights_and_grads", "fp16_master_weights_and_grads")
    if pure is not None and as_flag(pure.value):
        reading.say("precision", "master copy and gradients in 16 bit too", pure)
        states = section.get("bf16_optimizer_states")
        if states is not None and as_flag(states.value):
            reading.set("precision", Precision.PURE16, pure)


def _bf16_optimizer(reading: Reading, entry: Entry | None) -> None:
    """engine.py: bf16 without ZeRO and with fp32 gradients takes BF16_Optimizer, whose fp32 states are partitioned."""
    reading.values["strategy"] = DataParallel.ZERO1
    reading.implied.add("strategy")
    reading.say(
        "strategy",
        "stage 0 with bf16 uses DeepSpeed's BF16_Optimizer, which shards fp32 states over data-parallel ranks "
        "as ZeRO-1 does, and keeps fp32 gradients (read from DeepSpeed's source; check with the log of your version)",
        entry,
    )
    reading.note(
        "with Megatron-DeepSpeed, tensor and pipeline parallelism stand on the command line, not in this file"
    )


def _optimizer(reading: Reading, root: Section, stage: int | None) -> None:
    entry = root.section("optimizer").get("type")
    name = reading.word(entry, what="the optimizer")
    if entry is None or name is None:
        if entry is None:
            reading.leave_open("the optimizer", "the training script chooses it", settles="optimizer")
        return
    found = named_optimizer(name)
    if found is None or found.optimizer is None:
        note = found.note if found and found.note else "its states are not known here"
        reading.leave_open(f"the states of optimizer {shown_type(entry)}", note, settles="optimizer")
        return
    reading.set("optimizer", found.optimizer, entry)
    torch_adam = root.section("optimizer").section("params").get("torch_adam")
    if found.loop or (found.optimizer.value == "adamw" and not (torch_adam and as_flag(torch_adam.value))):
        reading.set("optimizer_loop", found.loop or OptimizerLoop.FUSED, entry)
    reading.say("optimizer", f"{shown_type(entry)}{f' ({found.note})' if found.note else ''}", entry)
    if found.is_onebit:
        reading.say(
            "optimizer",
            "a 1-bit optimizer: error-feedback buffers of about 1 to 2 fp32 copies of the parameters come on top",
            entry,
        )
        if stage:
            reading.defect(
                Defect.CONFLICT,
                f"{shown_type(entry)} does not work with ZeRO",
                entry,
                root.section("zero_optimization").get("stage"),
                why="1-bit optimizers need whole states on every rank; DeepSpeed asserts that ZeRO is off.",
                fix="set `zero_optimization.stage` to 0, or take Adam",
                stops=True,
            )
    untested = root.get("zero_allow_untested_optimizer")
    is_untested = found.optimizer.value in ("lamb", "sgd", "sgd-momentum") and not found.is_onebit
    if stage and is_untested and not (untested is not None and as_flag(untested.value)):
        reading.defect(
            Defect.CONFLICT,
            f"{shown_type(entry)} with ZeRO needs zero_allow_untested_optimizer",
            entry,
            untested,
            why="ZeRO is tested with Adam; with other optimizers DeepSpeed stops unless the file allows it.",
            fix='add `"zero_allow_untested_optimizer": true`',
            stops=True,
            sure=False,
        )


def shown_type(entry: Entry) -> str:
    """An optimizer's name as the file writes it."""
    return (as_word(entry.value) or "")[:40]


def _zero(reading: Reading, zero: Section, stage: int) -> None:
    params = _offload(reading, zero, "offload_param", "cpu_offload_params")
    optimizer = _offload(reading, zero, "offload_optimizer", "cpu_offload")
    param_key = zero.section("offload_param").get("device") or zero.first(
        "cpu_offload_params", "cpu_offload_param"
    )
    optimizer_key = zero.section("offload_optimizer").get("device") or zero.get("cpu_offload")
    for name, place in (("offload_param", params), ("offload_optimizer", optimizer)):
        section = zero.section(name)
        if place is Offload.NVME and not section.get("nvme_path"):
            reading.defect(
                Defect.EMPTY_VALUE,
                f"{name} goes to NVMe without an nvme_path",
                section.get("device"),
                why="DeepSpeed needs a folder on a fast local disk.",
                fix=f'add `"nvme_path": "/local_nvme"` to `{name}`',
                stops=True,
                sure=False,
            )
    if params not in (None, Offload.NONE) and stage != 3:
        reading.defect(
            Defect.INEFFECTIVE,
            f"offload_param works in ZeRO stage 3 only; this is stage {stage}",
            param_key,
            zero.get("stage"),
            why="Parameters stay on the GPU: below stage 3 every rank computes with its whole copy.",
            fix="set the stage to 3, or remove `offload_param`",
        )
        params = None
    if optimizer not in (None, Offload.NONE) and stage == 0:
        reading.defect(
            Defect.INEFFECTIVE,
            "offload_optimizer does nothing in ZeRO stage 0",
            optimizer_key,
            zero.get("stage"),
            why="Optimizer states are offloaded by ZeRO, from stage 1.",
            fix="set the stage to 1, 2 or 3",
        )
        optimizer = None
    if optimizer is Offload.NVME and stage in (1, 2):
        reading.defect(
            Defect.CONFLICT,
            f"optimizer states go to NVMe in ZeRO stage 3 only; this is stage {stage}",
            optimizer_key,
            zero.get("stage"),
            why="DeepSpeed's NVMe offload is part of ZeRO-Infinity, which needs stage 3.",
            fix='set the stage to 3, or `"device": "cpu"`',
            sure=False,
        )
    reading.set("offload_params", params, param_key)
    reading.set("offload_optimizer", optimizer, optimizer_key)
    say_offload(
        reading,
        params=params,
        optimizer=optimizer,
        keys=(param_key, optimizer_key),
        bytes_per_param="16 to 18" if params is Offload.CPU else "12 to 16",
    )
    _buffers(reading, zero, stage)
    _rarer(reading, zero, stage)
    if stage < 3:
        unread = [each for name, each in zero.entries.items() if name in ONLY_STAGE_3 and each.value]
        if unread:
            reading.defect(
                Defect.INEFFECTIVE,
                f"{len(unread)} setting{'s' if len(unread) > 1 else ''} of stage 3 in a file of stage {stage}",
                *unread[:6],
                why="They are read in ZeRO stage 3 only.",
                fix="remove them, or set the stage to 3 if that was meant",
                sure=False,
            )


def _offload(reading: Reading, zero: Section, name: str, old: str) -> Offload | None:
    section = zero.get(name)
    if section is not None and isinstance(section.value, Section):
        device = section.value.get("device")
        return reading.choice(device, _OFFLOAD) if device is not None else Offload.NONE
    entry = zero.first(old, f"cpu_{name}")
    if entry is not None:
        reading.note(f"`{entry.name}` is an old spelling of `{name}`")
        return Offload.CPU if as_flag(entry.value) else Offload.NONE
    return None


_BUFFERS = {
    "reduce_bucket_size": "reduce_bucket_elements",
    "allgather_bucket_size": "allgather_bucket_elements",
    "stage3_prefetch_bucket_size": "prefetch_bucket_elements",
    "prefetch_bucket_size": "prefetch_bucket_elements",
    "stage3_param_persistence_threshold": "persistence_threshold_elements",
    "param_persistence_threshold": "persistence_threshold_elements",
    "stage3_max_live_parameters": "max_live_elements",
    "max_live_parameters": "max_live_elements",
}

# transformers, integrations/deepspeed.py: what "auto" becomes, in elements, from the model's hidden size.
_AUTO = {
    "reduce_bucket_size": "hidden_size²",
    "stage3_prefetch_bucket_size": "0.9 hidden_size²",
    "stage3_param_persistence_threshold": "10 hidden_size",
}


def _buffers(reading: Reading, zero: Section, stage: int) -> None:
    said = []
    for name, setting in _BUFFERS.items():
        entry = zero.get(name)
        if entry is None or (name in ONLY_STAGE_3 and stage < 3):
            continue
        if is_auto(entry.value):
            reading.in_hf = True
            becomes = f": Hugging Face makes it {_AUTO[name]}" if name in _AUTO else ""
            reading.leave_open(
                entry.name, f'`{entry.name}` is "auto"{becomes}', settles=setting, how_to="`--model …`"
            )
            continue
        number = reading.integer(entry, settles=setting)
        if number is not None:
            reading.set(setting, number, entry)
            said.append(entry)
    if said:
        reading.say("buffers", "sizes of DeepSpeed's buffers, in elements", *said)
    overlap = zero.get("overlap_comm")
    reading.set("overlap_comm", reading.flag(overlap, settles="overlap_comm"), overlap)


def _rarer(reading: Reading, zero: Section, stage: int) -> None:
    """Secondary partitions, MiCS, quantised communication, gathering for a checkpoint, client optimizers on the CPU."""
    hpz = zero.get("zero_hpz_partition_size")
    size = reading.integer(hpz) if hpz is not None else None
    if stage == 3 and size is not None and size > 1:
        reading.say(
            "strategy",
            f"ZeRO++ hpZ: a second copy of the parameters, sharded over {size} ranks only (2 bytes x parameters / {size})",
            hpz,
        )
    mics = zero.get("mics_shard_size")
    shard = reading.integer(mics, minimum=-1) if mics is not None else None
    if stage == 3 and shard is not None and shard > 0:
        reading.set("dp_shard", shard, mics)
        reading.say(
            "strategy", f"MiCS: states are sharded over {shard} ranks and replicated over the groups", mics
        )
    quantised = [
        each for name in ("zero_quantized_weights", "zero_quantized_gradients") if (each := zero.get(name))
    ]
    if any(as_flag(each.value) for each in quantised):
        reading.say(
            "communication", "ZeRO++ sends weights or gradients quantised; states keep their size", *quantised
        )
    gather = zero.first("stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save")
    if stage == 3 and gather is not None and as_flag(gather.value):
        reading.say(
            "checkpoint",
            "saving gathers the whole 16-bit model (2 bytes a parameter) into the memory of rank 0's host",
            gather,
        )


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


def _names(reading: Reading, root: Section) -> None:
    for key, entry in islice(root.entries.items(), MAX_KEYS):
        meant = near_name(key, ROOT)
        if key in ("stage", "offload_optimizer", "offload_param", "overlap_comm"):
            _misplaced(reading, entry, key, "zero_optimization")
        elif meant:
            _slip(reading, entry, meant, stops=False)
    zero = root.section("zero_optimization")
    for section, known in (
        (zero, ZERO),
        (zero.section("offload_param"), OFFLOAD),
        (zero.section("offload_optimizer"), OFFLOAD),
        (root.section("fp16"), SIXTEEN_BIT),
        (root.section("bf16"), SIXTEEN_BIT),
    ):
        for key, entry in islice(section.entries.items(), MAX_KEYS):
            if key in known:
                continue
            meant = near_name(key, known)
            if meant:
                _slip(reading, entry, meant, stops=known is not SIXTEEN_BIT)
            elif section is zero and key in ROOT:
                _misplaced(reading, entry, key, "the outermost section")


def _slip(reading: Reading, entry: Entry, meant: str, *, stops: bool) -> None:
    key = entry.name.rsplit(".", 1)[-1]
    reading.defect(
        Defect.UNKNOWN_KEY,
        f"{key[:30]} is no key of DeepSpeed; {meant[:30]} is",
        entry,
        why="DeepSpeed refuses unknown keys in this section."
        if stops
        else "DeepSpeed ignores it without a word.",
        fix=f'write `"{meant}"`',
        stops=stops,
        sure=not stops,
    )


def _misplaced(reading: Reading, entry: Entry, key: str, where: str) -> None:
    reading.defect(
        Defect.UNKNOWN_KEY,
        f"{key[:40]} stands in the wrong section",
        entry,
        why=f"DeepSpeed reads `{key}` in {where} only.",
        fix=f"move it into {where}",
    )

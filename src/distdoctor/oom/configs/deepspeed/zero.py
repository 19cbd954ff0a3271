"""ZeRO: what is offloaded, how large its buffers are, and settings that its stage does not read.

Source: runtime/zero/config.py and offload_config.py.
"""

from __future__ import annotations

from distdoctor.oom.configs.deepspeed.keys import ONLY_STAGE_3
from distdoctor.oom.configs.host_memory import say_offload
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Section
from distdoctor.oom.configs.text.values import as_flag, is_auto
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import Offload

_OFFLOAD = {"none": Offload.NONE, "cpu": Offload.CPU, "nvme": Offload.NVME}


def read_zero(reading: Reading, zero: Section, stage: int) -> None:
    """Fill in offloading and buffers of the `zero_optimization` section."""
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
    "stage3_max_reuse_distance": "max_reuse_elements",
    "max_reuse_distance": "max_reuse_elements",
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

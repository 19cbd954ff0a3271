"""In which types DeepSpeed keeps parameters, gradients and the master copy.

Sources: runtime/engine.py, `_do_optimizer_sanity_check`; runtime/config.py (both 16-bit modes are refused).
"""

from __future__ import annotations

from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_flag, as_word
from distdoctor.oom.facts.launch import Defect
from distdoctor.oom.settings import DataParallel, Precision


def read_types(reading: Reading, root: Section, stage: int | None) -> None:
    """Fill in the precision; `"auto"` leaves it open."""
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

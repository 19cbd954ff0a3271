"""Megatron-DeepSpeed: what DeepSpeed's arguments change in a Megatron job."""

from __future__ import annotations

from distdoctor.oom.configs.megatron.flags import Flags
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.settings import DataParallel

_STAGES = {"0": DataParallel.DDP, "1": DataParallel.ZERO1, "2": DataParallel.ZERO2, "3": DataParallel.ZERO3}


def read_deepspeed(reading: Reading, flags: Flags) -> None:
    """`--deepspeed --zero-stage N` replace Megatron's own data parallelism."""
    if "deepspeed" not in flags.certain:
        return
    reading.values.pop("megatron", None)  # its buffers and its optimizer are not Megatron's
    stage = flags.certain.get("zero-stage")
    config = flags.certain.get("deepspeed-config")
    if config is not None:
        reading.references.append(config.text)
    if stage is None:
        reading.values.pop("strategy", None)
        reading.leave_open(
            "the ZeRO stage",
            f"it stands in {config.text}" if config is not None else "`--zero-stage` is not given",
            settles="strategy",
        )
        return
    strategy = _STAGES.get(stage.text)
    if strategy is DataParallel.DDP and "bf16" in flags.certain:
        reading.set("strategy", DataParallel.ZERO1, stage.key)
        reading.implied.add("strategy")
        reading.set("grads_in_fp32", True, stage.key, implied=True)
        reading.say(
            "strategy",
            "stage 0 with bf16 is DeepSpeed's BF16_Optimizer: fp32 states are sharded over data-parallel ranks as in ZeRO-1",
            stage.key,
            flags.key("bf16"),
        )
    elif strategy is not None:
        reading.set("strategy", strategy, stage.key)

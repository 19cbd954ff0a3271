"""Published peaks of reserved memory beside what a replay of the simulated allocations reserves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import Checkpointing, OptimizerLoop, Precision, Settings

# The most that a replay may be away from a run that is like it.
LIMIT = 0.08
SOURCE = "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md"
_COMPILED = "compiled: fused kernels keep less than eager ones"
_FLOAT8 = "compiled, with 8-bit products: they keep 8-bit activations beside or instead of 16-bit ones"


@dataclass(frozen=True)
class PublishedRow:
    """What TorchTitan logged as its largest reserved memory, in GiB, and why a simulation of eager bf16 differs."""

    name: str
    settings: Settings
    reserved_gib: float
    why_not_alike: str = ""


def published_rows() -> list[PublishedRow]:
    """Llama 3.1 on H100 with 96 GB, December 2024, as far as their settings are stated."""
    selective, full = Checkpointing.SELECTIVE, Checkpointing.FULL
    eight: dict[str, Any] = {"model": "llama3-8b", "micro_batch": 2, "checkpointing": selective}
    seventy: dict[str, Any] = {"model": "llama3-70b", "micro_batch": 16, "tp": 8, "checkpointing": full}
    largest: dict[str, Any] = {"model": "llama3-405b", "tp": 8, "pp": 8, "checkpointing": full}
    return [
        _row("8B, FSDP2 8", 82.4, world_size=8, **eight),
        _row("8B, FSDP2 128", 67.0, world_size=128, **eight),
        _row("8B, FSDP2 8", 77.0, _COMPILED, world_size=8, **eight),
        _row("8B, FSDP2 8", 76.8, _FLOAT8, world_size=8, **eight),
        _row("8B, FSDP2 128", 62.0, _COMPILED, world_size=128, **eight),
        _row("8B, FSDP2 128", 61.8, _FLOAT8, world_size=128, **eight),
        _row("70B, FSDP2 32 x tp 8", 71.9, _FLOAT8, world_size=256, **seventy),
        _row("70B, FSDP2 32 x tp 8", 67.6, f"{_FLOAT8}; asynchronous tp", world_size=256, **seventy),
        _row(
            "405B, pp 8 x FSDP2 8 x tp 8",
            82.5,
            f"{_FLOAT8}; asynchronous tp; how a local batch of 32 was cut is not stated, 8 micro-batches are taken",
            world_size=512,
            micro_batch=4,
            accumulation_steps=8,
            **largest,
        ),
    ]


def _row(name: str, reserved_gib: float, why_not_alike: str = "", *, model: str, **said: Any) -> PublishedRow:
    settings = Settings(
        model=preset(model),
        seq_len=8192,
        precision=Precision.MIXED,
        optimizer_loop=OptimizerLoop.FUSED,
        frees_logits=True,
        **said,
    )
    return PublishedRow(name, settings, reserved_gib, why_not_alike)

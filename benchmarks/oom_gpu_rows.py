"""Jobs that are run with real tensors and simulated: what one GPU can hold, without a peer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import Checkpointing, DataParallel, OptimizerLoop, Precision, Settings


class Group(str, Enum):
    """The process group of the measured run."""

    FAKE = "fake"
    """Of any number of ranks; nothing is communicated."""
    REAL = "real"
    """NCCL on a GPU, Gloo on the CPU; of one rank."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run."""

    name: str
    settings: Settings
    group: Group = Group.FAKE
    expandable_segments: bool = False
    is_alone: bool = False
    """Nothing else runs on the GPU meanwhile, so that what its driver counts is this run's."""


def gpu_rows() -> list[Row]:
    """For a GPU with 80 GB or more; the most telling ones first, for time may run out."""
    return list(_rows("llama3.2-1b", seq_len=2048, micro_batch=2))


def cpu_rows() -> list[Row]:
    """The same with a debug model, for a machine without a GPU."""
    return list(_rows("tiny", seq_len=128, micro_batch=2))


def _rows(model: str, **batch: Any) -> Iterator[Row]:
    def row(name: str, *, of: str = model, **said: Any) -> Row:
        own = {key: said.pop(key) for key in ("group", "expandable_segments", "is_alone") if key in said}
        told = {"precision": Precision.MIXED, "optimizer_loop": OptimizerLoop.FUSED, **batch, **said}
        return Row(name=f"{of} {name}", settings=Settings(model=preset(of), **told), **own)

    one: dict[str, Any] = {"strategy": DataParallel.NONE, "world_size": 1}
    sharded: dict[str, Any] = {"strategy": DataParallel.FSDP}
    full, selective = Checkpointing.FULL, Checkpointing.SELECTIVE
    foreach = {"optimizer_loop": OptimizerLoop.FOREACH}
    # What a driver counts beside the allocator, of three kinds of processes.
    yield row("single, fused", **one, is_alone=True)
    yield row("FSDP2 8, full, foreach", **sharded, world_size=8, checkpointing=full, **foreach, is_alone=True)
    yield row("FSDP2 1, real group, fused", **sharded, world_size=1, group=Group.REAL, is_alone=True)
    for name, ranks in (("single", one), ("FSDP2 8", {**sharded, "world_size": 8})):
        yield row(f"{name}, foreach", **ranks, **foreach)
        yield row(f"{name}, full, fused", **ranks, checkpointing=full)
    yield row("FSDP2 8, fused", **sharded, world_size=8)
    yield row("single, full, foreach", **one, checkpointing=full, **foreach)
    yield row("FSDP2 8, fused, expandable", **sharded, world_size=8, expandable_segments=True)
    yield row("single, foreach, expandable", **one, **foreach, expandable_segments=True)
    yield row("FSDP2 1, fused", **sharded, world_size=1)
    yield row("FSDP2 1, full, foreach", **sharded, world_size=1, checkpointing=full, **foreach)
    yield row("FSDP2 8, selective, fused", **sharded, world_size=8, checkpointing=selective)
    yield row("single, fp32, fused", **one, precision=Precision.FP32)
    yield row("single, all 16 bit, fused", **one, precision=Precision.PURE16)
    yield row("FSDP2 1, foreach", **sharded, world_size=1, **foreach)
    yield row("FSDP2 1, full, fused", **sharded, world_size=1, checkpointing=full)
    yield row(
        "FSDP2 8, full, foreach, expandable",
        **sharded,
        world_size=8,
        checkpointing=full,
        **foreach,
        expandable_segments=True,
    )
    yield row("FSDP2 8, 2 micro-batches, fused", **sharded, world_size=8, accumulation_steps=2)
    if model != "tiny":
        # LayerNorm, learned positions, biases.
        yield row("single, fused", of="gpt2", **{**one, "seq_len": 1024, "micro_batch": 4})

"""Jobs of real size whose estimate is compared with their simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
    DataParallel,
    OptimizerLoop,
    Precision,
    Schedule,
    Settings,
)

# The most that an estimate may be away from the simulation.
LIMIT = 0.10

_NONE, _SELECTIVE, _FULL = Checkpointing.NONE, Checkpointing.SELECTIVE, Checkpointing.FULL
_FUSED = OptimizerLoop.FUSED


@dataclass(frozen=True)
class GridRow:
    """One job."""

    name: str
    settings: Settings


def grid_rows() -> list[GridRow]:
    """Models, strategies, checkpointing, micro-batches and accumulation."""
    return [*_sharded(), *_replicated(), *_tensor_parallel(), *_pipelines(), *_contexts(), *_experts()]


def _row(name: str, model: str, **said: Any) -> GridRow:
    defaults: dict[str, Any] = {"seq_len": 8192, "micro_batch": 1, "optimizer_loop": _FUSED, **said}
    return GridRow(f"{model} {name}", Settings(model=preset(model), **defaults))


def _sharded() -> Iterator[GridRow]:
    for mode in Checkpointing:
        for batch in (1, 4):
            yield _row(
                f"FSDP2 8, {mode.value}, micro-batch {batch}",
                "llama3-8b",
                world_size=8,
                checkpointing=mode,
                micro_batch=batch,
            )
        yield _row(f"FSDP2 64, {mode.value}", "llama3.2-1b", world_size=64, checkpointing=mode)
        yield _row(f"FSDP2 256, {mode.value}", "llama3-70b", world_size=256, checkpointing=mode)
    yield _row(
        "FSDP2 8, accumulation of 4", "llama3-8b", world_size=8, checkpointing=_FULL, accumulation_steps=4
    )
    yield _row("FSDP2 8, foreach", "llama3-8b", world_size=8, optimizer_loop=OptimizerLoop.FOREACH)
    yield _row(
        "FSDP2 2, foreach, full",
        "llama3.2-1b",
        world_size=2,
        checkpointing=_FULL,
        seq_len=2048,
        optimizer_loop=OptimizerLoop.FOREACH,
    )
    yield _row(
        "FSDP2 8, logits freed, selective",
        "llama3-8b",
        world_size=8,
        micro_batch=2,
        checkpointing=_SELECTIVE,
        frees_logits=True,
    )
    yield _row(
        "FSDP2 8, not resharded, full",
        "llama3-8b",
        world_size=8,
        checkpointing=_FULL,
        reshard_after_forward=False,
    )
    yield _row(
        "FSDP2 8, fp32, full", "llama3-8b", world_size=8, precision=Precision.FP32, checkpointing=_FULL
    )
    yield _row(
        "FSDP2 8, all 16 bit, selective",
        "llama3-8b",
        world_size=8,
        precision=Precision.PURE16,
        checkpointing=_SELECTIVE,
    )
    yield _row("FSDP2 8, chunked loss, full", "llama3-8b", world_size=8, fused_loss=True, checkpointing=_FULL)
    yield _row(
        "FSDP2 8, unfused attention, 4096 tokens",
        "llama3-8b",
        world_size=8,
        seq_len=4096,
        attention=Attention.UNFUSED,
    )
    yield _row("HSDP 8 x 8, selective", "llama3-8b", world_size=64, dp_replicate=8, checkpointing=_SELECTIVE)
    yield _row("HSDP 2 x 4, full", "llama3.2-1b", world_size=8, dp_replicate=2, checkpointing=_FULL)
    yield _row("FSDP2 1024, full", "llama3-405b", world_size=1024, checkpointing=_FULL)
    yield _row("FSDP2 10,000, selective", "llama3-8b", world_size=10_000, checkpointing=_SELECTIVE)
    yield _row("FSDP2 8", "gpt2", world_size=8, seq_len=1024, micro_batch=4)
    yield _row("FSDP2 64, full", "qwen2.5-72b", world_size=64, checkpointing=_FULL)


def _replicated() -> Iterator[GridRow]:
    one: dict[str, Any] = {"strategy": DataParallel.NONE, "world_size": 1}
    ddp: dict[str, Any] = {"strategy": DataParallel.DDP, "world_size": 8}
    for loop in OptimizerLoop:
        yield _row(f"one rank, mixed, {loop.value}", "llama3.2-1b", seq_len=2048, optimizer_loop=loop, **one)
    yield _row(
        "one rank, all 16 bit, full", "llama3-8b", precision=Precision.PURE16, checkpointing=_FULL, **one
    )
    yield _row(
        "one rank, 16 bit with master copies, full",
        "llama3.2-1b",
        precision=Precision.MASTER,
        checkpointing=_FULL,
        **one,
    )
    yield _row(
        "one rank, fp32, micro-batch 4", "gpt2", precision=Precision.FP32, seq_len=1024, micro_batch=4, **one
    )
    yield _row("one rank, mixed, micro-batch 4", "gpt2", seq_len=1024, micro_batch=4, **one)
    for mode in Checkpointing:
        yield _row(f"DDP 8, {mode.value}", "llama3.2-1b", checkpointing=mode, **ddp)
    yield _row(
        "DDP 8, bucket views, accumulation of 4, full",
        "llama3.2-1b",
        checkpointing=_FULL,
        gradient_as_bucket_view=True,
        accumulation_steps=4,
        **ddp,
    )
    yield _row(
        "DDP 8, accumulation of 4, full", "llama3.2-1b", checkpointing=_FULL, accumulation_steps=4, **ddp
    )
    yield _row("DDP 8, all 16 bit, full", "llama3-8b", checkpointing=_FULL, precision=Precision.PURE16, **ddp)
    yield _row("DDP 8, micro-batch 8", "gpt2", seq_len=1024, micro_batch=8, **ddp)
    yield _row(
        "ZeroRedundancyOptimizer 8, full",
        "llama3.2-1b",
        strategy=DataParallel.ZERO_REDUNDANCY,
        world_size=8,
        checkpointing=_FULL,
    )
    for strategy in (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3):
        for mode in (_NONE, _FULL):
            yield _row(
                f"{strategy.value} 8, {mode.value}",
                "llama3-8b",
                strategy=strategy,
                world_size=8,
                checkpointing=mode,
            )
        yield _row(
            f"{strategy.value} 8, accumulation of 2, full, 2048 tokens",
            "llama3.2-1b",
            strategy=strategy,
            world_size=8,
            checkpointing=_FULL,
            accumulation_steps=2,
            seq_len=2048,
        )
    yield _row(
        "zero3 64, full", "llama3-70b", strategy=DataParallel.ZERO3, world_size=64, checkpointing=_FULL
    )


def _tensor_parallel() -> Iterator[GridRow]:
    for mode in Checkpointing:
        yield _row(f"tp 8, {mode.value}", "llama3-8b", world_size=8, tp=8, checkpointing=mode)
        yield _row(f"FSDP2 8 x tp 8, {mode.value}", "llama3-70b", world_size=64, tp=8, checkpointing=mode)
    yield _row(
        "tp 8, no sequence parallelism, full",
        "llama3-8b",
        world_size=8,
        tp=8,
        checkpointing=_FULL,
        sequence_parallel=False,
    )
    yield _row("tp 8, no sequence parallelism", "llama3-8b", world_size=8, tp=8, sequence_parallel=False)
    yield _row(
        "tp 8, no loss parallelism, full",
        "llama3-8b",
        world_size=8,
        tp=8,
        checkpointing=_FULL,
        loss_parallel=False,
    )
    yield _row(
        "FSDP2 32 x tp 8, micro-batch 16, full",
        "llama3-70b",
        world_size=256,
        tp=8,
        micro_batch=16,
        checkpointing=_FULL,
        frees_logits=True,
    )
    yield _row(
        "HSDP 4 x 8 x tp 2, selective",
        "llama3-8b",
        world_size=64,
        dp_replicate=4,
        tp=2,
        checkpointing=_SELECTIVE,
    )
    yield _row("FSDP2 128 x tp 8, full", "llama3-405b", world_size=1024, tp=8, checkpointing=_FULL)


def _pipelines() -> Iterator[GridRow]:
    for schedule in Schedule:
        virtual = 2 if schedule in (Schedule.INTERLEAVED, Schedule.ZBV) else 1
        yield _row(
            f"pp 4 x FSDP2 8, {schedule.value}, 8 micro-batches, full",
            "llama3-8b",
            world_size=32,
            pp=4,
            schedule=schedule,
            virtual_stages=virtual,
            accumulation_steps=8,
            checkpointing=_FULL,
        )
        mode = _NONE if schedule in (Schedule.ZERO_BUBBLE, Schedule.ZBV) else _SELECTIVE
        yield _row(
            f"pp 4, {schedule.value}, 8 micro-batches, {mode.value}",
            "llama3-8b",
            world_size=4,
            pp=4,
            strategy=DataParallel.NONE,
            schedule=schedule,
            virtual_stages=virtual,
            accumulation_steps=8,
            checkpointing=mode,
        )
    yield _row(
        "pp 4 x FSDP2 8, 1f1b, 16 micro-batches", "llama3-8b", world_size=32, pp=4, accumulation_steps=16
    )
    yield _row(
        "pp 2 x DDP 4, 1f1b, 8 micro-batches, full",
        "llama3.2-1b",
        world_size=8,
        pp=2,
        strategy=DataParallel.DDP,
        accumulation_steps=8,
        checkpointing=_FULL,
    )
    yield _row(
        "pp 4 x FSDP2 8, resharded, full",
        "llama3-8b",
        world_size=32,
        pp=4,
        accumulation_steps=8,
        checkpointing=_FULL,
        reshard_after_forward=True,
    )
    yield _row(
        "pp 4 x FSDP2 8 x tp 2, full",
        "llama3-8b",
        world_size=64,
        pp=4,
        tp=2,
        accumulation_steps=8,
        checkpointing=_FULL,
    )
    yield _row(
        "pp 8 x FSDP2 4 x tp 8, selective",
        "llama3-70b",
        world_size=256,
        pp=8,
        tp=8,
        accumulation_steps=16,
        checkpointing=_SELECTIVE,
    )
    yield _row(
        "pp 8 x FSDP2 8 x tp 8, full",
        "llama3-405b",
        world_size=512,
        pp=8,
        tp=8,
        accumulation_steps=8,
        checkpointing=_FULL,
    )
    yield _row(
        "pp 8 x FSDP2 8 x tp 8, interleaved, full",
        "llama3-405b",
        world_size=512,
        pp=8,
        tp=8,
        schedule=Schedule.INTERLEAVED,
        virtual_stages=2,
        accumulation_steps=16,
        checkpointing=_FULL,
    )
    yield _row(
        "pp 16 x FSDP2 4 x cp 2 x tp 8, 16,384 tokens, full",
        "llama3-405b",
        world_size=1024,
        pp=16,
        tp=8,
        cp=2,
        seq_len=16_384,
        accumulation_steps=32,
        checkpointing=_FULL,
    )


def _contexts() -> Iterator[GridRow]:
    yield _row(
        "FSDP2 4 x cp 2, 65,536 tokens, full",
        "llama3-8b",
        world_size=8,
        cp=2,
        seq_len=65_536,
        checkpointing=_FULL,
    )
    yield _row(
        "cp 8, 131,072 tokens, full", "llama3-8b", world_size=8, cp=8, seq_len=131_072, checkpointing=_FULL
    )
    yield _row("FSDP2 2 x cp 4, 32,768 tokens", "llama3-8b", world_size=8, cp=4, seq_len=32_768)
    yield _row(
        "FSDP2 8 x cp 2 x tp 4, 32,768 tokens, full",
        "llama3-70b",
        world_size=64,
        cp=2,
        tp=4,
        seq_len=32_768,
        checkpointing=_FULL,
    )


def _experts() -> Iterator[GridRow]:
    mixtral = "mixtral-8x7b"
    for mode in Checkpointing:
        yield _row(
            f"FSDP2 64, {mode.value}, 4096 tokens", mixtral, world_size=64, seq_len=4096, checkpointing=mode
        )
        yield _row(
            f"FSDP2 64, ep 8, {mode.value}, 4096 tokens",
            mixtral,
            world_size=64,
            ep=8,
            seq_len=4096,
            checkpointing=mode,
        )
    yield _row(
        "FSDP2 64, ep 8, imbalance 2, full, 4096 tokens",
        mixtral,
        world_size=64,
        ep=8,
        seq_len=4096,
        checkpointing=_FULL,
        expert_imbalance=2.0,
    )
    yield _row(
        "FSDP2 8 x tp 4, ep 8, full, 4096 tokens",
        mixtral,
        world_size=32,
        tp=4,
        ep=8,
        seq_len=4096,
        checkpointing=_FULL,
    )
    yield _row(
        "pp 4 x FSDP2 16, ep 8, full, 4096 tokens",
        mixtral,
        world_size=64,
        pp=4,
        ep=8,
        seq_len=4096,
        accumulation_steps=8,
        checkpointing=_FULL,
    )
    yield _row(
        "FSDP2 64, ep 8, full, 4096 tokens",
        "qwen3-30b-a3b",
        world_size=64,
        ep=8,
        seq_len=4096,
        checkpointing=_FULL,
    )
    yield _row("FSDP2 64, ep 8, 4096 tokens", "qwen3-30b-a3b", world_size=64, ep=8, seq_len=4096)

"""Jobs whose simulation is compared with what torch's CPU allocator counts for the same program with real tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from distdoctor.oom.settings import (
    Attention,
    Checkpointing,
    DataParallel,
    Optimizer,
    OptimizerLoop,
    Precision,
    Schedule,
    Settings,
)
from distdoctor.oom.shape import LatentAttention, MixtureOfExperts, Model, ModelShape, Norm

_FULL, _SELECTIVE = Checkpointing.FULL, Checkpointing.SELECTIVE
_ONE: dict[str, Any] = {"strategy": DataParallel.NONE}
_DDP: dict[str, Any] = {"strategy": DataParallel.DDP, "world_size": 8}
# The most that a row may be off: what the simulation's own check of itself allows (oom/facts/simulated.py).
LIMIT = 0.001

TINY = ModelShape(
    num_layers=4, hidden_size=256, num_heads=4, num_kv_heads=4, head_size=64, ffn_size=704, vocab_size=2048
)
EIGHT_LAYERS = replace(TINY, num_layers=8)
GPT2_LIKE = replace(
    TINY,
    ffn_size=1024,
    is_gated=False,
    norm=Norm.LAYERNORM,
    learned_positions=256,
    ties_embeddings=True,
    has_qkv_bias=True,
    has_attention_out_bias=True,
    has_mlp_bias=True,
)
EXPERTS = replace(TINY, moe=MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=192))
SHARED_EXPERT = replace(
    TINY,
    moe=MixtureOfExperts(
        num_experts=8,
        experts_per_token=2,
        expert_ffn_size=192,
        shared_ffn_size=192,
        has_shared_gate=True,
        first_dense_layers=1,
    ),
)
LATENT = replace(
    TINY,
    mla=LatentAttention(
        kv_lora_rank=64, q_lora_rank=96, nope_head_size=32, rope_head_size=32, value_head_size=64
    ),
)
# About 134 million parameters: 12 layers of GPT-2 small's width with a Llama's MLP.
ABOUT_100M = ModelShape(
    num_layers=12,
    hidden_size=768,
    num_heads=12,
    num_kv_heads=4,
    head_size=64,
    ffn_size=2048,
    vocab_size=32000,
)


@dataclass(frozen=True)
class ExactRow:
    """One job, and the stages of its pipeline that are compared."""

    name: str
    settings: Settings
    stages: tuple[int, ...] = (0,)


def exact_rows() -> list[ExactRow]:
    """Every strategy that has a CPU kernel."""
    return [
        *_plain_rows(),
        *_replicated_rows(),
        *_sharded_rows(),
        *_cut_rows(),
        *_model_rows(),
        *_pipeline_rows(),
        *_large_rows(),
    ]


def _job(shape: ModelShape = TINY, **said: Any) -> Settings:
    defaults: dict[str, Any] = {
        "seq_len": 128,
        "precision": Precision.FP32,
        "optimizer_loop": OptimizerLoop.FOR_LOOP,
        **said,
    }
    return Settings(model=Model(name="", source="benchmark", shape=shape), **defaults)


def _plain_rows() -> Iterator[ExactRow]:
    yield ExactRow("one rank", _job(**_ONE))
    for loop in OptimizerLoop:
        yield ExactRow(f"one rank, {loop.value}", _job(optimizer_loop=loop, **_ONE))
    yield ExactRow("one rank, mixed precision", _job(precision=Precision.MIXED, **_ONE))
    yield ExactRow("one rank, all 16 bit", _job(precision=Precision.PURE16, **_ONE))
    yield ExactRow("one rank, 16 bit with master copies", _job(precision=Precision.MASTER, **_ONE))
    yield ExactRow("one rank, unfused attention", _job(attention=Attention.UNFUSED, **_ONE))
    yield ExactRow(
        "one rank, unfused attention, grouped queries",
        _job(replace(TINY, num_kv_heads=2), attention=Attention.UNFUSED, **_ONE),
    )
    yield ExactRow("one rank, grouped queries", _job(replace(TINY, num_kv_heads=2), **_ONE))
    yield ExactRow("one rank, accumulation of 4", _job(accumulation_steps=4, **_ONE))
    yield ExactRow("one rank, chunked loss", _job(fused_loss=True, **_ONE))
    yield ExactRow("one rank, logits freed", _job(frees_logits=True, **_ONE))
    for optimizer in (Optimizer.SGD, Optimizer.SGD_MOMENTUM, Optimizer.ADAFACTOR):
        yield ExactRow(f"one rank, {optimizer.value}", _job(optimizer=optimizer, **_ONE))
    yield ExactRow(
        "one rank, checkpointing of 2 layers", _job(checkpointing=_FULL, checkpoint_layers=2, **_ONE)
    )


def _replicated_rows() -> Iterator[ExactRow]:
    yield ExactRow("DDP 8", _job(**_DDP))
    yield ExactRow("DDP 8, bucket views", _job(gradient_as_bucket_view=True, **_DDP))
    yield ExactRow("DDP 8, accumulation of 2", _job(accumulation_steps=2, **_DDP))
    yield ExactRow(
        "DDP 8, foreach, mixed", _job(**_DDP, precision=Precision.MIXED, optimizer_loop=OptimizerLoop.FOREACH)
    )
    yield ExactRow("DDP 8, buckets of 1 MiB", _job(bucket_cap_mib=1, **_DDP))
    for views in (False, True):
        yield ExactRow(
            f"ZeroRedundancyOptimizer 8{', bucket views' * views}",
            _job(world_size=8, strategy=DataParallel.ZERO_REDUNDANCY, gradient_as_bucket_view=views),
        )
    for strategy in (DataParallel.ZERO1, DataParallel.ZERO2, DataParallel.ZERO3):
        name = strategy.value.replace("zero", "ZeRO-")
        own: dict[str, Any] = {"strategy": strategy, "world_size": 8, "precision": Precision.MASTER}
        yield ExactRow(f"{name} 8, own partitioning", _job(**own))
        yield ExactRow(
            f"{name} 8, own partitioning, small bucket, accumulation of 2",
            _job(reduce_bucket_elements=400_000, accumulation_steps=2, **own),
        )
    yield ExactRow("ZeRO-3 8, own partitioning, full checkpointing", _job(checkpointing=_FULL, **own))


def _sharded_rows() -> Iterator[ExactRow]:
    for ranks in (2, 8, 64, 10_000):
        yield ExactRow(f"FSDP2 {ranks}", _job(world_size=ranks))
    yield ExactRow("FSDP2 8, not resharded", _job(world_size=8, reshard_after_forward=False))
    yield ExactRow("FSDP2 8, full checkpointing", _job(world_size=8, checkpointing=_FULL))
    yield ExactRow("FSDP2 8, selective checkpointing", _job(world_size=8, checkpointing=_SELECTIVE))
    yield ExactRow("FSDP2 8, mixed precision", _job(world_size=8, precision=Precision.MIXED))
    yield ExactRow("FSDP2 8, all 16 bit", _job(world_size=8, precision=Precision.PURE16))
    yield ExactRow("FSDP2 8, 16 bit with master copies", _job(world_size=8, precision=Precision.MASTER))
    for loop in (OptimizerLoop.FOREACH, OptimizerLoop.FUSED):
        yield ExactRow(f"FSDP2 8, {loop.value}", _job(world_size=8, optimizer_loop=loop))
    yield ExactRow(
        "FSDP2 8, mixed, foreach, selective, micro-batch 4, accumulation of 2",
        _job(
            world_size=8,
            precision=Precision.MIXED,
            optimizer_loop=OptimizerLoop.FOREACH,
            checkpointing=_SELECTIVE,
            micro_batch=4,
            accumulation_steps=2,
        ),
    )
    yield ExactRow("FSDP2 8, unfused attention", _job(world_size=8, attention=Attention.UNFUSED))
    yield ExactRow("FSDP2 8, chunked loss", _job(world_size=8, fused_loss=True))
    yield ExactRow("HSDP 2 x 4", _job(world_size=8, dp_replicate=2))
    yield ExactRow("HSDP 2 x 4, mixed", _job(world_size=8, dp_replicate=2, precision=Precision.MIXED))


def _cut_rows() -> Iterator[ExactRow]:
    for sequence, loss in ((True, True), (True, False), (False, False), (False, True)):
        words = f"{', sequence parallel' * sequence}{', loss parallel' * loss}"
        yield ExactRow(f"tp 4{words}", _job(tp=4, dp_shard=1, sequence_parallel=sequence, loss_parallel=loss))
    yield ExactRow("tp 4, mixed", _job(tp=4, dp_shard=1, precision=Precision.MIXED))
    yield ExactRow("tp 4, full checkpointing", _job(tp=4, dp_shard=1, checkpointing=_FULL))
    yield ExactRow("tp 4, foreach", _job(tp=4, dp_shard=1, optimizer_loop=OptimizerLoop.FOREACH))
    yield ExactRow("tp 2 x DDP 4", _job(tp=2, **_DDP))
    yield ExactRow("FSDP2 4 x tp 2", _job(world_size=8, tp=2))
    yield ExactRow("FSDP2 4 x tp 2, mixed", _job(world_size=8, tp=2, precision=Precision.MIXED))
    yield ExactRow("FSDP2 4 x tp 2, selective", _job(world_size=8, tp=2, checkpointing=_SELECTIVE))
    yield ExactRow("HSDP 2 x 2 x tp 2", _job(world_size=8, tp=2, dp_replicate=2))
    yield ExactRow("cp 4", _job(world_size=4, cp=4))
    yield ExactRow("FSDP2 2 x cp 2", _job(world_size=4, cp=2))


def _model_rows() -> Iterator[ExactRow]:
    yield ExactRow("GPT-2-like, one rank", _job(GPT2_LIKE, **_ONE))
    yield ExactRow("GPT-2-like, DDP 8", _job(GPT2_LIKE, **_DDP))
    yield ExactRow("GPT-2-like, FSDP2 8", _job(GPT2_LIKE, world_size=8))
    yield ExactRow("GPT-2-like, FSDP2 4 x tp 2", _job(GPT2_LIKE, world_size=8, tp=2))
    tied = replace(TINY, ties_embeddings=True)
    yield ExactRow("tied embeddings, one rank", _job(tied, **_ONE))
    yield ExactRow("tied embeddings, FSDP2 8", _job(tied, world_size=8))
    yield ExactRow("tied embeddings, tp 4", _job(tied, tp=4, dp_shard=1))
    for title, shape in (("experts", EXPERTS), ("shared expert", SHARED_EXPERT)):
        yield ExactRow(f"{title}, one rank", _job(shape, **_ONE))
        yield ExactRow(f"{title}, FSDP2 8", _job(shape, world_size=8))
        yield ExactRow(f"{title}, FSDP2 8, ep 4", _job(shape, world_size=8, ep=4))
        yield ExactRow(f"{title}, FSDP2 4 x tp 2", _job(shape, world_size=8, tp=2))
    yield ExactRow(
        "shared expert, FSDP2 4 x tp 2, whole sequences, mixed, selective",
        _job(
            SHARED_EXPERT,
            world_size=8,
            tp=2,
            sequence_parallel=False,
            precision=Precision.MIXED,
            checkpointing=_SELECTIVE,
        ),
    )
    yield ExactRow("experts, FSDP2 4 x tp 2, ep 8", _job(EXPERTS, world_size=8, tp=2, ep=8))
    yield ExactRow("experts, DDP 8, ep 4", _job(EXPERTS, ep=4, **_DDP))
    yield ExactRow("latent attention, one rank", _job(LATENT, **_ONE))
    yield ExactRow("latent attention, FSDP2 4 x tp 2", _job(LATENT, world_size=8, tp=2))
    yield ExactRow("norms of queries and keys, FSDP2 8", _job(replace(TINY, has_qk_norm=True), world_size=8))


def _pipeline_rows() -> Iterator[ExactRow]:
    for schedule in Schedule:
        virtual = 2 if schedule in (Schedule.INTERLEAVED, Schedule.ZBV) else 1
        said = {"pp": 4, "world_size": 4, "schedule": schedule, "virtual_stages": virtual}
        yield ExactRow(
            f"pp 4, {schedule.value}",
            _job(EIGHT_LAYERS, strategy=DataParallel.NONE, accumulation_steps=8, **said),
            stages=(0, 3),
        )
    for schedule, virtual in ((Schedule.ONE_F_ONE_B, 1), (Schedule.ZERO_BUBBLE, 1), (Schedule.ZBV, 2)):
        said = {"pp": 4, "world_size": 4, "schedule": schedule, "virtual_stages": virtual}
        yield ExactRow(
            f"pp 4, {schedule.value}, full checkpointing",
            _job(
                EIGHT_LAYERS,
                strategy=DataParallel.NONE,
                accumulation_steps=8,
                checkpointing=Checkpointing.FULL,
                **said,
            ),
            stages=(0, 1, 3),
        )
    both: dict[str, Any] = {"pp": 2, "world_size": 8, "accumulation_steps": 4}
    yield ExactRow("pp 2 x FSDP2 4", _job(**both), stages=(0, 1))
    yield ExactRow("pp 2 x DDP 4", _job(**both, strategy=DataParallel.DDP), stages=(0, 1))
    yield ExactRow("pp 2 x FSDP2 2 x tp 2", _job(**both, tp=2), stages=(0, 1))
    yield ExactRow(
        "pp 2 x FSDP2 2 x tp 2, mixed, full checkpointing",
        _job(**both, tp=2, precision=Precision.MIXED, checkpointing=Checkpointing.FULL),
        stages=(0, 1),
    )
    yield ExactRow("experts, pp 2 x FSDP2 4, ep 4", _job(EXPERTS, **both, ep=4), stages=(0, 1))


def _large_rows() -> Iterator[ExactRow]:
    said: dict[str, Any] = {"seq_len": 256, "optimizer_loop": OptimizerLoop.FOREACH}

    def job(**more: Any) -> Settings:
        return _job(ABOUT_100M, **{**said, **more})

    yield ExactRow("134M, one rank", job(strategy=DataParallel.NONE))
    yield ExactRow(
        "134M, one rank, mixed, micro-batch 4",
        job(strategy=DataParallel.NONE, precision=Precision.MIXED, micro_batch=4),
    )
    yield ExactRow("134M, DDP 8", job(strategy=DataParallel.DDP, world_size=8))
    yield ExactRow("134M, FSDP2 8, mixed", job(world_size=8, precision=Precision.MIXED))
    yield ExactRow(
        "134M, FSDP2 64, mixed, selective",
        job(world_size=64, precision=Precision.MIXED, checkpointing=Checkpointing.SELECTIVE),
    )
    yield ExactRow("134M, FSDP2 2 x tp 4, mixed", job(world_size=8, tp=4, precision=Precision.MIXED))
    yield ExactRow(
        "134M, pp 4 x FSDP2 2, mixed",
        job(world_size=8, pp=4, accumulation_steps=8, precision=Precision.MIXED),
        stages=(0, 3),
    )
    yield ExactRow(
        "134M, ZeRO-2 8", job(world_size=8, strategy=DataParallel.ZERO2, precision=Precision.MASTER)
    )

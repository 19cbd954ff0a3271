"""Experts under tensor parallelism: without expert parallelism their width is cut over tp, and a rank sees all tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distdoctor.oom.job import Job, resolve
from distdoctor.oom.local import local_models
from distdoctor.oom.parameters import layer_groups
from distdoctor.oom.placements import placements_of
from distdoctor.oom.settings import Checkpointing, DataParallel, Settings
from distdoctor.oom.shape import MixtureOfExperts, Model, ModelShape
from distdoctor.oom.strategies import activation_checkpointing, expert_parallel
from distdoctor.oom.strategies.all import strategy_of

MOE = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_size=256)
SHAPE = ModelShape(
    num_layers=4,
    hidden_size=128,
    num_heads=8,
    num_kv_heads=8,
    head_size=16,
    ffn_size=256,
    vocab_size=1024,
    moe=MOE,
)
SHARED = replace(SHAPE, moe=replace(MOE, shared_ffn_size=64))
ROUTED = 4 * sum(group.numel for group in layer_groups(SHAPE, with_experts=True) if group.is_expert)


def job_of(shape: ModelShape = SHAPE, **said: Any) -> Job:
    model = Model(name="small", source="test", shape=shape)
    return resolve(Settings(model=model, **{"seq_len": 1024, **said}))


@pytest.mark.parametrize(
    ("said", "held", "shards"),
    [
        ({"world_size": 4, "dp_shard": 4}, 1, 4),
        ({"world_size": 8, "dp_shard": 4, "tp": 2}, 2, 4),
        ({"world_size": 8, "dp_shard": 2, "cp": 2, "tp": 2}, 2, 4),
        # With ep they are spread whole: the ranks of tp are lent to the group of experts.
        ({"world_size": 8, "dp_shard": 4, "tp": 2, "ep": 2}, 2, 4),
        ({"world_size": 8, "dp_shard": 4, "tp": 2, "ep": 4}, 4, 2),
        ({"world_size": 8, "dp_shard": 4, "tp": 2, "ep": 2, "etp": 2}, 4, 2),
    ],
)
def test_a_rank_has_its_part_of_the_experts(said: dict[str, int], held: int, shards: int) -> None:
    job = job_of(strategy=DataParallel.FSDP, **said)

    assert local_models(job)[0].expert == ROUTED / held
    assert job.expert_shard_ranks == shards


def test_megatron_cuts_experts_over_tp_unless_it_is_told_otherwise() -> None:
    said = {"world_size": 8, "tp": 2, "strategy": DataParallel.MEGATRON_DISTRIBUTED}

    assert local_models(job_of(**said))[0].expert == ROUTED / 2
    assert local_models(job_of(ep=4, **said))[0].expert == ROUTED / 8
    assert local_models(job_of(etp=1, **said))[0].expert == ROUTED


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_experts_that_are_cut_see_all_tokens(sequence_parallel: bool) -> None:
    job = job_of(world_size=8, dp_shard=4, tp=2, sequence_parallel=sequence_parallel)

    assert expert_parallel.routed_tokens(MOE, job) == 1024 * 2
    # Input and fp32 output of each row are whole; gate, up, the activated gate and the product are cut.
    each = 2 * 128 + 4 * 128 + 2 * 4 * 256 / 2
    assert expert_parallel.kept_bytes(SHAPE, MOE, job) == 1024 * 2 * each


def test_with_expert_parallelism_a_rank_routes_its_part_of_the_sequence() -> None:
    job = job_of(world_size=8, dp_shard=4, tp=2, ep=2)

    assert expert_parallel.routed_tokens(MOE, job) == 1024 * 2 / 2
    assert expert_parallel.kept_bytes(SHAPE, MOE, job) == 1024 * (2 * 128 + 4 * 128 + 2 * 4 * 256)


@pytest.mark.parametrize(("shape", "more"), [(SHAPE, 0), (SHARED, 2 * 128)])
def test_a_router_of_all_tokens_keeps_them(shape: ModelShape, more: int) -> None:
    kept = [
        activation_checkpointing.whole_layer(
            shape, job_of(shape, world_size=8, dp_shard=4, tp=2, ep=ep), with_experts=True
        )
        for ep in (1, 2)
    ]

    # Probabilities in fp32; shared experts have a gathered input of their own.
    assert kept[0].gathered - kept[1].gathered == 4 * 8 + more
    assert kept[1].whole - kept[0].whole == 4 * 8


@pytest.mark.parametrize(
    ("shape", "ep", "outputs"), [(SHAPE, 1, 2), (SHAPE, 2, 1), (SHARED, 1, 3), (SHARED, 2, 2)]
)
def test_selective_checkpointing_keeps_what_each_reduction_brought(
    shape: ModelShape, ep: int, outputs: int
) -> None:
    def whole(sequence_parallel: bool) -> float:
        job = job_of(
            shape,
            world_size=8,
            dp_shard=4,
            tp=2,
            ep=ep,
            sequence_parallel=sequence_parallel,
            checkpointing=Checkpointing.SELECTIVE,
        )
        saved = activation_checkpointing.kept(shape, job, with_experts=True, is_checkpointed=True)
        return saved.whole + saved.gathered

    assert whole(True) - whole(False) == outputs * 2 * 128


def test_a_job_says_how_its_experts_lie() -> None:
    job = job_of(world_size=8, dp_shard=4, tp=2, strategy=DataParallel.FSDP)
    found = {each.group: each for each in placements_of(job, strategy_of(DataParallel.FSDP))}

    assert job.mesh.words() == "dp_shard=4,tp=2"
    assert found["experts in"].parameters == "tp 2 (columns) x dp_shard 4"
    assert found["experts in"].dtensor == "Shard(0) on dp_shard, Shard(1) on tp"
    assert found["experts out"].dtensor == "Shard(0) on dp_shard, Shard(2) on tp"
    assert found["router"].dtensor == "Shard(0) on dp_shard, Replicate on tp"


def test_what_is_gathered_of_experts_is_cut_too() -> None:
    gathered = [
        local_models(job_of(world_size=4 * tp, dp_shard=4, tp=tp))[0].largest_layer.expert for tp in (1, 2, 4)
    ]

    assert gathered == [ROUTED / 4, ROUTED / 8, ROUTED / 16]

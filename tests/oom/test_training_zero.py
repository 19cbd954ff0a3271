"""ZeRO's stages: own partitioning trains as DDP does and needs what DeepSpeed's engine needs, where that is installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from distdoctor.oom.formulas.buffers import deepspeed_reduce_bytes, live_parameter_elements
from distdoctor.oom.job import resolve
from distdoctor.oom.models.presets import preset
from distdoctor.oom.settings import DataParallel, Precision, Settings
from distdoctor.oom.training.base import CannotRunError
from distdoctor.oom.training.flat_partition import FlatLayout, Piece, check_can_run
from distdoctor.oom.training.zero import OWN

sys.path.insert(0, str(Path(__file__).parents[1]))
from forkpool import ForkPool

RANKS = Path(__file__).with_name("zero_ranks.py")
STAGES = ("zero1", "zero2", "zero3")
HAS_DEEPSPEED = importlib.util.find_spec("deepspeed") is not None
# Scalars that one of them keeps and the other does not.
SCALAR_BYTES = 256
# Gloo's threads let go of a tensor late at times, which only adds.
_ATTEMPTS = 4


@pytest.fixture(scope="module")
def pool() -> Iterator[ForkPool]:
    with ForkPool(torch=True, scenarios=RANKS) as pool:
        yield pool


def returned(pool: ForkPool, function: str, num_ranks: int, **args: Any) -> list[Any]:
    outcomes = pool.run(function, world_size=num_ranks, args=args, limit_s=60, store=num_ranks > 1)
    assert [each.ending for each in outcomes] == ["returned"] * num_ranks, outcomes[0].value
    return [each.value for each in outcomes]


def test_stages_compute_what_ddp_computes(pool: ForkPool) -> None:
    same = {"who": "own", "precision": "fp32"}
    plain = returned(pool, "train", 2, strategy="ddp", **same)
    for stage in STAGES:
        for rank, ddp in zip(returned(pool, "train", 2, strategy=stage, **same), plain, strict=True):
            assert rank["losses"] == pytest.approx(ddp["losses"], rel=1e-5)


@pytest.mark.parametrize(
    "said",
    [
        {"accumulation_steps": 2, "overlap_comm": True, "checkpointing": "full"},
        {"accumulation_steps": 2, "offload_optimizer": "cpu", "reduce_bucket_elements": 10_000},
    ],
    ids=" ".join,
)
def test_options_change_no_loss(pool: ForkPool, said: dict[str, Any]) -> None:
    """Stages 2 and 3 add 16-bit gradients of micro-batches in another order than stage 1."""
    first, *others = [
        [rank["losses"] for rank in returned(pool, "train", 2, who="own", strategy=stage, **said)]
        for stage in STAGES
    ]
    assert all(other == [pytest.approx(each, rel=2e-4) for each in first] for other in others)


@pytest.mark.skipif(not HAS_DEEPSPEED, reason="deepspeed is not installed, so its engine cannot be run")
@pytest.mark.parametrize(
    "said",
    [{}, {"accumulation_steps": 2}, {"overlap_comm": True}],
    ids=lambda said: " ".join(said) or "plain",
)
@pytest.mark.parametrize("stage", STAGES)
def test_own_partitioning_needs_what_deepspeed_needs(
    pool: ForkPool, stage: str, said: dict[str, Any]
) -> None:
    least: list[dict[str, int]] = [{} for _ in range(4)]
    for _ in range(_ATTEMPTS):
        theirs = returned(pool, "train", 2, who="deepspeed", strategy=stage, **said)
        ours = returned(pool, "train", 2, who="own", strategy=stage, **said)
        for peaks, rank in zip(least, theirs + ours, strict=True):
            peaks.update({phase: min(n, peaks.get(phase, n)) for phase, n in rank["peaks"].items()})
        if all(_agree(engine, own) for engine, own in zip(least[:2], least[2:], strict=True)):
            break
    else:
        pytest.fail(f"DeepSpeed's engine and own partitioning have peaks of their own: {least}")
    for engine, own in zip(theirs, ours, strict=True):
        assert engine["by"].startswith("DeepSpeed ")
        assert own["by"].startswith(OWN)
        assert engine["stdout"] == ""
        assert own["losses"] == pytest.approx(engine["losses"], rel=1e-5)
        held = engine["categories"]["optimizer step"]
        for category in ("parameters", "optimizer states"):
            assert held[category] == own["categories"]["optimizer step"][category]


def _agree(engine: dict[str, int], own: dict[str, int]) -> bool:
    return all(
        abs(engine[phase] - own[phase]) <= SCALAR_BYTES for phase in ("loss", "backward", "optimizer step")
    )


@pytest.mark.parametrize(("stage", "of_rank"), [("zero1", 3), ("zero2", 0), ("zero3", 3)])
def test_fake_tensors_need_the_bytes_of_real_ones(pool: ForkPool, stage: str, of_rank: int) -> None:
    said = {"strategy": stage, "of": 4, "accumulation_steps": 2, "meta_init": None}
    fake, real = (returned(pool, "alone", 1, of_rank=of_rank, fake=fake, **said)[0] for fake in (True, False))
    assert fake["peaks"] == real["peaks"]
    assert fake["losses"] == [None] * 3


@pytest.mark.parametrize("stage", STAGES)
def test_the_estimate_of_the_step_is_what_the_step_takes(pool: ForkPool, stage: str) -> None:
    said = {"strategy": stage, "persistence_threshold_elements": 0}
    told = returned(pool, "alone", 1, of_rank=0, of=4, fake=True, **said)[0]
    assert told["estimated"]["optimizer step"] == pytest.approx(told["peaks"]["optimizer step"], rel=0.02)


@pytest.mark.parametrize("stage", STAGES)
def test_offloaded_states_are_not_on_the_device(pool: ForkPool, stage: str) -> None:
    told = returned(pool, "alone", 1, of_rank=0, fake=True, strategy=stage, of=4, offload_optimizer="cpu")[0]
    assert "optimizer states" not in told["categories"]["optimizer step"]


def test_what_is_estimated_only_says_so() -> None:
    for said, word in (
        ({"precision": Precision.MIXED, "world_size": 2}, "mixed"),
        ({"tp": 2, "world_size": 4}, "tp"),
        ({"pp": 2, "world_size": 4}, "pipeline"),
    ):
        job = resolve(Settings(model=preset("llama3-8b"), strategy=DataParallel.ZERO2, **said))
        with pytest.raises(CannotRunError, match=word):
            check_can_run(SimpleNamespace(job=job))  # type: ignore[arg-type]


def test_partitions_are_cut_through_parameters() -> None:
    layout = FlatLayout([6, 3, 4], 2)
    assert (layout.partition, layout.padding) == (8, 3)
    assert layout.pieces == [
        [Piece(rank=0, start=0, numel=6)],
        [Piece(rank=0, start=0, numel=2), Piece(rank=1, start=2, numel=1)],
        [Piece(rank=1, start=0, numel=4)],
    ]
    assert layout.merged([2, 1]) == [
        Piece(rank=1, start=0, numel=4),
        Piece(rank=0, start=4, numel=2),
        Piece(rank=1, start=6, numel=1),
    ]


def test_the_reduce_bucket_is_as_large_for_a_small_model() -> None:
    """What DeepSpeed 0.19.8 was seen to allocate: 16,000,000 bytes for 8e6 elements, of a model of 4.5e6 parameters."""
    assert deepspeed_reduce_bytes(bucket=8_000_000, element=2, overlaps=False) == 16_000_000
    assert deepspeed_reduce_bytes(bucket=None, element=2, overlaps=True) == 2e9


@pytest.mark.parametrize(
    ("reuse", "max_live", "kept", "prefetched"),
    [
        (None, None, 5e8, 5e7),
        (None, 300_000, 5e8, 0),
        (2_000_000, None, 3e6, 5e7),
    ],
)
def test_reuse_distance_not_max_live_bounds_what_stays_whole(
    reuse: int | None, max_live: int | None, kept: float, prefetched: float
) -> None:
    live = live_parameter_elements(7e9, max_live=max_live, max_reuse=reuse, prefetch=None, largest_unit=3e6)
    assert (live.kept, live.prefetched) == (kept, prefetched)

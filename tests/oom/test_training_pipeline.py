"""Pipelines of torch compute what the unsplit model computes, and what a rank holds is known without its neighbours."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

pytest.importorskip("torch")
if not importlib.util.find_spec("torch.distributed.pipelining"):
    pytest.skip("this torch has no pipelines", allow_module_level=True)

from distdoctor.oom.job import resolve
from distdoctor.oom.settings import Checkpointing, DataParallel, Schedule, Settings
from distdoctor.oom.shape import Model, ModelShape
from distdoctor.oom.training.build import why_not
from forkpool import ForkPool

SCHEDULES: dict[str, dict[str, Any]] = {
    "gpipe": {"schedule": "gpipe"},
    "1f1b": {"schedule": "1f1b"},
    "interleaved": {"schedule": "interleaved", "virtual_stages": 2},
    "zero-bubble": {"schedule": "zero-bubble"},
    "zbv": {"schedule": "zbv"},
}
REAL: dict[str, dict[str, Any]] = {
    **{f"pp2 {name}": {"pp": 2, **said} for name, said in SCHEDULES.items()},
    "pp4 gpipe": {"pp": 4, "schedule": "gpipe"},
    "pp4 1f1b": {"pp": 4, "schedule": "1f1b", "accumulation_steps": 6},
    "pp4 zero-bubble": {"pp": 4, "schedule": "zero-bubble", "accumulation_steps": 8},
    "pp2 dp2 1f1b": {"pp": 2, "dp_replicate": 2, "strategy": "ddp"},
    "pp2 fsdp2 interleaved": {"pp": 2, "strategy": "fsdp2", **SCHEDULES["interleaved"]},
    "pp2 fsdp2 zbv": {"pp": 2, "strategy": "fsdp2", "schedule": "zbv"},
    "pp2 tp2 zero-bubble": {"pp": 2, "tp": 2, "schedule": "zero-bubble"},
    "pp2 1f1b loss in chunks": {"pp": 2, "schedule": "1f1b", "fused_loss": True},
    "pp2 fsdp2 loss in chunks": {"pp": 2, "strategy": "fsdp2", "fused_loss": True},
    "pp2 tp2 loss in chunks": {"pp": 2, "tp": 2, "fused_loss": True},
    "pp2 zero-bubble full checkpointing": {"pp": 2, "schedule": "zero-bubble", "checkpointing": "full"},
}


def returned(pool: ForkPool, function: str, num_ranks: int, **args: Any) -> list[Any]:
    outcomes = pool.run(function, world_size=num_ranks, args=args, limit_s=60, store=num_ranks > 1)
    assert [each.ending for each in outcomes] == ["returned"] * num_ranks, outcomes[0].value
    return [each.value for each in outcomes]


@pytest.mark.parametrize("name", REAL)
def test_a_pipeline_has_loss_and_gradients_of_the_unsplit_model(training_pool: ForkPool, name: str) -> None:
    said = {"accumulation_steps": 4, **REAL[name]}
    num_ranks = 4 if {"tp", "strategy"} & said.keys() else said["pp"]
    ranks = returned(training_pool, "train", num_ranks, **said)
    assert {each for rank in ranks for each in rank["names"]} == set(ranks[0]["expected_names"])
    for rank in ranks:
        assert rank["gradient_error"] < 1e-4
    told = [rank for rank in ranks if rank["losses"][0] is not None]
    assert told
    for rank in told:
        assert rank["losses"][0] == pytest.approx(rank["expected_loss"], rel=1e-4)
        assert rank["losses"][1] < 2 * rank["losses"][0]


@pytest.mark.parametrize(
    "said",
    [
        {"pp": 2, "precision": "mixed"},
        {"pp": 2, "precision": "master"},
        {"pp": 2, "tp": 2},
        {"pp": 2, "tp": 2, "sequence_parallel": False, "loss_parallel": False, "precision": "mixed"},
        {"pp": 2, "strategy": "fsdp2", "precision": "mixed", **SCHEDULES["interleaved"]},
    ],
)
def test_stages_send_what_they_were_told_they_would(training_pool: ForkPool, said: dict[str, Any]) -> None:
    num_ranks = 4 if {"tp", "strategy"} & said.keys() else 2
    ranks = returned(training_pool, "train", num_ranks, debug=True, accumulation_steps=4, **said)
    assert any(rank["losses"][1] is not None for rank in ranks)


@pytest.mark.parametrize(
    ("name", "of_rank"),
    [("gpipe", 0), ("1f1b", 1), ("interleaved", 0), ("zero-bubble", 1), ("zbv", 0)],
)
def test_fake_tensors_need_the_bytes_of_real_ones(training_pool: ForkPool, name: str, of_rank: int) -> None:
    said = {"pp": 2, "accumulation_steps": 4, "of_rank": of_rank, "like_cuda": False, **SCHEDULES[name]}
    fake, real = (returned(training_pool, "track", 1, fake=fake, **said)[0] for fake in (True, False))
    assert fake["peak_bytes"] == real["peak_bytes"]
    assert fake["phases"] == real["phases"]


def test_a_rank_tells_which_micro_batch_it_works_on(training_pool: ForkPool) -> None:
    said = {"pp": 2, "accumulation_steps": 2, "schedule": "1f1b", "fake": True, "like_cuda": True}
    first, last = (returned(training_pool, "track", 1, of_rank=rank, **said)[0]["phases"] for rank in (0, 1))
    assert first == [
        "data None",
        "forward 0",
        "forward 1",
        "backward 0",
        "backward 1",
        "optimizer step None",
    ]
    assert last == [
        "data None",
        *(f"{phase} {number}" for number in (0, 1) for phase in ("forward", "loss", "backward")),
        "optimizer step None",
    ]


def test_buffers_for_all_micro_batches_are_told(training_pool: ForkPool) -> None:
    said = {"pp": 4, "accumulation_steps": 8, "schedule": "1f1b", "fake": True, "like_cuda": True}
    one_way = 8 * 2 * 32 * 64 * 4  # micro-batches of 2 sequences of 32 tokens, 64 wide, in fp32
    for of_rank, ways in ((1, 2), (3, 1)):
        found = returned(training_pool, "track", 1, of_rank=of_rank, **said)[0]
        assert found["kept_buffer_bytes"] == ways * one_way


def test_gpipe_holds_every_micro_batch_and_1f1b_does_not(training_pool: ForkPool) -> None:
    same = {"pp": 2, "accumulation_steps": 8, "of_rank": 0, "fake": True, "like_cuda": True}
    gpipe, alternating = (
        returned(training_pool, "track", 1, schedule=schedule, **same)[0]["peak_bytes"]
        for schedule in ("gpipe", "1f1b")
    )
    assert gpipe > 2 * alternating


SHAPE = ModelShape(
    num_layers=4, hidden_size=64, num_heads=4, num_kv_heads=2, head_size=16, ffn_size=96, vocab_size=128
)


def reason(**said: Any) -> str | None:
    model = Model(name="tiny", source="test", shape=SHAPE)
    return why_not(resolve(Settings(model=model, **{"strategy": DataParallel.NONE, "pp": 2, **said})))


def test_what_torch_computes_wrongly_or_refuses_is_not_run() -> None:
    ddp = {"strategy": DataParallel.DDP, "dp_replicate": 2}
    assert reason() is None
    assert reason(schedule=Schedule.ONE_F_ONE_B, **ddp) is None
    assert "144530" in str(reason(schedule=Schedule.ZERO_BUBBLE, **ddp))
    assert "144530" in str(reason(schedule=Schedule.ZBV, **ddp))
    assert reason(schedule=Schedule.ZERO_BUBBLE, checkpointing=Checkpointing.FULL) is None
    assert "selective" in str(reason(schedule=Schedule.ZERO_BUBBLE, checkpointing=Checkpointing.SELECTIVE))
    assert reason(schedule=Schedule.GPIPE, fused_loss=True) is None
    assert "chunks" in str(reason(schedule=Schedule.ZBV, fused_loss=True))
    assert "zero1" in str(reason(strategy=DataParallel.ZERO1, world_size=4))


def test_too_few_micro_batches_are_refused_in_words(training_pool: ForkPool) -> None:
    said = {"pp": 4, "accumulation_steps": 2, "schedule": "1f1b", "fake": True, "like_cuda": True}
    [outcome] = training_pool.run("track", world_size=1, args={"of_rank": 0, **said}, limit_s=60)
    assert outcome.ending == "raised"
    assert outcome.value.splitlines()[0].startswith("CannotRunError: the 1f1b schedule refuses: ")

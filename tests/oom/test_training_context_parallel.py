"""Ring attention computes what attention at once computes, in a layer and in whole models cut in other ways too."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from distdoctor.oom.job import resolve
from distdoctor.oom.settings import Attention, Settings
from distdoctor.oom.shape import Model, ModelShape
from distdoctor.oom.training.base import CannotRunError
from distdoctor.oom.training.build import why_not
from distdoctor.oom.training.context_parallel import RING_TOLERANCES
from distdoctor.torch_private.attention import ring_attention_templates
from forkpool import ForkPool

if ring_attention_templates() is None:
    pytest.skip("this torch has no ring attention", allow_module_level=True)


def returned(pool: ForkPool, function: str, num_ranks: int, **args: Any) -> list[Any]:
    outcomes = pool.run(function, world_size=num_ranks, args=args, limit_s=60, store=num_ranks > 1)
    assert [each.ending for each in outcomes] == ["returned"] * num_ranks, outcomes[0].value
    return [each.value for each in outcomes]


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_outputs_and_gradients_are_those_of_attention_at_once(
    training_pool: ForkPool, num_ranks: int
) -> None:
    for error in returned(training_pool, "ring", num_ranks):
        assert 0 < error < RING_TOLERANCES[torch.float32] == 1e-5


REAL: dict[str, dict[str, Any]] = {
    "cp2": {"cp": 2},
    "cp4": {"cp": 4},
    "cp2 dp2": {"cp": 2, "dp_shard": 2, "accumulation_steps": 1},
    "cp2 ddp": {"cp": 2, "strategy": "ddp"},
    "cp2 tp2": {"cp": 2, "tp": 2},
    "cp2 pp2": {"cp": 2, "pp": 2, "schedule": "1f1b", "accumulation_steps": 4},
    "cp2 full checkpointing": {"cp": 2, "checkpointing": "full"},
    "cp2 selective checkpointing": {"cp": 2, "checkpointing": "selective"},
}


@pytest.mark.parametrize("name", REAL)
def test_a_cut_sequence_has_loss_and_gradients_of_the_whole_one(training_pool: ForkPool, name: str) -> None:
    said = {"strategy": "fsdp2", **REAL[name]}
    num_ranks = said["cp"] * said.get("tp", 1) * said.get("pp", 1) * said.get("dp_shard", 1)
    ranks = returned(training_pool, "train", num_ranks, **said)
    assert {each for rank in ranks for each in rank["names"]} == set(ranks[0]["expected_names"])
    for rank in ranks:
        assert rank["gradient_error"] < 1e-4
    told = [rank for rank in ranks if rank["losses"][0] is not None]
    # Each rank has the loss of its own tokens.
    found = sum(rank["losses"][0] for rank in told) / len(told)
    assert found == pytest.approx(sum(rank["expected_loss"] for rank in told) / len(told), rel=1e-4)


@pytest.mark.parametrize("said", [{"cp": 2}, {"cp": 4, "checkpointing": "full"}, {"cp": 2, "tp": 2}])
def test_fake_tensors_need_the_bytes_of_real_ones(training_pool: ForkPool, said: dict[str, Any]) -> None:
    same = {"strategy": "fsdp2", "dp_shard": 1, "of_rank": 1, "like_cuda": False, **said}
    fake, real = (returned(training_pool, "track", 1, fake=fake, **same)[0] for fake in (True, False))
    assert fake["peak_bytes"] == real["peak_bytes"]


def test_the_ring_runs_under_fake_tensors_with_kernels_like_cudas(training_pool: ForkPool) -> None:
    same = {"strategy": "none", "of_rank": 0, "fake": True, "like_cuda": True}
    cut, whole = (returned(training_pool, "track", 1, cp=cp, **same)[0] for cp in (4, 1))
    # Keys and values are gathered once in the forward pass of each of 4 layers, and once in the backward pass.
    assert cut["gathers"] == 8
    assert whole["gathers"] == 0


SHAPE = ModelShape(
    num_layers=4, hidden_size=64, num_heads=4, num_kv_heads=2, head_size=16, ffn_size=96, vocab_size=128
)


def reason(**said: Any) -> str | None:
    model = Model(name="tiny", source="test", shape=SHAPE)
    return why_not(resolve(Settings(model=model, **{"world_size": 4, "cp": 4, **said})))


def test_what_a_ring_cannot_do_is_not_run() -> None:
    assert reason() is None
    assert "unfused" in str(reason(attention=Attention.UNFUSED))
    assert "equal parts" in str(reason(seq_len=4100))
    assert reason(seq_len=4104) is None


def test_a_ring_without_communication_cannot_be_checked(training_pool: ForkPool) -> None:
    [outcome] = training_pool.run("ring_alone", world_size=1, limit_s=60)
    assert outcome.ending == "raised"
    assert CannotRunError.__name__ in outcome.value.splitlines()[0]

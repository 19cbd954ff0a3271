"""Which combinations of strategies a number of ranks can run."""

from __future__ import annotations

from typing import Any

import pytest

from distdoctor.errors import UsageError
from distdoctor.oom.job import resolve
from distdoctor.oom.models.presets import preset
from distdoctor.oom.reproduction.combinations import ALL_NAMES, choose, combinations
from distdoctor.oom.settings import DataParallel, Schedule, Settings
from distdoctor.oom.shape import ModelShape

TINY = Settings(model=preset("tiny"))
EXPERTS = Settings(model=preset("tiny-moe"))


def names(num_ranks: int, said: Settings = TINY) -> list[str]:
    return [each.name for each in combinations(num_ranks, shape_of(said), said)]


def shape_of(said: Settings) -> ModelShape:
    assert said.model is not None and said.model.shape is not None
    return said.model.shape


def test_one_rank_has_nothing_to_share() -> None:
    assert names(1) == ["single"]


def test_two_ranks_run_every_plain_strategy() -> None:
    assert names(2) == [
        "ddp", "zero-redundancy", "zero1", "zero2", "zero3", "fsdp2", "fsdp2-keep-gathered",
        "tp", "tp-no-sp", "tp-loss-parallel",
        "pp-gpipe", "pp-1f1b", "pp-zero-bubble", "pp-interleaved", "pp-zbv", "cp",
    ]  # fmt: skip


def test_from_four_ranks_on_dimensions_are_combined() -> None:
    assert {"hsdp", "fsdp2-tp"} <= set(names(4))
    assert "pp-fsdp2-tp" in names(8)
    assert "pp-fsdp2-tp" not in names(4)


def test_experts_are_spread_where_the_model_has_some() -> None:
    assert "ep" in names(4, EXPERTS)
    assert "ep" not in names(4)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 5, 6, 7, 8, 16])
@pytest.mark.parametrize("said", [TINY, EXPERTS], ids=["dense", "experts"])
def test_every_combination_is_a_job_of_all_ranks(num_ranks: int, said: Settings) -> None:
    found = combinations(num_ranks, shape_of(said), said)
    assert found
    for each in found:
        assert resolve(each.settings).mesh.num_ranks == num_ranks, each.name
        assert each.name in ALL_NAMES
    assert len({each.name for each in found}) == len(found)


def test_what_a_model_cannot_be_cut_into_is_left_out() -> None:
    # Four heads over three ranks; four layers in eight stages.
    assert "tp" not in names(3)
    assert "pp-interleaved" not in names(4) and "pp-1f1b" in names(4)


def test_what_was_said_holds_for_all() -> None:
    said = Settings(model=preset("tiny"), micro_batch=3, seq_len=64)
    for each in combinations(2, shape_of(said), said):
        job = resolve(each.settings)
        assert (job.micro_batch, job.seq_len) == (3, 64)


def test_the_debug_models_have_short_sequences_unless_told_otherwise() -> None:
    (single,) = combinations(1, shape_of(TINY), TINY)
    assert resolve(single.settings).seq_len == 128
    assert "128 tokens" in resolve(single.settings).assumptions


def test_names_are_chosen_in_the_order_given() -> None:
    chosen = choose(("fsdp2", "pp-zbv"), num_ranks=2, said=TINY)
    assert [each.name for each in chosen] == ["fsdp2", "pp-zbv"]
    assert resolve(chosen[1].settings).schedule is Schedule.ZBV


def test_all_is_all() -> None:
    assert [each.name for each in choose(("all",), num_ranks=2, said=TINY)] == names(2)


def test_without_a_name_the_job_is_as_it_was_said() -> None:
    (only,) = choose((), num_ranks=4, said=Settings(model=preset("tiny"), tp=2))
    assert only.name == "fsdp2 dp_shard=2,tp=2"
    assert resolve(only.settings).strategy is DataParallel.FSDP


@pytest.mark.parametrize(
    ("num_ranks", "said", "name"),
    [
        (1, {}, "single"),
        (2, {}, "fsdp2"),
        (2, {"strategy": DataParallel.DDP}, "ddp"),
        (2, {"strategy": DataParallel.NONE, "tp": 2}, "tp=2"),
        (4, {"dp_replicate": 2, "dp_shard": 2}, "fsdp2 dp_replicate=2,dp_shard=2"),
    ],
)
def test_a_job_is_named_by_what_its_strategy_does_not_say(
    num_ranks: int, said: dict[str, Any], name: str
) -> None:
    (only,) = choose((), num_ranks=num_ranks, said=Settings(model=preset("tiny"), **said))
    assert only.name == name


def test_with_a_mesh_names_are_those_of_data_parallelism() -> None:
    said = Settings(model=preset("tiny"), pp=2)
    (only,) = choose(("ddp",), num_ranks=4, said=said)
    assert only.name == "ddp pp=2,dp_replicate=2"
    with pytest.raises(UsageError, match="no strategy that a --mesh goes with"):
        choose(("hsdp",), num_ranks=4, said=said)


@pytest.mark.parametrize(
    ("name", "num_ranks", "words"),
    [
        ("hsdp", 2, "not possible with this model on 2 ranks"),
        ("ep", 2, "not possible"),
        ("fsdp3", 2, "not known"),
        ("ddp", 1, "not possible with this model on 1 rank"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(name: str, num_ranks: int, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        choose((name,), num_ranks=num_ranks, said=TINY)
    assert "all" in (raised.value.hint or "")


def test_a_program_needs_a_shape() -> None:
    with pytest.raises(UsageError, match="no model"):
        choose((), num_ranks=1, said=Settings())

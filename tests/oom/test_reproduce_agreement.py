"""Ranks that were told different things: which option differs, and on which ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from distdoctor.oom.models.flags import load_model
from distdoctor.oom.reproduction.combinations import choose
from distdoctor.oom.reproduction.options import ReproduceOptions
from distdoctor.oom.reproduction.told_options import told_options
from distdoctor.oom.settings import Checkpointing, Schedule, Settings
from distdoctor.oom.shape import Model
from distdoctor.ranks.agreement import ToldOptions, difference, read_options
from distdoctor.ranks.greeting import encode


def tiny() -> Model:
    return load_model("tiny")


def options(names: tuple[str, ...] = ("ddp",), said: Settings | None = None) -> ReproduceOptions:
    return ReproduceOptions(combinations=choose(names, num_ranks=4, said=said or Settings(model=tiny())))


def compared(*each: ReproduceOptions) -> str:
    return difference({rank: told_options(one) for rank, one in enumerate(each)})


def test_ranks_that_were_told_the_same_agree() -> None:
    elsewhere = replace(options(("ddp", "tp")), snapshot_dir=Path("/host-b"), timeout_s=5, time_limit_s=9)
    assert compared(options(("ddp", "tp")), options(("ddp", "tp")), elsewhere) == ""


def test_the_option_and_the_rank_are_named_and_most_ranks_come_first() -> None:
    other = options(("fsdp2",))
    assert compared(other, options(), options(), options()) == (
        "the ranks were started with different options: --strategy is ddp on ranks 1-3, fsdp2 on rank 0"
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (replace(options(), steps=3), "--steps is 2 on rank 0, 3 on rank 1"),
        (replace(options(), memory_limit_bytes=1 << 30), "--memory-limit is not given on rank 0, 1 GiB"),
        (replace(options(), backend="gloo"), "--backend is not given on rank 0, gloo on rank 1"),
        (options(said=Settings(model=tiny(), micro_batch=4)), "--micro-batch is not given on rank 0, 4"),
        (
            options(said=Settings(model=tiny(), checkpointing=Checkpointing.FULL)),
            "--checkpointing is not given on rank 0, full on rank 1",
        ),
        (
            options(said=Settings(model=load_model("tiny-moe"))),
            "--model is tiny on rank 0, tiny-moe on rank 1",
        ),
    ],
)
def test_everything_that_decides_what_is_run_is_compared(changed: ReproduceOptions, words: str) -> None:
    assert words in compared(options(), changed)


def test_what_is_no_option_of_its_own_is_compared_too() -> None:
    said = Settings(model=tiny(), pp=4)
    words = compared(options(said=said), options(said=replace(said, schedule=Schedule.GPIPE)))
    assert "schedule is not given on rank 0, gpipe on rank 1" in words


def test_a_model_of_one_name_may_have_two_shapes() -> None:
    model = tiny()
    assert model.shape is not None
    wider = replace(model, shape=replace(model.shape, ffn_size=4096))
    assert "the model's shape is" in compared(options(), options(said=Settings(model=wider)))


def test_a_long_list_of_differences_stays_short() -> None:
    told = {
        rank: ToldOptions(options={f"--option-{number}": f"{rank}" * 500 for number in range(9)})
        for rank in range(20)
    }
    words = difference(told)
    assert words.endswith("; and 5 more")
    assert "and 16 other values" in words
    assert len(words) < 2000


def test_what_is_no_option_is_left_out() -> None:
    good = told_options(options())
    told = {0: encode(good), 1: b"no JSON", 2: b"x" * (1 << 20), 3: msgspec.json.encode({"options": 3})}
    assert read_options(told) == {0: good}

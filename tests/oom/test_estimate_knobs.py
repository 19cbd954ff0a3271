"""What would help: changes that save, several together where one is not enough, and none that does nothing."""

from __future__ import annotations

import pytest

from distdoctor.oom.catalog.gpus import parse_cluster
from distdoctor.oom.estimate import estimate
from distdoctor.oom.fit import Fits
from distdoctor.oom.job import resolve
from distdoctor.oom.knobs import Knob, knobs_of
from distdoctor.oom.models.presets import preset
from distdoctor.oom.search.change import Effort
from distdoctor.oom.settings import Adapter, Attention, Checkpointing, DataParallel, Settings
from distdoctor.oom.shape import Model


def knobs(model: str, gpus: str, **said: object) -> tuple[Knob, ...]:
    cluster = parse_cluster(gpus)
    job = resolve(Settings(model=preset(model), world_size=cluster.num_gpus, **said))  # type: ignore[arg-type]
    return knobs_of(job, estimate(job), cluster.type)


def test_the_number_of_gpus_that_is_enough_is_named() -> None:
    # 16 B for each of 70.55e9 parameters and 4 B of foreach: 1.41e12 B; 80 GB cards need more than 17, and 16 are
    # not enough.
    found = knobs("llama3-70b", "8xa100-80gb", checkpointing=Checkpointing.FULL)
    fitting = [each for each in found if each.answer is Fits.YES]
    assert any(each.text == "32 GPUs instead of 8" for each in fitting)
    assert not any(each.text.startswith("16 GPUs") for each in found)


def test_what_fits_stands_first_and_what_needs_more_gpus_behind_it() -> None:
    found = knobs("llama3-70b", "8xa100-80gb", checkpointing=Checkpointing.FULL)
    answers = [each.answer for each in found]
    assert answers == sorted(answers, key=[Fits.YES, Fits.TIGHT, Fits.NO].index)
    efforts = [each.effort for each in found if each.answer is Fits.YES]
    assert efforts == sorted(efforts)
    assert Effort.HOST in efforts
    assert efforts[-1] is Effort.GPUS


def test_several_together_where_one_is_not_enough_and_no_more_than_it_takes() -> None:
    found = knobs("llama3-8b", "1xrtx-4090", adapter=Adapter(rank=16))
    assert found[0].text == "together: chunked loss, full checkpointing"
    assert found[0].answer is Fits.YES
    assert not any(each.num_changes == 1 for each in found if each.answer is Fits.YES)


def test_nothing_together_where_one_is_enough() -> None:
    found = knobs("llama3-70b", "64xh100-80gb")
    assert found[0].text == "selective activation checkpointing"
    assert not any("checkpointing" in each.text for each in found if each.num_changes > 1)


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"attention": Attention.UNFUSED, "seq_len": 32768}, "flash attention"),
        ({"seq_len": 131072, "checkpointing": Checkpointing.FULL}, "context parallelism"),
        ({"strategy": DataParallel.ZERO2, "checkpointing": Checkpointing.FULL}, "offload the optimizer"),
    ],
)
def test_the_change_that_anybody_would_name(said: dict[str, object], word: str) -> None:
    assert any(each.text.startswith(word) for each in knobs("llama3-8b", "8xa100-40gb", **said))


def test_a_change_that_is_made_already_is_not_given() -> None:
    texts = [each.text for each in knobs("llama3-8b", "8xv100-16gb", checkpointing=Checkpointing.FULL)]
    assert texts
    assert not any("checkpoint" in each or "flash" in each for each in texts)


def test_a_setting_stands_before_another_cut_that_saves_more() -> None:
    found = knobs("llama3-8b", "8xh100-80gb", seq_len=65536, checkpointing=Checkpointing.FULL)
    texts = [each.text for each in found if each.answer is Fits.YES]
    assert texts[0].startswith("a chunked or fused cross entropy")
    assert any(each.startswith("context parallelism") for each in texts[1:])


def test_smaller_moments_with_a_setting_where_neither_is_enough() -> None:
    # 16 bytes for 3.2e9 parameters are 48 GiB, 10 are 30; the loss of 8,192 tokens and 128,256 words is 14 more.
    found = knobs("llama3.2-3b", "1xl40s", checkpointing=Checkpointing.FULL, seq_len=8192)
    together = [each for each in found if each.text.startswith("together")]
    assert together and "8-bit AdamW" in together[0].text
    assert together[0].answer is Fits.YES


def test_of_a_model_without_a_shape_the_cheapest_change_is_still_first() -> None:
    cluster = parse_cluster("16xa100-80gb")
    model = Model(name="70B", source="--params", stated_params=70_000_000_000)
    job = resolve(Settings(model=model, world_size=16))
    found = knobs_of(job, estimate(job), cluster.type)
    assert found[0].text.startswith("the fused optimizer")
    assert {each.answer for each in found} == {Fits.UNKNOWN}, "activations are not known"

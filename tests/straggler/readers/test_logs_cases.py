"""Real logs with published numbers. The folder stands beside the repository, or not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from distdoctor.straggler.facts.reading import NoteKind, Reading
from distdoctor.straggler.facts.series import JobSeries
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs import TRAINER_LOG

CASES = Path(__file__).parents[4] / "shared" / "cases" / "training_logs"
STRAGGLER = CASES.parent / "straggler" / "log_samples" / "megatron_straggler.log"

# What the published numbers call a series, what we call it, and our unit in theirs.
SERIES = {
    "throughput": ("throughput", 1.0),
    "train_step_time": ("train step time", 1000.0),
    "step_ms": ("step time", 1.0),
    "iter_ms": ("elapsed time per iteration", 1.0),
    "curr_sps": ("CurrSamplesPerSec", 1.0),
}

# The files here are cut; the numbers are of the whole ones.
CUT = {
    "mlperf_maskrcnn_data_time",
    "mlperf_405b_2048_steps",
    "nanogpt_soap_periodic",
    "nanogpt_bimodal_alternate",
    "ds_chat_sft_timer",
}

# The published least counts lines of validation as steps, which they are not.
VALIDATION_COUNTED = {"nanogpt_single_spike", "nanogpt_schedule_and_spikes"}


@cache
def index() -> dict[str, dict[str, object]]:
    if not CASES.is_dir():
        return {}
    return {item["id"]: item for item in json.loads((CASES / "index.json").read_text())["items"]}


@cache
def read(case: str) -> Reading:
    if not CASES.is_dir():
        pytest.skip(f"{CASES} is not there: real logs are not tested")
    return TRAINER_LOG.read([str(CASES / str(index()[case]["file"]))], ReadOptions())


def series(case: str, name: str) -> JobSeries:
    (found,) = [each for each in read(case).series if each.name == name]
    return found


def truths() -> list[tuple[str, str]]:
    return [
        (case, name)
        for case, item in index().items()
        for name in (item["truth"] or {})  # type: ignore[attr-defined]
    ]


@pytest.mark.parametrize(("case", "name"), truths() or [("", "")])
def test_published_numbers_are_found(case: str, name: str) -> None:
    if not case:
        pytest.skip(f"{CASES} is not there: real logs are not tested")
    truth = index()[case]["truth"][name]  # type: ignore[index]
    ours, scale = SERIES[name]
    found = series(case, ours)
    # Of five values and fewer the published numbers drop none.
    first = truth["skipped_first"] if len(found.values) > 5 else 0
    values = found.values[first:] / scale
    if case in CUT:
        assert 0.9 * truth["min"] <= values.min()
        assert values.max() <= 1.001 * truth["max"]
        if case != "nanogpt_bimodal_alternate":  # its later half, which is cut, is slower by plan
            assert np.median(values) == pytest.approx(truth["median"], rel=0.05)
        return
    assert np.median(values) == pytest.approx(truth["median"], rel=1e-4)
    assert values.max() == pytest.approx(truth["max"], rel=1e-4)
    if case not in VALIDATION_COUNTED:
        assert len(found.values) == truth["n"]
        assert values.min() == pytest.approx(truth["min"], rel=1e-4)


def test_the_one_stall_of_a_run_stands_at_its_step() -> None:
    found = series("nanogpt_single_spike", "step time")
    assert found.steps[np.argmax(found.values)] == 511


def test_a_step_that_counts_samples_is_an_iteration() -> None:
    found = series("mlperf_405b_2048_steps", "train step time")
    assert found.steps[:3].tolist() == [1, 2, 3]


def test_meanings_that_alternate_are_kept_apart() -> None:
    for name, middle in (("throughput", 37.9), ("train step time", 237.4), ("validation throughput", 76.5)):
        assert np.median(series("mlperf_lora_alternating_meaning", name).values) == pytest.approx(
            middle, rel=0.01
        )


def test_two_hosts_with_different_metrics_are_not_compared() -> None:
    reading = read("sb_megatron_ds_pdsh_2hosts")
    assert {each.host for each in reading.series} == {"node-a", "node-b"}
    assert len({each.name for each in reading.series}) == 2
    assert not reading.steps


def test_old_timers_are_parts_of_iterations() -> None:
    found = series("meg_ds_zero_64gpu_timers", "elapsed time per iteration")
    assert found.splits["backward"].tolist() == [87957.05, 93053.38, 92755.39, 91942.94]
    pipeline = series("meg_dp1_tp4_pp64", "elapsed time per iteration")
    assert pipeline.splits["forward-recv"][1] == 1587.01


def test_the_first_step_after_a_restore_is_there() -> None:
    found = series("dlrover_events_step_begin_end", "step")
    assert found.values[0] == pytest.approx(1_346_521.8, rel=1e-6)
    assert len(found.values) == 3


def test_no_real_log_of_one_rank_names_a_rank() -> None:
    for case in index():
        reading = read(case)
        assert not reading.steps
        assert not reading.claims
        assert any(
            "a slow rank cannot" in note.text for note in reading.notes if note.kind is NoteKind.LIMITED
        )


def test_a_small_spread_in_a_straggler_report_is_no_claim() -> None:
    if not STRAGGLER.is_file():
        pytest.skip(f"{STRAGGLER} is not there: real logs are not tested")
    reading = TRAINER_LOG.read([str(STRAGGLER)], ReadOptions())
    trip = next(each for each in reading.extremes if each.name == "round trip")
    assert trip.low_rank is not None
    assert trip.high_rank is not None
    assert (trip.low[0], trip.low_rank[0], trip.high[0], trip.high_rank[0]) == (3453.08, 8, 3468.2, 0)
    assert not reading.claims

"""Training logs that people published: what a careful reader sees in each is what the checks say, and no more.

The folder stands beside the repository, or not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.report.checking import Found, NotSeen, Outcome, Passed
from distdoctor.report.model import Confidence, Severity
from distdoctor.straggler.checks.series.findings import analysed, primary_series
from distdoctor.straggler.checks.series.periodic import PERIODIC_ID, periodic_outcomes
from distdoctor.straggler.checks.series.regime import REGIME_ID, regime_outcomes
from distdoctor.straggler.checks.series.stall import STALL_ID, stall_outcomes
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs import TRAINER_LOG

CASES = Path(__file__).parents[3] / "shared/cases/training_logs"

# Nothing but passed checks.
FLAT = ("mlperf_unet3d_clean.txt", "mlperf_lora_1024gpu_noise.txt", "ds_chat_sft_timer.log")

# Fewer than eight values.
FEW = (
    "mlperf_lora_alternating_meaning.txt",
    "mlperf_sd_unit_trap.txt",
    "meg_ds_zero_64gpu_timers.log",
    "meg_dp1_tp4_pp64.log",
    "sb_megatron_ds_pdsh_2hosts.log",
    "dlrover_events_step_begin_end.log",
)


def outcomes_of(name: str) -> dict[str, list[Outcome]]:
    if not CASES.is_dir():
        pytest.skip(f"{CASES} is not there")
    reading = TRAINER_LOG.read([str(CASES / name)], ReadOptions())
    (series,) = primary_series(reading.series)
    shape, told = analysed(series, beside=reading.series)
    return {
        REGIME_ID: list(regime_outcomes(shape, told)),
        STALL_ID: list(stall_outcomes(shape, told)),
        PERIODIC_ID: list(periodic_outcomes(shape, told)),
    }


def found(outcomes: dict[str, list[Outcome]], check_id: str) -> list[Found]:
    return [each for each in outcomes[check_id] if isinstance(each, Found)]


def text_of(finding: Found) -> str:
    return "\n".join([finding.title, *(each.text for each in finding.evidence)])


@pytest.mark.parametrize("name", FLAT)
def test_flat_logs_pass(name: str) -> None:
    for outcomes in outcomes_of(name).values():
        assert all(isinstance(each, Passed) for each in outcomes)


@pytest.mark.parametrize("name", FEW)
def test_short_logs_are_not_judged(name: str) -> None:
    for outcomes in outcomes_of(name).values():
        assert all(isinstance(each, NotSeen) for each in outcomes)


def test_a_slow_start_of_few_values_is_said_with_low_confidence() -> None:
    (passed,) = outcomes_of("mlperf_lora_1024gpu_noise.txt")[REGIME_ID]
    assert isinstance(passed, Passed)
    assert "the first 4 values are a slow start, up to 1.17 times" in passed.detail
    assert "low confidence" in passed.detail


def test_a_restore_before_the_first_step_is_said() -> None:
    (unread,) = outcomes_of("dlrover_events_step_begin_end.log")[REGIME_ID]
    assert isinstance(unread, NotSeen)
    assert "the first value is a slow start, up to 75 times" in unread.unread.reason


def test_the_last_four_values_are_a_late_shift() -> None:
    outcomes = outcomes_of("mlperf_bert_h100_late_shift.txt")
    (shift,) = found(outcomes, REGIME_ID)
    assert "lower since step" in shift.title
    assert "(4 values)" in text_of(shift)
    assert (shift.severity, shift.confidence) == (Severity.WARNING, Confidence.LOW)
    assert not found(outcomes, PERIODIC_ID)


def test_one_dip_is_no_shift_and_three_per_cent_by_turns_are_no_finding() -> None:
    outcomes = outcomes_of("mlperf_bert_h100_one_dip.txt")
    assert not found(outcomes, REGIME_ID)
    assert not found(outcomes, PERIODIC_ID)
    (dip,) = found(outcomes, STALL_ID)
    assert "6,180 samples/s" in text_of(dip)
    assert dip.severity is Severity.INFO


def test_two_thousand_gpus_are_flat_but_for_a_first_and_a_single_step() -> None:
    outcomes = outcomes_of("mlperf_405b_2048_steps.txt")
    assert not found(outcomes, REGIME_ID)
    assert not found(outcomes, PERIODIC_ID)
    (stall,) = found(outcomes, STALL_ID)
    assert "8.2 % longer than usual, step 37" in stall.title
    assert stall.severity is Severity.INFO


def test_a_running_mean_that_ends_faster_is_no_slowdown() -> None:
    outcomes = outcomes_of("mlperf_maskrcnn_data_time.txt")
    regimes = found(outcomes, REGIME_ID)
    assert {(each.severity, each.confidence) for each in regimes} == {(Severity.INFO, Confidence.LOW)}
    assert any("faster since step 35,100: not a slowdown" in each.title for each in regimes)
    assert not found(outcomes, STALL_ID)
    assert not found(outcomes, PERIODIC_ID)


def test_every_tenth_step_is_by_design() -> None:
    outcomes = outcomes_of("nanogpt_soap_periodic.log")
    assert not found(outcomes, REGIME_ID)
    (rhythm,) = found(outcomes, PERIODIC_ID)
    assert rhythm.title.startswith("a slow step every 10 steps, 29 % of the time: by design")
    assert rhythm.severity is Severity.INFO
    assert all(each.severity is Severity.INFO for each in found(outcomes, STALL_ID))


def test_a_schedule_is_told_from_the_stalls_in_it() -> None:
    outcomes = outcomes_of("nanogpt_schedule_and_spikes.log")
    assert not found(outcomes, REGIME_ID)
    assert "by plan or by configuration: 3 levels" in found(outcomes, PERIODIC_ID)[0].title
    (stalls,) = found(outcomes, STALL_ID)
    assert all(f"step {step}:" in text_of(stalls) for step in ("493", "814", "1,058", "1,270"))


def test_steps_by_turns_are_bimodal_and_no_straggler() -> None:
    outcomes = outcomes_of("nanogpt_bimodal_alternate.log")
    assert not found(outcomes, REGIME_ID)
    assert not found(outcomes, STALL_ID)
    titles = [each.title for each in found(outcomes, PERIODIC_ID)]
    assert any(title.startswith("every second step takes 47 % longer") for title in titles)
    assert all(each.severity is Severity.INFO for each in found(outcomes, PERIODIC_ID))


def test_one_stall_of_870_ms_is_one_stall() -> None:
    outcomes = outcomes_of("nanogpt_single_spike.log")
    assert not found(outcomes, REGIME_ID)
    assert not found(outcomes, PERIODIC_ID)
    (stall,) = found(outcomes, STALL_ID)
    assert stall.title == "one step took 15 times as long as usual, step 511"
    assert stall.severity is Severity.INFO

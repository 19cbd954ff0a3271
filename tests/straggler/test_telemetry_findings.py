"""GPUs that monitoring shows unlike their peers, and what telemetry can never show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.report.checking import Found, NotSeen, Outcome, Passed, finding_of
from distdoctor.report.model import Confidence, GpuRef, Severity
from distdoctor.straggler.analysis.telemetry.counter_growth import growth
from distdoctor.straggler.checks.telemetry.findings import CHECK_ID, telemetry_outcomes
from distdoctor.straggler.facts.telemetry import GpuSeries, Metric, Telemetry
from straggler.monitored_gpus import (
    BEGIN_S,
    IDLE,
    INTERVAL_S,
    UNDER_LOAD,
    Values,
    from_time,
    growing,
    telemetry,
)

HW_THERMAL, HW_SLOWDOWN, POWER_BRAKE, SW_THERMAL, SW_POWER_CAP = 0x40, 0x8, 0x80, 0x20, 0x4
SYNC_BOOST = 0x10

Unlike = Mapping[int, Mapping[Metric, Values]]


def found_in(outcomes: Sequence[Outcome]) -> list[Found]:
    return [each for each in outcomes if isinstance(each, Found)]


def only(outcomes: Sequence[Outcome]) -> Found:
    (found,) = found_in(outcomes)
    return found


def reasons_of(outcomes: Sequence[Outcome]) -> str:
    return "; ".join(each.unread.reason for each in outcomes if isinstance(each, NotSeen))


def gpus_named(found: Found) -> list[tuple[str | None, int | None]]:
    return [(gpu.host, gpu.index) for gpu in found.scope.gpus]


# --- fires ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [HW_THERMAL | HW_SLOWDOWN, POWER_BRAKE | HW_SLOWDOWN, HW_SLOWDOWN])
def test_a_gpu_that_hardware_holds_back_is_named_with_high_confidence(mask: int) -> None:
    unlike: Unlike = {3: {Metric.THROTTLE_REASONS: mask, Metric.SM_CLOCK: 1065, Metric.TEMPERATURE: 87}}
    found = only(telemetry_outcomes(telemetry(unlike=unlike)))

    assert gpus_named(found) == [("host-a", 3)]
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.HIGH)
    assert found.title.startswith("GPU 3 of host-a is held back: HW")
    assert any(re.search(r"SM clock 10\d\d MHz, the others 17\d\d MHz", each.text) for each in found.evidence)
    assert "lead" in found.explanation


def test_a_lone_gpu_held_back_by_hardware_is_told_and_not_compared() -> None:
    outcomes = telemetry_outcomes(telemetry(1, unlike={0: {Metric.THROTTLE_REASONS: HW_THERMAL}}))

    assert only(outcomes).confidence is Confidence.MEDIUM
    assert "4 are needed" in reasons_of(outcomes)


def every(nth: int, mask: int) -> Values:
    return lambda times: np.where(np.arange(len(times)) % nth == 0, mask, 0).astype(float)


def test_hardware_that_holds_back_one_gpu_now_and_then_is_told_with_less_confidence() -> None:
    found = only(telemetry_outcomes(telemetry(unlike={3: {Metric.THROTTLE_REASONS: every(6, POWER_BRAKE)}})))

    assert found.title == "GPU 3 of host-a is held back at times: HW power brake"
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert any("in 17% of the time under load, the others in 0%" in each.text for each in found.evidence)


def test_a_few_samples_of_throttling_and_those_that_others_have_too_are_silent() -> None:
    assert not found_in(
        telemetry_outcomes(telemetry(unlike={3: {Metric.THROTTLE_REASONS: every(15, HW_SLOWDOWN)}}))
    )
    everybody: Mapping[Metric, Values] = {Metric.THROTTLE_REASONS: every(20, HW_SLOWDOWN)}
    unlike: Unlike = {3: {Metric.THROTTLE_REASONS: every(6, HW_SLOWDOWN)}}
    (outcome,) = telemetry_outcomes(telemetry(everybody=everybody, unlike=unlike))
    assert isinstance(outcome, Passed)
    assert "they differ in HW slowdown (5% to 17% of the time)" in outcome.detail


def test_the_drivers_thermal_slowdown_is_medium() -> None:
    found = only(telemetry_outcomes(telemetry(unlike={3: {Metric.THROTTLE_REASONS: SW_THERMAL}})))

    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)


def test_a_gpu_with_a_lower_power_limit_is_named_with_both_limits() -> None:
    unlike: Unlike = {
        5: {
            Metric.THROTTLE_REASONS: SW_POWER_CAP,
            Metric.POWER_LIMIT: 500,
            Metric.POWER: 499,
            Metric.SM_CLOCK: 1410,
        }
    }
    found = only(telemetry_outcomes(telemetry(unlike=unlike)))

    assert gpus_named(found) == [("host-a", 5)]
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert any("power limit 500 W, the others 700 W" in each.text for each in found.evidence)


def test_a_culprit_among_waiting_victims_is_a_lead() -> None:
    waiting: Mapping[Metric, Values] = {Metric.POWER: 430, Metric.SM_ACTIVE: 0.4, Metric.SM_CLOCK: 1900}
    working: Unlike = {6: {Metric.POWER: 640, Metric.SM_ACTIVE: 0.75, Metric.SM_CLOCK: 1850}}
    found = only(telemetry_outcomes(telemetry(everybody=waiting, unlike=working)))

    assert gpus_named(found) == [("host-a", 6)]
    assert found.title == "GPU 6 of host-a works while the others seem to wait"
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert "step times decide" in found.explanation


@pytest.mark.parametrize(("clock", "mask"), [(1740, 0), (1590, 0), (1590, SW_POWER_CAP)])
def test_a_culprit_that_clocks_lower_because_it_works_is_told_as_such(clock: float, mask: int) -> None:
    waiting: Mapping[Metric, Values] = {Metric.POWER: 380, Metric.SM_ACTIVE: 0.25, Metric.SM_CLOCK: 1965}
    working: Unlike = {
        6: {
            Metric.POWER: 690,
            Metric.SM_ACTIVE: 0.7,
            Metric.SM_CLOCK: clock,
            Metric.THROTTLE_REASONS: mask,
        }
    }
    found = only(telemetry_outcomes(telemetry(everybody=waiting, unlike=working)))

    assert found.title == "GPU 6 of host-a works while the others seem to wait"
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert any("SM clock" in each.text for each in found.evidence)


def test_a_power_cap_is_told_before_the_low_clock_that_it_causes() -> None:
    unlike: Unlike = {5: {Metric.THROTTLE_REASONS: SW_POWER_CAP, Metric.POWER: 450, Metric.SM_CLOCK: 1300}}
    found = only(telemetry_outcomes(telemetry(unlike=unlike)))

    assert found.title == "GPU 5 of host-a is held back by a power cap, the others are not"
    assert found.severity is Severity.WARNING


def test_the_strongest_sign_is_the_title() -> None:
    """The clock is a little low, which is a weak lead; the Xid is not."""
    everybody: Mapping[Metric, Values] = {Metric.XID: 0}
    unlike: Unlike = {2: {Metric.XID: from_time(BEGIN_S + 600, 0, 79), Metric.SM_CLOCK: 1560}}
    found = only(telemetry_outcomes(telemetry(everybody=everybody, unlike=unlike)))

    assert found.title == "GPU 2 of host-a has reported Xid 79"
    assert found.severity is Severity.WARNING


def test_by_power_alone_a_culprit_is_a_weak_lead() -> None:
    waiting: Mapping[Metric, Values] = {Metric.POWER: 430}
    metrics = (Metric.POWER, Metric.UTILISATION, Metric.SM_CLOCK)
    found = only(
        telemetry_outcomes(telemetry(everybody=waiting, unlike={6: {Metric.POWER: 640}}, metrics=metrics))
    )

    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)


def test_a_gpu_with_low_clocks_that_is_active_is_medium() -> None:
    unlike: Unlike = {2: {Metric.SM_CLOCK: 1200, Metric.SM_ACTIVE: 0.85, Metric.POWER: 450}}
    found = only(telemetry_outcomes(telemetry(unlike=unlike)))

    assert re.fullmatch(r"GPU 2 of host-a runs at 1[12]\d\d MHz, the others at 17\d\d MHz", found.title)
    assert found.confidence is Confidence.MEDIUM


def test_a_gpu_with_low_clocks_that_does_little_is_a_weak_lead() -> None:
    unlike: Unlike = {2: {Metric.SM_CLOCK: 1200, Metric.SM_ACTIVE: 0.1, Metric.POWER: 250}}
    found = only(telemetry_outcomes(telemetry(unlike=unlike)))

    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)


def test_without_a_job_in_the_evidence_comparisons_are_weaker() -> None:
    found = only(telemetry_outcomes(telemetry(unlike={2: {Metric.SM_CLOCK: 1200}}, job=None)))

    assert found.confidence is Confidence.LOW
    assert "does not tell which GPUs are one job" in found.explanation


def test_two_groups_by_clock_are_told_with_the_hosts_of_the_slower_one() -> None:
    slow: Mapping[Metric, Values] = {Metric.SM_CLOCK: 1200, Metric.POWER: 420}
    found = only(telemetry_outcomes(telemetry(16, unlike=dict.fromkeys(range(8, 16), slow))))

    assert re.fullmatch(r"8 of 16 GPUs run at 1[12]\d\d MHz, the others at 17\d\d MHz", found.title)
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LOW)
    assert found.scope.hosts == ("host-b",)
    assert gpus_named(found) == [("host-b", index) for index in range(8)]
    assert any("all of host-b" in each.text for each in found.evidence)


@pytest.mark.parametrize("slow", [range(5, 8), range(2, 8)])
def test_two_groups_by_clock_within_a_host_name_no_host(slow: range) -> None:
    found = only(telemetry_outcomes(telemetry(unlike={gpu: {Metric.SM_CLOCK: 900} for gpu in slow})))

    assert found.title.startswith(f"{len(slow)} of 8 GPUs run at ")
    assert found.scope.hosts == ()


@pytest.mark.parametrize(
    "work",
    [
        {Metric.SM_CLOCK: 1400, Metric.POWER: 690, Metric.SM_ACTIVE: 0.65},
        {Metric.SM_CLOCK: 1200, Metric.POWER: 300, Metric.SM_ACTIVE: 0.3},
    ],
    ids=["more work", "less work"],
)
def test_two_groups_whose_clocks_follow_their_work_are_a_weak_lead(work: Mapping[Metric, Values]) -> None:
    export = telemetry(16, everybody={Metric.POWER: 540}, unlike=dict.fromkeys(range(8, 16), work))
    (found,) = found_in(telemetry_outcomes(export))

    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)
    assert "work" in found.explanation


def test_clocks_of_two_groups_that_lie_close_are_silent() -> None:
    (outcome,) = telemetry_outcomes(telemetry(unlike={gpu: {Metric.SM_CLOCK: 1640} for gpu in range(4)}))

    assert isinstance(outcome, Passed)


def test_a_gpu_that_idles_within_the_job_is_a_lead() -> None:
    found = only(telemetry_outcomes(telemetry(unlike={4: IDLE})))

    assert found.title == "GPU 4 of host-a is idle while the others of the job are busy"
    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)


def test_a_gpu_of_the_job_that_does_something_is_not_called_idle() -> None:
    little: Mapping[Metric, Values] = {Metric.UTILISATION: 60, Metric.POWER: 200, Metric.SM_ACTIVE: 0.1}
    found = only(telemetry_outcomes(telemetry(unlike={4: little})))

    assert found.title == "GPU 4 of host-a does less than the others"
    assert any("utilisation 60 %, the others 100 %" in each.text for each in found.evidence)


def test_a_gpu_held_back_by_heat_by_its_counter_is_named() -> None:
    everybody: Mapping[Metric, Values] = {Metric.THERMAL_VIOLATION: growing(0)}
    unlike: Unlike = {1: {Metric.THERMAL_VIOLATION: growing(0.3e9)}}
    found = only(telemetry_outcomes(telemetry(everybody=everybody, unlike=unlike)))

    assert found.title == "GPU 1 of host-a is held back by heat in 30% of the time"
    assert found.confidence is Confidence.MEDIUM


def test_heat_is_told_before_the_low_clock_that_it_causes() -> None:
    everybody: Mapping[Metric, Values] = {Metric.THERMAL_VIOLATION: growing(0)}
    unlike: Unlike = {1: {Metric.THERMAL_VIOLATION: growing(0.3e9), Metric.SM_CLOCK: 1300}}
    found = only(telemetry_outcomes(telemetry(everybody=everybody, unlike=unlike)))

    assert found.title == "GPU 1 of host-a is held back by heat in 30% of the time"
    assert any("SM clock 1" in each.text for each in found.evidence)


def test_counters_in_an_unknown_unit_are_not_read_as_time() -> None:
    unlike: Unlike = {1: {Metric.THERMAL_VIOLATION: growing(5e12)}}
    everybody: Mapping[Metric, Values] = {Metric.THERMAL_VIOLATION: growing(0)}

    assert not found_in(telemetry_outcomes(telemetry(everybody=everybody, unlike=unlike)))


def test_all_held_back_by_power_alike_are_silent() -> None:
    everybody: Mapping[Metric, Values] = {Metric.POWER_VIOLATION: growing(0.6e9)}

    assert not found_in(telemetry_outcomes(telemetry(everybody=everybody)))


def test_a_hot_gpu_is_a_weak_lead() -> None:
    found = only(telemetry_outcomes(telemetry(unlike={7: {Metric.TEMPERATURE: 82}})))

    assert re.fullmatch(r"GPU 7 of host-a is at 8[123] °C, the others at 6[345] °C", found.title)
    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)


def test_link_errors_on_one_gpu_are_told_and_on_all_are_not() -> None:
    everybody: Mapping[Metric, Values] = {Metric.NVLINK_ERRORS: growing(0)}
    one: Unlike = {0: {Metric.NVLINK_ERRORS: growing(0.5)}}
    found = only(telemetry_outcomes(telemetry(everybody=everybody, unlike=one)))

    assert "NVLink errors" in found.title
    assert not found_in(telemetry_outcomes(telemetry(everybody={Metric.NVLINK_ERRORS: growing(0.5)})))


@pytest.mark.parametrize(("xid", "severity"), [(79, Severity.WARNING), (31, Severity.INFO)])
def test_an_xid_that_came_up_meanwhile_is_told(xid: int, severity: Severity) -> None:
    everybody: Mapping[Metric, Values] = {Metric.XID: 0}
    unlike: Unlike = {2: {Metric.XID: from_time(BEGIN_S + 600, 0, xid)}}
    found = only(telemetry_outcomes(telemetry(everybody=everybody, unlike=unlike)))

    assert found.title == f"GPU 2 of host-a has reported Xid {xid}"
    assert found.severity is severity


def test_an_xid_from_before_the_recording_is_silent() -> None:
    assert not found_in(telemetry_outcomes(telemetry(unlike={2: {Metric.XID: 79}})))


def born(at_s: float, xid: int) -> Values:
    """No sample before that time, as of exporters that write the series only after the first Xid."""
    return from_time(at_s, np.nan, xid)


def without_nan(export: Telemetry) -> Telemetry:
    parts = []
    for each in export.series:
        known = ~np.isnan(each.values)
        parts.append(replace(each, utc_s=each.utc_s[known], values=each.values[known]))
    return replace(export, series=tuple(parts))


def test_an_xid_whose_series_begins_meanwhile_came_up_then() -> None:
    export = without_nan(telemetry(unlike={2: {Metric.XID: born(BEGIN_S + 600, 48)}}))
    found = only(telemetry_outcomes(export))

    assert found.title == "GPU 2 of host-a has reported Xid 48"
    assert found.severity is Severity.WARNING
    assert not found_in(telemetry_outcomes(export, around_s=BEGIN_S + 900))


def test_an_old_xid_of_a_gpu_whose_series_all_begin_then_is_silent() -> None:
    whole = telemetry(unlike={2: {Metric.XID: 48}})
    late = tuple(
        replace(each, utc_s=each.utc_s[40:], values=each.values[40:]) if each.gpu.index == 2 else each
        for each in whole.series
    )

    assert not found_in(telemetry_outcomes(replace(whole, series=late)))


def test_an_old_xid_after_a_restart_of_the_exporter_is_silent() -> None:
    """All samples of the GPU are away for five minutes, and then its series of Xids begins."""
    away = telemetry(unlike={2: {Metric.XID: born(BEGIN_S + 900, 48)}})
    parts = []
    for each in away.series:
        gap = (each.utc_s >= BEGIN_S + 600) & (each.utc_s < BEGIN_S + 900)
        parts.append(replace(each, utc_s=each.utc_s[~gap], values=each.values[~gap]))

    assert not found_in(telemetry_outcomes(without_nan(replace(away, series=tuple(parts)))))


def test_an_old_xid_in_a_query_that_begins_later_is_silent() -> None:
    """The query of Xids covers less time than the others: the healthy GPUs' series begin there too."""
    everybody: Mapping[Metric, Values] = {Metric.XID: born(BEGIN_S + 600, 0)}
    export = without_nan(telemetry(everybody=everybody, unlike={2: {Metric.XID: born(BEGIN_S + 600, 48)}}))

    assert not found_in(telemetry_outcomes(export))


def test_a_failed_row_remap_is_told() -> None:
    found = only(telemetry_outcomes(telemetry(unlike={2: {Metric.ROW_REMAP_FAILURE: 1}})))

    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)


def test_gpus_of_one_host_with_the_same_sign_are_one_finding() -> None:
    unlike: Unlike = {
        gpu: {Metric.THROTTLE_REASONS: POWER_BRAKE, Metric.SM_CLOCK: 900} for gpu in range(8, 16)
    }
    found = only(telemetry_outcomes(telemetry(64, unlike=unlike)))

    assert found.title == "GPUs 0-7 of host-b are held back: HW power brake"
    assert found.scope.hosts == ("host-b",)
    assert len(found.scope.gpus) == 8


# --- silent ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_alike_gpus_are_not_called_healthy(seed: int) -> None:
    (outcome,) = telemetry_outcomes(telemetry(16, seed=seed))

    assert isinstance(outcome, Passed)
    assert outcome.detail.startswith("not shown by telemetry: 16 NVIDIA H100")
    assert outcome.detail.endswith("telemetry alone cannot prove that no rank is slow")
    assert "healthy" not in outcome.detail


def test_all_at_their_power_limit_is_how_full_load_looks() -> None:
    everybody: Mapping[Metric, Values] = {Metric.THROTTLE_REASONS: SW_POWER_CAP, Metric.POWER: 698}
    (outcome,) = telemetry_outcomes(telemetry(everybody=everybody))

    assert isinstance(outcome, Passed)
    assert "SW power cap on 8 of 8, normal under full load" in outcome.detail


def test_all_throttled_by_heat_slows_the_job_and_names_no_gpu() -> None:
    everybody: Mapping[Metric, Values] = {Metric.THROTTLE_REASONS: HW_THERMAL, Metric.SM_CLOCK: 1000}
    found = only(telemetry_outcomes(telemetry(everybody=everybody)))

    assert found.title == "8 of 8 GPUs are held back alike: HW thermal slowdown"
    assert found.scope.gpus == ()
    assert found.confidence is Confidence.MEDIUM
    assert "no straggler" in found.explanation


@pytest.mark.parametrize("specific", [HW_THERMAL, POWER_BRAKE])
def test_the_general_bit_of_hardware_is_not_told_beside_the_specific_one(specific: int) -> None:
    everybody: Mapping[Metric, Values] = {Metric.THROTTLE_REASONS: specific | HW_SLOWDOWN}

    assert "HW slowdown" not in only(telemetry_outcomes(telemetry(everybody=everybody))).title
    general: Mapping[Metric, Values] = {Metric.THROTTLE_REASONS: HW_SLOWDOWN}
    assert "HW slowdown" in only(telemetry_outcomes(telemetry(everybody=general))).title


def test_an_idle_gpu_of_no_job_is_taken_as_not_part_of_it() -> None:
    (outcome,) = telemetry_outcomes(telemetry(9, unlike={8: IDLE}, job=None, gpus_per_host=9))

    assert isinstance(outcome, Passed)
    assert "1 more were not under load" in outcome.detail


def test_low_clocks_while_idle_are_no_fault() -> None:
    """A quarter of the time all idle; one idles longer at first."""

    def clock(times: np.ndarray) -> np.ndarray:
        return np.where(times < BEGIN_S + 500, 345.0, 1755.0)

    def busy(times: np.ndarray) -> np.ndarray:
        return np.where(times < BEGIN_S + 500, 0.0, 100.0)

    unlike: Unlike = {3: {Metric.SM_CLOCK: clock, Metric.UTILISATION: busy}}
    assert not found_in(
        telemetry_outcomes(telemetry(unlike=unlike, metrics=(Metric.SM_CLOCK, Metric.UTILISATION)))
    )


def test_half_of_the_gpus_unlike_the_others_is_a_kind_of_work() -> None:
    stages: Unlike = {gpu: {Metric.POWER: 450, Metric.SM_ACTIVE: 0.4} for gpu in range(8, 16)}

    (outcome,) = telemetry_outcomes(telemetry(16, unlike=stages))
    assert isinstance(outcome, Passed)
    assert "are alike in SM clock, throttle reasons, temperature over" in outcome.detail
    assert re.search(
        r"they differ in SM activity \(\d\d % to \d\d %\), power \(\d+ W to \d+ W\)", outcome.detail
    )


@pytest.mark.parametrize("seed", range(5))
def test_all_that_go_to_rest_together_now_and_then_are_alike(seed: int) -> None:
    """Where phases change, samples of some GPUs fall into one and those of others into the next."""

    def at_rest_for_a_fifth(metric: Metric) -> Values:
        busy, rest = UNDER_LOAD[metric], IDLE[metric]
        return lambda times: np.where(times // INTERVAL_S % 10 < 2, rest, busy)

    everybody = {metric: at_rest_for_a_fifth(metric) for metric in UNDER_LOAD}
    (outcome,) = telemetry_outcomes(telemetry(16, everybody=everybody, seed=seed))

    assert isinstance(outcome, Passed)
    assert "differ" not in outcome.detail


def test_a_clock_that_is_low_at_times_is_not_called_alike() -> None:
    metrics = (Metric.SM_CLOCK, Metric.UTILISATION)
    late: Unlike = {3: {Metric.SM_CLOCK: from_time(BEGIN_S + 1440, 1755, 900)}}
    (outcome,) = telemetry_outcomes(telemetry(unlike=late, metrics=metrics))

    assert isinstance(outcome, Passed)
    assert "alike in" not in outcome.detail
    assert (
        "they differ in SM clock at times (GPU 3 of host-a in 20% of the time more than others)"
        in outcome.detail
    )


def test_clocks_that_differ_by_five_per_cent_are_silent() -> None:
    assert not found_in(telemetry_outcomes(telemetry(unlike={3: {Metric.SM_CLOCK: 1667}})))


# --- missing --------------------------------------------------------------------------------------------------


def test_nothing_recorded_is_not_seen() -> None:
    (outcome,) = telemetry_outcomes(Telemetry(source="Prometheus", path="x", series=()))

    assert isinstance(outcome, NotSeen)
    assert outcome.unread.how is not None


def test_one_gpu_has_no_peers() -> None:
    (outcome,) = telemetry_outcomes(telemetry(1))

    assert isinstance(outcome, NotSeen)
    assert "1 GPU under load, 4 are needed" in outcome.unread.reason


def test_samples_without_a_time_are_said_not_to_be_compared() -> None:
    export = telemetry(unlike={3: {Metric.THROTTLE_REASONS: HW_THERMAL}}, num_samples=1)
    looks = tuple(replace(each, utc_s=np.full(1, np.nan)) for each in export.series)
    (outcome,) = telemetry_outcomes(replace(export, series=looks))

    assert isinstance(outcome, NotSeen)
    assert "have no time" in outcome.unread.reason and "not compared" in outcome.unread.reason


def test_models_are_not_compared_with_one_another() -> None:
    models = {gpu: "NVIDIA A100-SXM4-80GB" if gpu < 3 else "NVIDIA H100 80GB HBM3" for gpu in range(8)}
    outcomes = telemetry_outcomes(
        telemetry(model=models, unlike={gpu: {Metric.SM_CLOCK: 1200} for gpu in range(3)})
    )

    assert not found_in(outcomes)
    assert "NVIDIA A100-SXM4-80GB: 3 GPUs under load, 4 are needed" in reasons_of(outcomes)
    assert any(isinstance(each, Passed) for each in outcomes)


def test_jobs_are_not_compared_with_one_another() -> None:
    jobs = {gpu: "a" if gpu < 4 else "b" for gpu in range(8)}
    outcomes = telemetry_outcomes(
        telemetry(job=jobs, unlike={gpu: {Metric.SM_CLOCK: 1200} for gpu in range(4)})
    )

    assert [type(each) for each in outcomes] == [Passed, Passed]


def test_few_samples_are_not_judged() -> None:
    (outcome,) = telemetry_outcomes(telemetry(num_samples=12, unlike={3: {Metric.SM_CLOCK: 900}}))

    assert isinstance(outcome, NotSeen)
    assert "10 are needed" in outcome.unread.reason


def test_an_idle_export_is_not_seen() -> None:
    (outcome,) = telemetry_outcomes(telemetry(everybody=IDLE))

    assert isinstance(outcome, NotSeen)
    assert "no GPU is under load" in outcome.unread.reason


def test_without_utilisation_and_power_it_is_said_that_they_lack() -> None:
    outcomes = telemetry_outcomes(
        telemetry(unlike={3: {Metric.SM_CLOCK: 900}}, metrics=(Metric.SM_CLOCK, Metric.TEMPERATURE))
    )

    assert not found_in(outcomes)
    assert "neither utilisation nor power was exported" in reasons_of(outcomes)
    assert "no GPU is under load" not in reasons_of(outcomes)


def test_slowdown_by_hardware_is_told_without_knowing_the_load() -> None:
    unlike: Unlike = {3: {Metric.THROTTLE_REASONS: HW_THERMAL}, 4: {Metric.THROTTLE_REASONS: SW_POWER_CAP}}
    found = only(telemetry_outcomes(telemetry(unlike=unlike, metrics=(Metric.THROTTLE_REASONS,))))

    assert gpus_named(found) == [("host-a", 3)]
    assert found.confidence is Confidence.MEDIUM
    assert not any("under load" in each.text for each in found.evidence)


@pytest.mark.parametrize("limit", [700.0, np.nan])
def test_gpus_with_gaps_between_their_kernels_are_under_load(limit: float) -> None:
    everybody: Mapping[Metric, Values] = {Metric.UTILISATION: 62, Metric.POWER_LIMIT: limit}
    metrics = tuple(each for each in Metric if each is not Metric.SM_ACTIVE)
    unlike: Unlike = {2: {Metric.SM_CLOCK: 1200}}
    found = only(telemetry_outcomes(telemetry(everybody=everybody, unlike=unlike, metrics=metrics)))

    assert gpus_named(found) == [("host-a", 2)]


def test_gpus_that_do_a_little_now_and_then_are_not_under_load() -> None:
    everybody: Mapping[Metric, Values] = {Metric.UTILISATION: 25, Metric.POWER: 110, Metric.SM_ACTIVE: 0.03}
    (outcome,) = telemetry_outcomes(telemetry(everybody=everybody))

    assert isinstance(outcome, NotSeen)
    assert "no GPU is under load" in outcome.unread.reason


def test_a_small_job_in_the_export_of_a_large_cluster_is_judged() -> None:
    unlike: Unlike = dict.fromkeys(range(8, 48), IDLE) | {5: {Metric.THROTTLE_REASONS: HW_THERMAL}}
    found = only(telemetry_outcomes(telemetry(48, unlike=unlike, job=None)))

    assert gpus_named(found) == [("host-a", 5)]
    (healthy,) = telemetry_outcomes(telemetry(48, unlike=dict.fromkeys(range(8, 48), IDLE), job=None))
    assert isinstance(healthy, Passed)
    assert "8 NVIDIA H100" in healthy.detail and "40 more were not under load" in healthy.detail


def in_third(number: int, metric: Metric) -> Values:
    begin, end = (BEGIN_S + INTERVAL_S * 40 * (number + each) for each in (0, 1))
    return lambda times: np.where((times >= begin) & (times < end), UNDER_LOAD[metric], IDLE[metric])


def test_jobs_one_after_another_on_gpus_of_their_own_are_judged() -> None:
    alike = {gpu: {metric: in_third(gpu // 8, metric) for metric in UNDER_LOAD} for gpu in range(24)}
    (healthy,) = telemetry_outcomes(telemetry(24, unlike=alike, job=None))
    slow: Unlike = {**alike, 10: {**alike[10], Metric.SM_CLOCK: 1100}}

    assert isinstance(healthy, Passed) and "24 NVIDIA H100" in healthy.detail
    assert gpus_named(only(telemetry_outcomes(telemetry(24, unlike=slow, job=None)))) == [("host-b", 2)]


def test_mig_slices_are_not_judged() -> None:
    whole = telemetry()
    slices = [
        replace(each, gpu=msgspec.structs.replace(each.gpu, uuid=f"MIG-{each.gpu.uuid}"))
        for each in whole.series
    ]
    outcomes = telemetry_outcomes(replace(whole, series=tuple(slices)))

    assert not found_in(outcomes)
    assert "MIG" in reasons_of(outcomes)


def test_series_that_contradict_one_another_cost_only_their_metric() -> None:
    """The clock is told twice, 1755 and 900 MHz at the same time; the reasons are told once."""
    everything = telemetry(unlike={3: {Metric.THROTTLE_REASONS: HW_THERMAL}})
    other_clocks = telemetry(everybody={Metric.SM_CLOCK: 900}, metrics=(Metric.SM_CLOCK,), seed=2)
    outcomes = telemetry_outcomes([everything, other_clocks])

    assert gpus_named(only(outcomes)) == [("host-a", 3)]
    assert "several series of SM clock that contradict one another" in reasons_of(outcomes)


def test_gpus_that_nothing_tells_apart_are_not_taken_for_one() -> None:
    """Three hosts behind one address, without UUIDs: what is the same on all of them is of several GPUs too."""
    export = telemetry(24, unlike={13: {Metric.THROTTLE_REASONS: HW_THERMAL}})
    series = tuple(
        replace(each, gpu=GpuRef(index=each.gpu.index, model=each.gpu.model)) for each in export.series
    )
    (outcome,) = telemetry_outcomes(replace(export, series=series))

    assert isinstance(outcome, NotSeen)
    assert "GPUs of several hosts under one index" in outcome.unread.reason
    assert "UUID" in (outcome.unread.how or "")


def test_exports_that_overlap_are_one() -> None:
    whole = telemetry(unlike={3: {Metric.THROTTLE_REASONS: HW_THERMAL}})

    def cut(begin: int, end: int) -> Telemetry:
        parts = (
            replace(each, utc_s=each.utc_s[begin:end], values=each.values[begin:end]) for each in whole.series
        )
        return replace(whole, series=tuple(parts))

    (outcome,) = telemetry_outcomes([cut(0, 70), cut(60, 120)])
    assert isinstance(outcome, Found)
    assert outcome.title == "GPU 3 of host-a is held back: HW thermal slowdown"


def test_two_servers_that_scraped_the_same_exporters_are_one() -> None:
    """Seconds apart, and so the samples differ by noise."""
    unlike: Unlike = {3: {Metric.THROTTLE_REASONS: HW_THERMAL}}
    (outcome,) = telemetry_outcomes([telemetry(unlike=unlike), telemetry(unlike=unlike, seed=2)])

    assert isinstance(outcome, Found)


def test_the_last_sample_of_an_ended_series_that_is_repeated_contradicts_nothing() -> None:
    """A pod ends, and Prometheus shows its last sample for five more minutes beside the series of the next pod."""
    idle, busy = telemetry(everybody=IDLE), telemetry()
    first = tuple(
        replace(each, utc_s=each.utc_s[:70], values=each.values[:70], pod="a") for each in idle.series
    )
    second = tuple(
        replace(each, utc_s=each.utc_s[52:], values=each.values[52:], pod="b") for each in busy.series
    )
    outcomes = telemetry_outcomes(replace(idle, series=first + second))

    assert not reasons_of(outcomes)


def test_errors_of_several_counters_of_a_link_add_up() -> None:
    """Each alone would be too few."""

    def counters(num: float) -> tuple[GpuSeries, ...]:
        export = telemetry(
            everybody={Metric.NVLINK_ERRORS: growing(0)},
            unlike={2: {Metric.NVLINK_ERRORS: growing(num / (119 * INTERVAL_S))}},
            metrics=(Metric.NVLINK_ERRORS,),
        )
        return tuple(replace(each, name=f"errors of {num:.0f}") for each in export.series)

    plain = telemetry()
    outcomes = telemetry_outcomes(replace(plain, series=plain.series + counters(7) + counters(8)))

    assert "NVLink errors" in only(outcomes).title
    assert not found_in(telemetry_outcomes(replace(plain, series=plain.series + counters(7))))


def test_of_several_counters_of_heat_the_larger_counts() -> None:
    """Hardware and software hold the clock back at the same time."""

    def counters(name: str, share: float) -> tuple[GpuSeries, ...]:
        export = telemetry(
            everybody={Metric.THERMAL_VIOLATION: growing(0)},
            unlike={2: {Metric.THERMAL_VIOLATION: growing(share * 1e9)}},
            metrics=(Metric.THERMAL_VIOLATION,),
        )
        return tuple(replace(each, name=name) for each in export.series)

    plain = telemetry()
    both = plain.series + counters("hardware", 0.6) + counters("software", 0.7)
    found = only(telemetry_outcomes(replace(plain, series=both)))

    assert found.title == "GPU 2 of host-a is held back by heat in 70% of the time"


def cut(export: Telemetry, gpus: Sequence[int], end: int) -> Telemetry:
    parts = (
        replace(each, utc_s=each.utc_s[:end], values=each.values[:end]) if each.gpu.index in gpus else each
        for each in export.series
    )
    return replace(export, series=tuple(parts))


def test_a_gpu_whose_samples_stop_is_a_lead_and_not_called_alike() -> None:
    outcomes = telemetry_outcomes(cut(telemetry(), [5], 40))

    found = only(outcomes)
    assert found.title == "GPU 5 of host-a: samples stop, those of the others go on"
    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)
    assert any(
        "last sample at 2023-11-14" in each.text and "go on for 2" in each.text for each in found.evidence
    )
    assert "GPU 5 of host-a: samples in less than half" in reasons_of(outcomes)


def test_a_host_that_is_lost_is_one_lead() -> None:
    whole = telemetry(40)
    lost = tuple(
        replace(each, utc_s=each.utc_s[:60], values=each.values[:60]) if each.gpu.host == "host-c" else each
        for each in whole.series
    )
    found = only(telemetry_outcomes(replace(whole, series=lost)))

    assert found.title.startswith("GPUs 0-7 of host-c: samples stop")
    assert found.scope.hosts == ("host-c",)


def test_samples_that_stop_for_most_gpus_or_at_the_very_end_are_silent() -> None:
    for export in (cut(telemetry(), [5], 112), cut(telemetry(), range(4), 60)):
        assert not found_in(telemetry_outcomes(export))


def test_gpus_with_few_samples_are_not_counted_as_alike() -> None:
    whole = telemetry()
    sparse = tuple(
        replace(each, utc_s=each.utc_s[::8], values=each.values[::8]) if each.gpu.index == 5 else each
        for each in whole.series
    )
    outcomes = telemetry_outcomes(replace(whole, series=sparse))

    assert "GPU 5 of host-a: samples in less than half" in reasons_of(outcomes)
    (passed,) = [each for each in outcomes if isinstance(each, Passed)]
    assert "7 NVIDIA H100" in passed.detail


def test_without_clocks_and_reasons_their_lack_is_told() -> None:
    outcomes = telemetry_outcomes(telemetry(metrics=(Metric.POWER, Metric.UTILISATION)))

    assert "neither SM clocks nor throttle reasons" in reasons_of(outcomes)


def test_broken_samples_are_left_out_and_counted() -> None:
    def broken(times: np.ndarray) -> np.ndarray:
        values = np.full(len(times), 1755.0)
        values[::7] = [np.nan, np.inf, -5, 0, 1e308, 2.0**63][:1] * len(values[::7])
        values[3::7] = 2.0**63
        return values

    (outcome,) = telemetry_outcomes(telemetry(unlike={3: {Metric.SM_CLOCK: broken}}))

    assert isinstance(outcome, Passed)
    assert "broken samples were left out" in outcome.detail


def test_hosts_of_an_absurd_span_of_time_are_read_in_bounded_memory() -> None:
    whole = telemetry()
    first = whole.series[0]
    far = replace(first, utc_s=np.append(first.utc_s, 1e15), values=np.append(first.values, 1755.0))
    outcomes = telemetry_outcomes(replace(whole, series=(far, *whole.series[1:])))

    assert not found_in(outcomes)


# --- around a time --------------------------------------------------------------------------------------------

MIDDLE_S = BEGIN_S + INTERVAL_S * 60


def test_a_clock_that_fell_at_that_time_is_set_beside_before() -> None:
    unlike: Unlike = {3: {Metric.SM_CLOCK: from_time(MIDDLE_S, 1755, 1100)}}
    found = only(telemetry_outcomes(telemetry(unlike=unlike), around_s=MIDDLE_S))

    assert gpus_named(found) == [("host-a", 3)]
    assert any(
        "was 100% of the others' before that time and is 63% after it" in each.text for each in found.evidence
    )


def test_a_clock_that_was_low_all_along_is_said_so() -> None:
    found = only(telemetry_outcomes(telemetry(unlike={3: {Metric.SM_CLOCK: 1100}}), around_s=MIDDLE_S))

    assert any("no different beside the others before" in each.text for each in found.evidence)


def test_what_was_over_before_that_time_is_silent() -> None:
    unlike: Unlike = {3: {Metric.SM_CLOCK: from_time(MIDDLE_S, 1100, 1755)}}

    assert not found_in(telemetry_outcomes(telemetry(unlike=unlike), around_s=MIDDLE_S))


def test_clocks_of_all_that_fell_at_that_time_are_the_jobs() -> None:
    found = only(
        telemetry_outcomes(
            telemetry(everybody={Metric.SM_CLOCK: from_time(MIDDLE_S, 1755, 1300)}), around_s=MIDDLE_S
        )
    )

    assert found.title.startswith("SM clocks of all GPUs fell from 175")
    assert found.severity is Severity.INFO
    assert found.scope.gpus == ()


def test_a_time_outside_the_recording_is_not_seen() -> None:
    (outcome,) = telemetry_outcomes(telemetry(), around_s=BEGIN_S - 86_400)

    assert isinstance(outcome, NotSeen)


# --- for all --------------------------------------------------------------------------------------------------


def test_findings_hold_the_promises_of_a_report() -> None:
    cases: list[Unlike] = [
        {3: {Metric.THROTTLE_REASONS: HW_THERMAL}},
        {3: {Metric.THROTTLE_REASONS: SYNC_BOOST}},
        {3: {Metric.SM_CLOCK: 900, Metric.POWER: 300}},
        {3: IDLE},
        {3: {Metric.POWER: 300, Metric.SM_ACTIVE: 0.2}},
        {3: {Metric.TEMPERATURE: 90}},
    ]
    for unlike in cases:
        finding = finding_of(CHECK_ID, only(telemetry_outcomes(telemetry(unlike=unlike))))
        assert finding.severity is not Severity.CRITICAL
        assert len(finding.title) <= 80
        assert finding.actions
        assert all(each.source for each in finding.evidence)
        assert "host-a" not in finding.fingerprint


def test_a_counter_that_was_reset_counts_on() -> None:
    times = np.arange(5.0)

    assert growth(times, np.asarray([100.0, 110.0, 0.0, 5.0, 7.0])) == (17.0, 4.0)
    assert growth(times[:1], np.asarray([3.0])) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ([5e6, 5e6, 0, 5e6, 5e6], 0.0),
        ([5e6, 5e6, 0, 0, 0, 5e6 + 4], 4.0),
        ([7, 7, 5e6, 7, 8], 1.0),
        # A reset stays low, and what follows counts.
        ([5e6, 0, 0, 0, 0, 5e6], 5e6),
        ([5e6, 0, 3, 9, 9], 9.0),
        ([3, 0], 0.0),
    ],
)
def test_a_counter_that_was_misread_did_not_grow(values: list[float], grown: float) -> None:
    assert growth(np.arange(float(len(values))), np.asarray(values)) == (grown, len(values) - 1.0)


def test_an_error_counter_that_reads_zero_once_is_silent() -> None:
    def dips(times: np.ndarray) -> np.ndarray:
        values = np.full(len(times), 5e6)
        values[60] = 0
        return values

    everybody: Mapping[Metric, Values] = {Metric.NVLINK_ERRORS: 5e6}
    unlike: Unlike = {3: {Metric.NVLINK_ERRORS: dips}}

    assert not found_in(telemetry_outcomes(telemetry(everybody=everybody, unlike=unlike)))


@given(st.data())
@pytest.mark.once
def test_whatever_was_exported_ends_in_outcomes(data: st.DataObject) -> None:
    number = st.floats(width=64) | st.sampled_from((0.0, 1.0, 100.0, 64.0, 1755.0, -1.0, 2.0**63))
    series = data.draw(
        st.lists(
            st.builds(
                lambda metric, index, names, pairs: GpuSeries(
                    metric=metric,
                    gpu=GpuRef(host=None if index == 5 else "h", index=None if index > 3 else index),
                    utc_s=np.asarray([time for time, _ in pairs], np.float64),
                    values=np.asarray([value for _, value in pairs], np.float64),
                    job=names[0],
                    pod=names[1],
                    name=names[2],
                ),
                st.sampled_from(list(Metric)),
                st.integers(0, 5),
                st.tuples(
                    st.sampled_from((None, "a")),
                    st.sampled_from((None, "a-0", "a-1", "b-0")),
                    st.sampled_from("xy"),
                ),
                st.lists(st.tuples(st.floats(0, 1e4) | number, number), max_size=40),
            ),
            max_size=30,
        )
    )
    around_s = data.draw(st.none() | st.floats(0, 1e4))

    outcomes = telemetry_outcomes(Telemetry(source="x", path="x", series=tuple(series)), around_s=around_s)
    assert outcomes
    assert all(each.severity is not Severity.CRITICAL for each in found_in(outcomes))

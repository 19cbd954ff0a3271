"""Bandwidth that falls where messages grow."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.nccl_bench.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.nccl_bench.checks.cliff import check_cliff
from distdoctor.nccl_bench.facts.rows import Row
from distdoctor.report.model import Confidence, Severity, SkipCause
from distdoctor.units import KIB, MIB
from nccl_bench.bench_builders import live, places, row, table


def curve(bandwidths: list[float], start: int = 4 * MIB, **fields: object) -> tuple[Row, ...]:
    return tuple(
        row(start << index, busbw=busbw, **fields)  # type: ignore[arg-type]
        for index, busbw in enumerate(bandwidths)
    )


def test_a_fall_that_stays_is_a_warning_with_both_sizes() -> None:
    (found,) = check_cliff(table(curve([15, 24, 29, 29.5, 5.3, 5.2])))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert found.title == "all_reduce: 82% less bandwidth above 32 MiB"
    assert "29.5 GB/s at 32 MiB, 5.3 GB/s at 64 MiB" in found.evidence[0].text
    assert found.confidence is Confidence.MEDIUM


def test_repeats_that_agree_make_it_sure() -> None:
    rows = [replace(each, repeats_us=(each.time_us,) * 3) for each in curve([15, 24, 29, 29.5, 5.3, 5.2])]
    (found,) = check_cliff(live(rows))
    assert isinstance(found, Found)
    assert found.confidence is Confidence.HIGH


def test_a_fall_of_one_half_of_the_table_is_no_cliff() -> None:
    out_of_place = curve([225, 230, 233, 235], in_place=False)
    in_place = curve([225, 230, 164, 235], in_place=True)
    assert isinstance(check_cliff(table((*out_of_place, *in_place)))[0], Passed)


def test_a_dip_that_comes_back_is_to_know() -> None:
    (found,) = check_cliff(table(curve([1.4, 1.0, 6.0, 19.0], start=128 * KIB)))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO


def test_a_deep_dip_of_large_messages_is_a_warning_surer_when_it_is_wide() -> None:
    narrow, wide, shallow = [30, 32, 19, 31, 42], [30, 32, 19, 24, 42], [30, 32, 24, 31, 42]
    for bandwidths, severity, confidence in (
        (narrow, Severity.WARNING, Confidence.LOW),
        (wide, Severity.WARNING, Confidence.MEDIUM),
        (shallow, Severity.INFO, Confidence.MEDIUM),
    ):
        (outcome,) = check_cliff(table(curve([float(each) for each in bandwidths], start=16 * MIB)))
        assert isinstance(outcome, Found)
        assert (outcome.severity, outcome.confidence) == (severity, confidence)


def test_a_fall_among_small_sizes_is_to_know() -> None:
    (found,) = check_cliff(table(curve([1.4, 1.0], start=128 * KIB)))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO


def test_a_fall_by_chance_is_inconclusive() -> None:
    rows = list(curve([15, 24, 29, 20]))
    last = rows[-1]
    rows[-1] = replace(last, repeats_us=(last.time_us * 0.7, last.time_us, last.time_us * 1.4))
    (outcome,) = check_cliff(live(rows))
    assert isinstance(outcome, NotSeen)
    assert outcome.unread.cause is SkipCause.NOISY


def test_a_deep_fall_is_seen_through_noise() -> None:
    rows = list(curve([15, 24, 29, 3]))
    last = rows[-1]
    rows[-1] = replace(last, repeats_us=(last.time_us * 0.7, last.time_us, last.time_us * 1.4))
    assert isinstance(check_cliff(live(rows))[0], Found)


def test_a_curve_that_still_rises_says_that_its_top_is_a_lower_bound() -> None:
    (outcome,) = check_cliff(table(curve([10, 18, 30, 45])))
    assert isinstance(outcome, Passed)
    assert "still rising at 32 MiB" in outcome.detail


def test_gloo_and_single_sizes_are_not_judged() -> None:
    gloo = live(curve([2, 1]), backend="gloo", places=places(8, gpu_model=None))
    assert isinstance(check_cliff(gloo)[0], NotApplicable)
    assert isinstance(check_cliff(table(curve([2])))[0], NotSeen)
    assert isinstance(check_cliff(table(()))[0], NotSeen)

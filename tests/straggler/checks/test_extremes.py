"""Timers of the least and the most of all ranks: what they may clear, what they may tell, and when nothing follows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.base import Found, Passed
from distdoctor.straggler.checks.extremes import CHECK as EXTREMES
from distdoctor.straggler.checks.extremes import all_close
from distdoctor.straggler.facts.series import Extremes, JobSeries, SeriesKind
from straggler.checks.outcomes import run
from straggler.worlds import facts_of


def timer(
    name: str,
    low: float,
    high: float | list[float],
    *,
    num: int = 100,
    worst: int | list[int] | None = None,
    path: str = "train.log",
    unit: str = "ms",
) -> Extremes:
    """`num` reports; a list of most values, or of ranks that had them, is repeated."""
    return Extremes(
        name=name,
        source="Megatron-LM",
        path=path,
        unit=unit,
        steps=np.arange(1, num + 1),
        low=np.full(num, low),
        high=np.resize(np.array(high, dtype=np.float64), num),
        high_rank=None if worst is None else np.resize(np.array(worst, dtype=np.int32), num),
    )


def told(facts: Analysed) -> list[str]:
    """Titles of what is found."""
    return [each.title for each in run(EXTREMES, facts) if isinstance(each, Found)]


@pytest.mark.parametrize("name", ["forward-backward", "Forward Backward", "forward_backward"])
def test_a_timer_of_the_whole_schedule_clears_nobody(name: str) -> None:
    """A rank that waits for another stage or for a slow peer spends the same time between its ends."""
    level_1 = [timer(name, 985, 990), timer("all-grads-sync", 20, 21), timer("optimizer", 30, 31)]
    assert all_close(level_1) is None


def test_timers_of_single_passes_beside_it_do() -> None:
    level_2 = [timer("forward-backward", 985, 990), timer("forward-compute", 300, 303)]
    assert all_close([*level_2, timer("backward-compute", 600, 603)]) == pytest.approx(0.01)


def test_passes_in_which_all_ranks_wait_clear_nobody() -> None:
    forward = timer("forward-compute", 300, 303)
    assert all_close([replace(forward, holds_waiting=True)]) is None
    assert all_close([forward, timer("backward-compute", 600, 603)]) == pytest.approx(0.01)


def iterations(time_ms: float, *, path: str = "train.log") -> JobSeries:
    return JobSeries(
        name="elapsed time per iteration",
        kind=SeriesKind.TIME,
        unit="ms",
        source="Megatron-LM log",
        path=path,
        steps=np.arange(1, 101),
        values=np.full(100, time_ms),
    )


@pytest.mark.parametrize(
    ("low", "high", "longest"),
    [(0.5, 0.6, iterations(1000.0)), (14.0, 35.0, timer("round trip", 3453, 3468))],
    ids=["of the iteration", "of the longest timer"],
)
def test_a_difference_without_weight_accuses_nobody(
    low: float, high: float, longest: JobSeries | Extremes
) -> None:
    light = timer("get_batch", low, high, worst=3)
    facts = (
        facts_of(extremes=(light,), series=(longest,))
        if isinstance(longest, JobSeries)
        else facts_of(extremes=(longest, light))
    )
    outcomes = run(EXTREMES, facts)
    assert all(isinstance(each, Passed) for each in outcomes)
    (detail,) = [each.detail for each in outcomes if isinstance(each, Passed) and "get_batch" in each.detail]
    assert "of the longest time in the log" in detail


def test_the_same_difference_is_told_where_iterations_are_short_or_of_another_log() -> None:
    light = timer("get_batch", 0.5, 0.6, worst=3)
    for longest in (iterations(5.0), iterations(1000.0, path="other.log")):
        assert told(facts_of(extremes=(light,), series=(longest,))) == [
            "rank 3 takes 20 % more get_batch than the fastest one"
        ]


def test_a_checkpoint_weighs_nothing_down() -> None:
    timers = (timer("save-checkpoint", 50_000, 60_000, num=1), timer("forward-compute", 100, 130))
    assert "some rank takes 30 % more forward-compute than the fastest one" in told(facts_of(extremes=timers))


def now_and_then(least: float, most: float, *, every: int, num: int = 100) -> list[float]:
    return [most if number % every == 0 else least for number in range(1, num + 1)]


@pytest.mark.parametrize(
    "most",
    [now_and_then(303, 480, every=4), [303.0] * 60 + [420.0] * 40, [420.0] * 50 + [303.0] * 50],
    ids=["every fourth report", "since the 61st", "up to the 50th"],
)
def test_ranks_that_are_far_apart_in_a_part_of_the_reports_are_not_close(most: list[float]) -> None:
    assert all_close([timer("forward-compute", 300, most)]) is None


@pytest.mark.parametrize(
    "most",
    [[900.0, 600.0] + [303.0] * 98, now_and_then(303, 480, every=40)],
    ids=["warm-up", "two reports of a hundred"],
)
def test_the_first_reports_and_single_ones_do_not_matter(most: list[float]) -> None:
    close = timer("forward-compute", 300, most)
    assert all_close([close]) == pytest.approx(0.01)
    assert not told(facts_of(extremes=(close,)))


def test_what_is_so_in_a_part_of_the_reports_is_told_with_their_number() -> None:
    each = timer("forward-compute", 300, [303.0] * 60 + [420.0] * 40)
    (found,) = [one for one in run(EXTREMES, facts_of(extremes=(each,))) if isinstance(one, Found)]
    assert found.title == "some rank takes 40 % more forward-compute in 40 of 98 reports"
    assert any("first at step 61, the last at 100" in line.text for line in found.evidence)
    assert any("in the others 1.0 % apart" in line.text for line in found.evidence)


def test_a_rank_is_named_by_the_reports_in_which_ranks_are_far_apart() -> None:
    most = now_and_then(303, 480, every=4)
    always_other = [number % 7 for number in range(100)]
    the_same = [5 if value > 400 else other for value, other in zip(most, always_other, strict=True)]
    assert told(facts_of(extremes=(timer("round trip", 300, most, worst=the_same),))) == [
        "rank 5 takes 60 % more round trip in 25 of 98 reports"
    ]
    assert told(facts_of(extremes=(timer("round trip", 300, most, worst=always_other),))) == [
        "some rank takes 60 % more round trip in 25 of 98 reports"
    ]


@pytest.mark.parametrize(
    ("other", "is_clear"),
    [
        (timer("optimizer-inner-step", 20, 300), False),
        (timer("batch-generator", 5, 400), False),
        (timer("forward-backward", 800, 990), False),
        (timer("optimizer-inner-step", 20, now_and_then(21, 300, every=4)), False),
        (timer("optimizer-inner-step", 20, 21), True),
        (timer("optimizer-copy-to-main-grad", 0.1, 0.9), True),
        (timer("all-grads-sync", 20, 300), True),
        (timer("forward-recv", 20, 300), True),
        (timer("save-checkpoint", 20, 30_000, num=1), True),
    ],
    ids=lambda value: value.name if isinstance(value, Extremes) else str(value),
)
def test_work_of_weight_that_is_far_apart_clears_nobody(other: Extremes, is_clear: bool) -> None:
    passes = [timer("forward-compute", 300, 303), timer("backward-compute", 500, 505)]
    assert (all_close([*passes, other]) is not None) is is_clear


def test_a_ratio_that_says_little_gives_way_to_the_two_times() -> None:
    assert told(facts_of(extremes=(timer("get_batch", 0.2, 40, worst=0),), series=(iterations(1000),))) == [
        "rank 0 takes 40.0 ms get_batch where the fastest takes 0.2 ms"
    ]
    assert told(facts_of(extremes=(timer("get_batch", 0.0, 40),))) == [
        "some rank takes 40.0 ms get_batch where the fastest takes 0 ms"
    ]

"""Timers of the least and the most of all ranks: what they may clear, what they may tell, and when nothing follows."""

from __future__ import annotations

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

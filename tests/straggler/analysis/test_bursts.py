"""Slow now and then: more often than the others, and in what rhythm."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.straggler.analysis.ranks.bursts import MIN_ONSETS, bursting_rows, count_bursts, rhythm_of


def excess(num_ranks: int = 8, num_steps: int = 200, *, noise: float = 0.01, seed: int = 1) -> np.ndarray:
    return (noise * np.random.default_rng(seed).standard_normal((num_ranks, num_steps))).astype(np.float32)


def bursting(rows: np.ndarray, noise: float = 0.01) -> list[int]:
    return [
        int(row) for row in bursting_rows(count_bursts(rows, noise), rows.shape[1], rank_error=0.0002 / 8)
    ]


def test_neighbouring_steps_are_one_burst() -> None:
    rows = np.zeros((2, 20), dtype=np.float32)
    rows[0, [0, 1, 2, 9, 15, 16]] = 0.5
    bursts = count_bursts(rows, 0.01)
    assert bursts.onsets.tolist() == [3, 0]
    assert bursts.steps.tolist() == [6, 0]


def test_what_counts_as_slow_grows_with_noise() -> None:
    rows = excess()
    assert count_bursts(rows, 0.01).limit == pytest.approx(0.10)
    assert count_bursts(rows, 0.05).limit == pytest.approx(0.25)


def test_a_rank_that_bursts_is_found_and_no_other() -> None:
    rows = excess()
    rows[5, 7::20] += 0.5
    assert bursting(rows) == [5]


@pytest.mark.parametrize("seed", range(20))
def test_nobody_bursts_in_a_healthy_job(seed: int) -> None:
    assert bursting(excess(64, 200, noise=0.03, seed=seed), 0.03) == []


@pytest.mark.parametrize("num", range(MIN_ONSETS))
def test_some_bursts_may_be_chance(num: int) -> None:
    rows = excess()
    rows[2, np.arange(num) * 40] += 0.5
    assert bursting(rows) == []


def test_bursts_that_all_ranks_have_accuse_nobody() -> None:
    rng = np.random.default_rng(4)
    rows = excess(16)
    for row in rows:
        row[rng.choice(200, 12, replace=False)] += 0.5
    assert bursting(rows) == []


def test_steps_that_were_not_measured_are_no_bursts() -> None:
    rows = excess()
    rows[3] = np.nan
    assert count_bursts(rows, 0.01).onsets[3] == 0
    assert bursting(rows) == []


@given(st.integers(2, 50), st.integers(0, 20), st.integers(4, 12))
def test_events_every_k_steps_have_the_period_k(period: int, first: int, num: int) -> None:
    columns = first + period * np.arange(num)
    rhythm = rhythm_of(columns, num_steps=max(int(columns[-1]) + 1, 3 * period))
    assert rhythm is not None
    assert (rhythm.period, rhythm.share) == (period, 1.0)


def test_a_burst_of_several_steps_has_one_beginning() -> None:
    columns = np.concatenate([start + np.arange(3) for start in range(0, 200, 20)])
    rhythm = rhythm_of(columns, 200)
    assert rhythm is not None
    assert rhythm.period == 20


def test_a_missed_burst_keeps_the_rhythm() -> None:
    rhythm = rhythm_of(np.array([0, 10, 20, 40, 50, 60, 70]), 100)
    assert rhythm is not None
    assert rhythm.period == 10


@pytest.mark.parametrize(
    "columns",
    [[], [5], [10, 20, 30], [3, 17, 22, 58, 61, 90], [0, 81, 162, 240]],
    ids=["none", "one", "three", "no order", "longer than a third of the run"],
)
def test_events_without_an_order_have_no_rhythm(columns: list[int]) -> None:
    assert rhythm_of(np.array(columns, dtype=np.intp), 241) is None


def test_every_step_is_no_rhythm() -> None:
    assert rhythm_of(np.arange(50), 50) is None

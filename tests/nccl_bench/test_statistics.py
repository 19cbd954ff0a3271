"""Medians, nearest-rank percentiles, spread, two modes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.nccl_bench.analysis.statistics import (
    max_over_min,
    median,
    percentile,
    relative_spread,
    two_clusters,
)

POSITIVE = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=50)


@pytest.mark.parametrize(("values", "answer"), [([3], 3), ([1, 9], 5), ([5, 1, 3], 3)])
def test_median(values: list[float], answer: float) -> None:
    assert median(values) == answer


def test_no_values_have_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_p99_of_fewer_than_a_hundred_is_the_largest_as_in_nccl_tests() -> None:
    assert percentile([float(value) for value in range(1, 100)], 99) == 99
    assert percentile([float(value) for value in range(1, 201)], 99) == 198


@given(POSITIVE, st.floats(1, 100))
def test_a_percentile_is_one_of_the_values(values: list[float], percent: float) -> None:
    assert percentile(values, percent) in values


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_a_percentile_outside_its_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile([1.0], percent)


def test_spread_of_one_repeat_is_not_known() -> None:
    assert relative_spread([5.0]) is None
    assert max_over_min([5.0]) is None
    assert max_over_min([0.0, 5.0]) is None


def test_spread() -> None:
    assert relative_spread([90, 100, 110]) == pytest.approx(0.2)
    assert max_over_min([90, 100, 180]) == pytest.approx(2)


def test_two_modes_are_told_apart() -> None:
    clusters = two_clusters([2.11, 4.61, 2.08])
    assert clusters is not None
    assert clusters.low == (2.08, 2.11)
    assert clusters.ratio == pytest.approx(2.2, abs=0.01)


@pytest.mark.parametrize("repeats", [[2.0, 4.0], [1.0, 1.1, 1.2], [1.0, 1.5, 2.2, 3.1], [0.0, 1.0, 2.0]])
def test_one_mode_a_smear_or_too_few_are_not_two_modes(repeats: list[float]) -> None:
    assert two_clusters(repeats) is None

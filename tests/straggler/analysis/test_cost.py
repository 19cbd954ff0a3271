"""What slow ranks cost, against sums made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.straggler.analysis.ranks.cost import cost_of


def times(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_one_slow_rank_costs_what_it_is_above_the_next_slowest() -> None:
    # Steps last 120 ms; without it 105 ms, the slowest of the others: 15 of 120 are gained.
    cost = cost_of({3: times(120, 120)}, {3: times(100, 100)}, times(105, 105), step_ms=120.0)
    assert cost.alone[3] == pytest.approx(15 / 120)
    assert cost.together == pytest.approx(15 / 120)
    assert cost.step_is_measured


def test_of_two_slow_ranks_each_alone_gains_only_down_to_the_other() -> None:
    cost = cost_of({1: times(150), 2: times(130)}, {1: times(100), 2: times(100)}, times(101), step_ms=200.0)
    assert cost.alone == {1: pytest.approx(20 / 200), 2: pytest.approx(0)}
    assert cost.together == pytest.approx(49 / 200)


def test_a_rank_that_is_slow_in_half_of_the_steps_costs_half() -> None:
    cost = cost_of({0: times(140, 100)}, {0: times(100, 100)}, times(100, 100), step_ms=200.0)
    assert cost.alone[0] == pytest.approx(20 / 200)


def test_without_a_measured_step_the_slowest_rank_stands_for_it() -> None:
    cost = cost_of({0: times(125)}, {0: times(100)}, times(100), step_ms=None)
    assert (cost.step_ms, cost.step_is_measured) == (125, False)
    assert cost.together == pytest.approx(0.2)


def test_a_rank_behind_a_slower_one_costs_nothing() -> None:
    cost = cost_of({0: times(110)}, {0: times(100)}, times(150), step_ms=160.0)
    assert (cost.alone[0], cost.together) == (0.0, 0.0)


def test_steps_without_values_are_left_out() -> None:
    cost = cost_of({0: times(120, np.nan)}, {0: times(100, 100)}, times(100, 100), step_ms=120.0)
    assert cost.alone[0] == pytest.approx(20 / 120)
    nothing = cost_of({0: times(np.nan)}, {0: times(np.nan)}, times(np.nan), step_ms=None)
    assert nothing.together == 0


ms = st.floats(1, 1000, width=32)


@given(st.lists(st.tuples(ms, ms, ms), min_size=1, max_size=8), ms)
def test_nobody_alone_gains_more_than_all_together_and_nobody_more_than_everything(
    rows: list[tuple[float, float, float]], step_ms: float
) -> None:
    first, second, other = (times(*column) for column in zip(*rows, strict=True))
    cost = cost_of(
        {0: first, 1: second},
        {0: np.minimum(first, other), 1: np.minimum(second, other)},
        other,
        step_ms=step_ms,
    )
    assert 0 <= max(cost.alone.values()) <= cost.together + 1e-6 <= 1 + 1e-5

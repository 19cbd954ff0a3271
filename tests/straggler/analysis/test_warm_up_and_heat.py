"""Steps left out at the start, and the excess made small enough for a picture."""

from __future__ import annotations

import numpy as np
import pytest

from distdoctor.straggler.analysis.ranks.first_steps import num_warm_up
from distdoctor.straggler.analysis.ranks.heat import MAX_COLUMNS, MAX_ROWS, heat_of


def own(num_steps: int, *starts: float) -> np.ndarray:
    times = np.full((8, num_steps), 100.0, dtype=np.float32)
    times[:, : len(starts)] = starts
    return times


@pytest.mark.parametrize(
    ("times", "num"),
    [
        (own(19, 900.0), 0),
        (own(20), 1),
        (own(100, 900.0, 300.0, 130.0), 3),
        (own(100, 900.0, 100.0, 900.0), 1),
        (own(100, *(900.0,) * 30), 10),
        (own(1000, *(900.0,) * 300), 100),
        (own(40, *(900.0,) * 10), 4),
    ],
    ids=["short", "even", "three", "settled", "at most ten", "at most a tenth", "of forty"],
)
def test_slow_steps_at_the_start_are_left_out_within_bounds(times: np.ndarray, num: int) -> None:
    assert num_warm_up(times) == num


def test_one_slow_rank_is_no_warm_up() -> None:
    times = own(100)
    times[3, :20] = 900
    assert num_warm_up(times) == 1


@pytest.mark.filterwarnings("error")
def test_steps_that_nobody_measured_at_the_start_are_left_out() -> None:
    times = own(100)
    times[:, :4] = np.nan
    assert num_warm_up(times) == 4
    assert num_warm_up(np.full_like(times, np.nan)) == 10


def test_a_small_job_is_shown_as_it_is() -> None:
    excess = np.arange(12, dtype=np.float32).reshape(4, 3)
    heat, rows, edges = heat_of(excess, [])
    np.testing.assert_array_equal(heat, excess)
    assert (rows, edges) == ((0, 1, 2, 3), (0, 1, 2, 3))


def test_a_large_one_keeps_its_suspects_and_medians_over_stretches() -> None:
    excess = np.zeros((500, 1000), dtype=np.float32)
    excess[321] = 0.5
    heat, rows, edges = heat_of(excess, [321])
    assert heat.shape[0] == len(rows) <= MAX_ROWS
    assert heat.shape[1] == len(edges) - 1 == MAX_COLUMNS
    assert (rows[0], rows[-1]) == (0, 499)
    assert heat[rows.index(321)].tolist() == [0.5] * MAX_COLUMNS
    assert edges[0] == 0 and edges[-1] == 1000 and list(edges) == sorted(set(edges))


def test_many_suspects_leave_room_for_others() -> None:
    _, rows, _ = heat_of(np.zeros((500, 10), dtype=np.float32), range(100))
    assert len(rows) <= MAX_ROWS
    assert max(rows) == 499

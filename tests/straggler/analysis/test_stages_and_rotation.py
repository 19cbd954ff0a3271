"""Work that is uneven by design: heavier stages, and a slowest rank that changes with the step."""

from __future__ import annotations

import numpy as np
import pytest

from distdoctor.straggler.analysis.peers import Peers
from distdoctor.straggler.analysis.ranks.rotation import rotation_of
from distdoctor.straggler.analysis.ranks.stages import heavy_groups


def groups(*ms: float, size: int = 4, name: str = "pp", known: bool = True) -> tuple[np.ndarray, Peers]:
    """One group a coordinate with its median time."""
    peers = Peers(
        group_of=np.repeat(np.arange(len(ms)), size).astype(np.int32),
        keys=tuple(((name, number),) for number in range(len(ms))),
        known=known,
    )
    return np.repeat(np.array(ms, dtype=np.float32)[:, None], 10, axis=1), peers


def effect(peers: Peers, value: float = 0.01) -> np.ndarray:
    return np.full(len(peers.group_of), value, dtype=np.float32)


def test_a_heavier_stage_is_told_with_all_of_its_ranks() -> None:
    medians, peers = groups(100, 100, 100, 162)
    (heavy,) = heavy_groups(medians, peers, effect(peers))
    assert (heavy.dimension, heavy.coordinate, heavy.rows) == ("pp", 3, (12, 13, 14, 15))
    assert heavy.heavier == pytest.approx(0.62)
    assert (heavy.own_ms, heavy.typical_ms) == (162, 100)
    assert (heavy.is_first, heavy.is_last) == (False, True)


def test_stages_that_differ_little_are_even() -> None:
    medians, peers = groups(100, 104, 98, 103)
    assert heavy_groups(medians, peers, effect(peers)) == ()


def test_of_two_stages_the_longer_one_is_the_heavier() -> None:
    medians, peers = groups(100, 150)
    (heavy,) = heavy_groups(medians, peers, effect(peers))
    assert (heavy.coordinate, heavy.heavier) == (1, pytest.approx(0.5))


def test_the_heaviest_stage_comes_first() -> None:
    medians, peers = groups(120, 100, 100, 100, 150)
    assert [each.coordinate for each in heavy_groups(medians, peers, effect(peers))] == [4, 0]


def test_one_slow_rank_of_two_does_not_make_its_stage_heavier() -> None:
    medians, peers = groups(100, 100, 100, 115, size=2)
    apart = effect(peers)
    apart[6:] = (0.3, -0.23)
    assert heavy_groups(medians, peers, apart) == ()


def test_of_a_small_part_of_the_step_the_step_is_the_measure() -> None:
    medians, peers = groups(4, 4, 4, 6)
    assert heavy_groups(medians, peers, effect(peers), scale_ms=300.0) == ()
    (heavy,) = heavy_groups(medians, peers, effect(peers), scale_ms=20.0)
    assert heavy.heavier == pytest.approx(0.1)


def test_without_coordinates_no_stage_is_told() -> None:
    medians, peers = groups(100, 200, known=False)
    assert heavy_groups(medians, peers, effect(peers)) == ()


def test_stages_without_times_are_passed_over() -> None:
    medians, peers = groups(100, np.nan, 100, 150)
    (heavy,) = heavy_groups(medians, peers, effect(peers))
    assert heavy.coordinate == 3
    nothing, peers = groups(np.nan, np.nan)
    assert heavy_groups(nothing, peers, effect(peers)) == ()
    still, peers = groups(0, 0)
    assert heavy_groups(still, peers, effect(peers)) == ()


def test_a_slowest_rank_that_changes_is_counted() -> None:
    rng = np.random.default_rng(1)
    excess = np.abs(0.3 * rng.standard_normal((8, 400))).astype(np.float32)
    rotation = rotation_of(excess)
    assert rotation is not None
    assert rotation.num_different == 8
    assert rotation.most_often < 0.2
    assert rotation.excess > 0.3
    assert rotation.correlation is None


def test_one_slow_rank_is_the_slowest_one_most_often() -> None:
    excess = (0.01 * np.random.default_rng(1).standard_normal((8, 100))).astype(np.float32)
    excess[5] += 0.2
    rotation = rotation_of(excess)
    assert rotation is not None
    assert (rotation.num_different, rotation.most_often) == (1, 1.0)


def test_longer_input_makes_forward_and_backward_long_together() -> None:
    rng = np.random.default_rng(1)
    length = rng.lognormal(0, 0.3, (8, 100))
    noise = [1 + 0.02 * rng.standard_normal((8, 100)) for _ in range(2)]
    forward, backward = (length * each for each in noise)
    alike = rotation_of(length, forward, backward)
    apart = rotation_of(length, forward, rng.permuted(backward, axis=1))
    assert alike is not None and alike.correlation is not None and alike.correlation > 0.95
    assert apart is not None and apart.correlation is not None and abs(apart.correlation) < 0.2


def test_a_rank_that_is_slow_in_both_passes_all_the_time_is_no_correlation() -> None:
    rng = np.random.default_rng(1)
    forward, backward = (0.02 * rng.standard_normal((8, 100)) for _ in range(2))
    forward[3] += 0.5
    backward[3] += 0.5
    rotation = rotation_of(forward, forward, backward)
    assert rotation is not None and rotation.correlation is not None
    assert abs(rotation.correlation) < 0.2


def test_where_nothing_was_measured_nothing_rotates() -> None:
    assert rotation_of(np.full((4, 10), np.nan, dtype=np.float32)) is None


@pytest.mark.filterwarnings("error")
def test_ranks_without_values_take_no_part() -> None:
    excess = np.abs(np.random.default_rng(1).standard_normal((4, 40))).astype(np.float32)
    excess[2] = np.nan
    rotation = rotation_of(excess, excess, excess)
    assert rotation is not None and rotation.correlation is not None
    assert rotation.num_different == 3
    assert rotation.correlation == pytest.approx(1)
    nothing = np.full_like(excess, np.nan)
    without = rotation_of(excess, nothing, nothing)
    assert without is not None and without.correlation is None

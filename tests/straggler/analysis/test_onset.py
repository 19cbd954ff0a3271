"""Since which step: changes of level in a noisy series."""

from __future__ import annotations

import numpy as np
import pytest

from distdoctor.straggler.analysis.ranks.effects import effects_of
from distdoctor.straggler.analysis.ranks.onset import MIN_STRETCH, change_point, changed_rows, stretches_of

NOISE = 0.02


def series(num: int = 200, *, seed: int = 1, noise: float = NOISE) -> np.ndarray:
    return (noise * np.random.default_rng(seed).standard_normal(num)).astype(np.float32)


def slower(values: np.ndarray, start: int, end: int | None = None, by: float = 0.2) -> np.ndarray:
    changed = values.copy()
    changed[start:end] += by
    return changed


def changed(rows: np.ndarray, *, row_error: float = 1e-4) -> list[bool]:
    effects = effects_of(rows)
    return changed_rows(
        rows, effects.effect, effects.noise, effects.autocorrelation, row_error=row_error
    ).tolist()


@pytest.mark.parametrize("at", [10, 50, 100, 150, 185])
@pytest.mark.parametrize("seed", range(4))
def test_a_clean_jump_is_found_within_two_steps(at: int, seed: int) -> None:
    found = change_point(slower(series(seed=seed), at), NOISE)
    assert found is not None
    assert abs(found - at) <= 2


@pytest.mark.parametrize("seed", range(30))
def test_a_flat_series_has_no_change(seed: int) -> None:
    values = series(seed=seed)
    assert not any(changed(values[None]))
    assert change_point(values, NOISE) is None


@pytest.mark.parametrize("stall", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_a_stall_of_some_steps_is_no_change(seed: int, stall: int) -> None:
    values = slower(series(seed=seed), 90, 90 + stall, by=50.0)
    assert not any(changed(values[None]))
    assert len(stretches_of(values, NOISE)) == 1


def test_only_the_row_that_changes_is_told() -> None:
    rows = np.stack([series(seed=seed) for seed in range(20)])
    rows[7] = slower(rows[7], 120)
    assert [row for row, is_changed in enumerate(changed(rows)) if is_changed] == [7]


@pytest.mark.parametrize(
    ("start", "end", "num"),
    [(50, 150, 200), (60, 100, 200), (150, 250, 400), (20, 50, 120), (100, 150, 1000)],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_stretch_has_both_of_its_ends(start: int, end: int, num: int, seed: int) -> None:
    values = slower(series(num, seed=seed), start, end)
    pieces = stretches_of(values, NOISE)
    (slow,) = [each for each in pieces if np.median(values[each.start : each.end]) > 0.1]
    assert abs(slow.start - start) <= 2
    assert abs(slow.end - end) <= 2
    assert [each.start for each in pieces[1:]] == [each.end for each in pieces[:-1]]
    assert (pieces[0].start, pieces[-1].end) == (0, num)


def test_a_faster_stretch_is_one_too() -> None:
    pieces = stretches_of(slower(series(400), 150, 250, by=-0.2), NOISE)
    assert [(each.start, each.end) for each in pieces] == [(0, 150), (150, 250), (250, 400)]


def test_a_change_of_one_per_cent_is_not_worth_the_name() -> None:
    assert change_point(slower(series(400, noise=0.0005), 200, by=0.009), 0.0005) is None


@pytest.mark.parametrize("num", [0, 1, 2 * MIN_STRETCH - 1])
def test_short_series_have_no_change(num: int) -> None:
    values = slower(series(num), num // 2, by=3.0)
    assert change_point(values, NOISE) is None
    assert [each.length for each in stretches_of(values, NOISE)] == [num]
    assert changed_rows(values[None], *(np.zeros(1, dtype=np.float32),) * 3, row_error=0.01).tolist() == [
        False
    ]


def test_steps_that_were_not_measured_are_passed_over() -> None:
    values = slower(series(), 100)
    values[::4] = np.nan
    found = change_point(values, NOISE)
    assert found is not None
    assert abs(found - 100) <= 3


def test_a_row_without_values_has_no_change() -> None:
    nothing = np.full(60, np.nan, dtype=np.float32)
    assert change_point(nothing, NOISE) is None
    assert len(stretches_of(nothing, NOISE)) == 1

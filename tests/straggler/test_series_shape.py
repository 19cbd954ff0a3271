"""What a series of step times shows: warm-up, levels, drift, stalls, rhythms; and what flat ones do not show."""

from __future__ import annotations

import time

import numpy as np
import pytest

from distdoctor.straggler.analysis.series.first_values import num_warm_up
from distdoctor.straggler.analysis.series.regimes import rounding_of, shape_of
from straggler.step_series import flat, series, shape, slower, steady

# Apart from the seeds that thresholds were chosen on (0 to 99).
FROM_SEED = 5000


@pytest.mark.parametrize("sigma", [0.005, 0.02, 0.05])
@pytest.mark.parametrize(("num", "onset"), [(1000, 600), (5000, 3000)])
@pytest.mark.parametrize("by", [0.10, 0.30])
def test_a_lasting_slowdown_is_found_within_ten_steps(sigma: float, num: int, onset: int, by: float) -> None:
    errors = []
    for seed in range(FROM_SEED, FROM_SEED + 10):
        (spell,) = shape(slower(flat(seed, num, sigma=sigma), by, onset)).spells
        assert spell.end is None
        assert spell.ratio == pytest.approx(1 + by, abs=0.03)
        errors.append(abs(spell.start - onset))
    assert np.mean(np.array(errors) <= 10) >= 0.9


def test_a_slow_stretch_has_an_end() -> None:
    (spell,) = shape(slower(flat(FROM_SEED, 5000), 0.15, 2000, 2200)).spells
    assert abs(spell.start - 2000) <= 3
    assert spell.end is not None
    assert abs(spell.end - 2200) <= 3
    assert spell.ratio == pytest.approx(1.15, abs=0.02)


def test_a_slow_stretch_between_two_levels_of_one_spell_is_one_spell() -> None:
    times = slower(slower(flat(FROM_SEED, 3000), 0.2, 1000), 0.2, 2000)
    (spell,) = shape(times).spells
    assert abs(spell.start - 1000) <= 3
    assert spell.end is None


@pytest.mark.parametrize("num", [20, 30, 50, 100, 200])
@pytest.mark.parametrize("sigma", [0.02, 0.05])
def test_short_flat_series_have_no_changes(num: int, sigma: float) -> None:
    """The benchmark counts more of them: fewer than one in 200."""
    shapes = [shape(flat(seed, num, sigma=sigma)) for seed in range(FROM_SEED, FROM_SEED + 200)]
    assert sum(bool(each.spells) or any(level.drift > 1.03 for level in each.levels) for each in shapes) <= 1
    assert not any(each.schedule or each.rhythm for each in shapes)


@pytest.mark.parametrize("num", [1000, 5000])
@pytest.mark.parametrize("sigma", [0.02, 0.05])
def test_long_flat_series_have_no_changes(num: int, sigma: float) -> None:
    shapes = [shape(flat(seed, num, sigma=sigma)) for seed in range(FROM_SEED, FROM_SEED + 30)]
    assert not any(each.spells or each.schedule for each in shapes)


def test_a_swing_of_two_per_cent_over_the_day_is_not_told() -> None:
    day = 1 + 0.01 * np.sin(np.linspace(0, 4 * np.pi, 4000))
    found = shape(flat(FROM_SEED, 4000, sigma=0.005) * day)
    assert not found.spells
    assert all(abs(level.drift - 1) < 0.03 for level in found.levels)


def test_slow_growth_is_a_drift_and_no_jump() -> None:
    found = shape(flat(FROM_SEED, 2000) * np.linspace(1, 1.2, 2000))
    (level,) = found.levels
    assert level.drift == pytest.approx(1.18, abs=0.02)
    assert not found.spells


def test_first_slow_steps_are_warmup() -> None:
    times = flat(FROM_SEED, 300)
    times[:3] *= [30.0, 2.0, 1.4]
    found = shape(times)
    assert found.num_warm_up == 3
    assert found.warmup_ratio == pytest.approx(30, rel=0.15)
    assert not found.stalls
    assert not found.spells


def test_a_first_step_that_is_too_short_among_slow_ones_is_warmup_too() -> None:
    """A clock that is read before the device is done: 97, 22, 36 ms and then 60."""
    assert num_warm_up(np.log([97.0, 22.0, 36.0, *[60.0] * 40])) == 3


def test_a_fast_start_is_no_warmup() -> None:
    """A running mean that grows from the start."""
    assert num_warm_up(np.log(np.linspace(180, 220, 100))) == 0


def test_a_slow_start_in_noise_is_told_by_its_separation() -> None:
    values = [169, 168, 170, 168, 194, 198, 186, 197, 185, 196, 198, 190]
    assert shape(1e6 / np.array(values, dtype=float)).num_warm_up == 4


def test_a_stall_is_no_change_of_level() -> None:
    times = np.rint(steady(FROM_SEED, 2000, sigma=0.008, level=60))
    times[511] = 870
    found = shape(times)
    (stall,) = found.stalls
    assert (stall.index, found.quantum, found.spells) == (511, 1.0, ())
    assert stall.factor == pytest.approx(14.5, abs=0.3)
    assert stall.lost == pytest.approx(810, abs=3)


def test_a_line_that_was_written_late_is_no_stall() -> None:
    """84 ms and then 38 where 61 is usual: no time was lost."""
    times = np.rint(steady(FROM_SEED, 1000, sigma=0.006, level=61))
    times[500:502] = [84, 38]
    assert not shape(times).stalls


def test_rounded_times_may_have_no_scatter_at_all() -> None:
    times = np.full(500, 60.0)
    times[::7] = 61
    found = shape(times)
    assert not found.stalls
    assert not found.spells
    assert found.pattern is None


@pytest.mark.parametrize("every", [7, 10, 37, 100])
def test_every_kth_step_is_a_rhythm(every: int) -> None:
    times = steady(FROM_SEED, 20 * every)
    times[every - 1 :: every] *= 5
    times[2 * every + 2] *= 3
    found = shape(times)
    assert found.rhythm is not None
    assert (found.rhythm.every, found.rhythm.is_exact) == (every, True)
    assert len(found.beats) == 20
    assert [each.index for each in found.stalls] == [2 * every + 2]
    assert not found.spells


def test_a_rhythm_counts_steps_and_not_values() -> None:
    times = flat(FROM_SEED, 300, sigma=0.01)
    times[::20] *= 3
    found = shape_of(np.arange(300) * 50, times)
    assert found.rhythm is not None
    assert found.rhythm.every == 1000


def test_chance_has_no_rhythm() -> None:
    rng = np.random.default_rng(FROM_SEED)
    for seed in range(FROM_SEED, FROM_SEED + 50):
        times = flat(seed, 2000, sigma=0.01)
        times[rng.choice(2000, 20, replace=False)] *= 3
        assert shape(times).rhythm is None


def test_a_clock_outside_the_job_is_told_from_a_count_of_steps() -> None:
    """Steps become longer, so every 300 s is fewer and fewer steps."""
    times = steady(FROM_SEED, 3000, level=1000) * np.linspace(1, 2, 3000)
    ends = np.cumsum(times) / 1e3
    times[np.searchsorted(ends, np.arange(300, ends[-1], 300))] *= 3
    found = shape(times, utc_s=ends)
    assert found.rhythm is not None
    assert not found.rhythm.is_exact
    assert found.rhythm.every_s == pytest.approx(300, abs=5)


@pytest.mark.parametrize("every", [2, 3, 4, 6])
def test_steps_by_turns_are_a_pattern(every: int) -> None:
    times = steady(FROM_SEED, 480)
    times[::every] *= 1.5
    found = shape(times)
    assert found.pattern is not None
    assert found.pattern.every == every
    assert found.pattern.ratio == pytest.approx(1.5, abs=0.03)
    assert not found.spells
    assert not found.stalls


def test_two_kinds_of_steps_in_no_order() -> None:
    rng = np.random.default_rng(FROM_SEED)
    found = shape(steady(FROM_SEED, 600) * np.where(rng.random(600) < 0.3, 1.5, 1.0))
    assert found.pattern is not None
    assert found.pattern.every is None
    assert found.pattern.slow_share == pytest.approx(0.3, abs=0.05)
    assert not found.spells
    assert not found.stalls


def test_a_jump_is_found_below_steps_by_turns() -> None:
    times = slower(flat(FROM_SEED, 800, sigma=0.01), 0.1, 500)
    times[::2] *= 1.5
    (spell,) = shape(times).spells
    assert abs(spell.start - 500) <= 3
    assert spell.ratio == pytest.approx(1.1, abs=0.02)


def test_a_schedule_has_clean_levels() -> None:
    levels = np.repeat([30.0, 57.0, 84.0], 460)
    found = shape(levels * flat(FROM_SEED, len(levels), sigma=0.02, level=1))
    assert found.schedule is not None
    assert (found.schedule.num_levels, found.schedule.is_likely) == (3, True)


def test_slow_and_back_again_is_no_schedule() -> None:
    assert shape(slower(flat(FROM_SEED, 900), 0.4, 300, 600)).schedule is None


def test_a_running_mean_is_noticed() -> None:
    times = flat(FROM_SEED, 400, sigma=0.2)
    assert shape(np.convolve(times, np.ones(60) / 60, "valid")).is_averaged
    assert not shape(times).is_averaged


def test_values_that_are_no_times_are_left_out() -> None:
    times = flat(FROM_SEED, 100)
    times[[3, 10, 20, 30, 40]] = [np.nan, 0, -1, np.inf, 1e300]
    found = shape(times)
    assert (found.num_dropped, len(found.times)) == (5, 95)


@pytest.mark.parametrize(
    "times", [[], [5.0], [np.nan] * 20, [0.0] * 9, [1e308, 1e-300] * 9, list(flat(1, 7))]
)
def test_few_values_are_too_few(times: list[float]) -> None:
    assert shape(times).too_few


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="steps"):
        shape_of([1, 2], [1.0])


def test_missing_steps_are_known() -> None:
    steps = np.concatenate([np.arange(100), np.arange(5000, 5100)])
    found = shape_of(steps, slower(flat(FROM_SEED, 200), 0.3, 100))
    (spell,) = found.spells
    assert found.missing_before(spell.start) == 99
    assert found.missing_before(50) is None


@pytest.mark.parametrize(
    ("values", "quantum"),
    [
        ([60, 61, 63], 1.0),
        ([0.1, 0.3, 0.2], 0.1),
        ([2700, 2800, 3100], 100.0),
        ([100, 300], 0.0),
        ([0.12345678], 0.0),
    ],
)
def test_rounding_shows_in_neighbours(values: list[float], quantum: float) -> None:
    assert rounding_of(np.array(values, dtype=float)) == pytest.approx(quantum)


def test_a_hundred_thousand_values_take_about_a_second() -> None:
    times = slower(flat(FROM_SEED, 100_000), 0.1, 60_000)
    start = time.process_time()
    (spell,) = shape(times).spells
    # Generous: what would be seen is quadratic time.
    assert time.process_time() - start < 10
    assert abs(spell.start - 60_000) <= 10


def test_series_are_built_as_readers_build_them() -> None:
    assert series([1, 2]).unit == "ms"


@pytest.mark.parametrize("last", [6, 10, 20, 40])
def test_a_slowdown_of_the_last_values_is_one(last: int) -> None:
    (spell,) = shape(slower(steady(FROM_SEED, 2000), 0.5, 2000 - last)).spells
    assert abs(spell.start - (2000 - last)) <= 2
    assert spell.end is None


def test_strong_autocorrelation_is_no_change() -> None:
    rng = np.random.default_rng(FROM_SEED)
    for _ in range(30):
        noise = np.zeros(1000)
        for at, shock in enumerate(rng.normal(0, 0.03 * (1 - 0.9**2) ** 0.5, 1000)):
            noise[at] = 0.9 * noise[at - 1] + shock
        assert not shape(400 * np.exp(noise)).spells

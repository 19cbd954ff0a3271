"""Effects of ranks, how far they can be trusted, and from which one on a rank is slow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.straggler.analysis.peers import Peers
from distdoctor.straggler.analysis.ranks.effects import Effects, effects_of, standard_error
from distdoctor.straggler.analysis.ranks.threshold import (
    FLOOR,
    Threshold,
    scatter,
    student_quantile,
    threshold_for,
)

# Tables of Student's t, one-sided: probability, degrees of freedom, quantile.
TABLE = [
    (0.95, 12, 1.782),
    (0.975, 15, 2.131),
    (0.99, 20, 2.528),
    (0.995, 30, 2.750),
    (0.999, 40, 3.307),
    (0.9995, 40, 3.551),
    (0.999, 120, 3.160),
    (0.9995, 60, 3.460),
    (0.975, 1e9, 1.960),
    (0.999, 1e9, 3.090),
]


@pytest.mark.parametrize(("probability", "freedom", "expected"), TABLE)
def test_quantiles_of_student_agree_with_the_tables(
    probability: float, freedom: float, expected: float
) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(expected, rel=0.002)


@given(st.floats(0.6, 0.9999), st.floats(12, 1e4))
def test_few_degrees_of_freedom_need_more(probability: float, freedom: float) -> None:
    assert student_quantile(probability, freedom) >= student_quantile(probability, freedom * 2)


def noisy(num_ranks: int, num_steps: int, *, noise: float, spread: float = 0.0, seed: int = 1) -> Effects:
    rng = np.random.default_rng(seed)
    excess = spread * rng.standard_normal((num_ranks, 1)) + noise * rng.standard_normal(
        (num_ranks, num_steps)
    )
    return effects_of(excess.astype(np.float32))


def one_kind(num_ranks: int) -> Peers:
    return Peers(group_of=np.zeros(num_ranks, dtype=np.int32), keys=((),), known=True)


def limit(num_ranks: int, num_steps: int = 200, **more: float) -> Threshold:
    return threshold_for(noisy(num_ranks, num_steps, **more), one_kind(num_ranks))


def test_effect_and_noise_are_what_was_put_in() -> None:
    excess = 0.1 + 0.02 * np.random.default_rng(1).standard_normal((4, 4000))
    effects = effects_of(excess.astype(np.float32))
    np.testing.assert_allclose(effects.effect, 0.1, atol=0.002)
    np.testing.assert_allclose(effects.noise, 0.02, rtol=0.06)
    np.testing.assert_allclose(effects.autocorrelation, 0, atol=0.06)
    np.testing.assert_allclose(effects.halves, 0.1, atol=0.003)


def test_a_change_of_level_is_no_noise() -> None:
    excess = 0.01 * np.random.default_rng(1).standard_normal((1, 400)).astype(np.float32)
    excess[:, 200:] += 0.5
    assert effects_of(excess).noise[0] == pytest.approx(0.01, rel=0.15)
    assert effects_of(excess).halves[0].tolist() == pytest.approx([0, 0.5], abs=0.01)


def test_neighbours_that_resemble_one_another_count_as_fewer() -> None:
    noise, count = np.array([0.02, 0.02], dtype=np.float32), np.array([100, 100])
    alone, alike = standard_error(noise, np.array([0.0, 0.6], dtype=np.float32), count)
    assert alone == pytest.approx(1.2533 * 0.02 / 10)
    assert alike == pytest.approx(alone * math.sqrt(1.6 / 0.4), rel=1e-5)


def test_of_one_step_no_error_is_known() -> None:
    assert np.isinf(effects_of(np.zeros((3, 1), dtype=np.float32)).standard_error).all()


def test_steps_that_were_not_measured_are_not_counted() -> None:
    excess = np.full((1, 30), 0.2, dtype=np.float32)
    excess[:, ::3] = np.nan
    effects = effects_of(excess)
    assert (effects.num_steps[0], effects.effect[0]) == (20, pytest.approx(0.2))


def test_the_threshold_is_never_below_its_floor() -> None:
    assert limit(8, noise=0.0).value == FLOOR
    assert limit(8, 2000, noise=0.001).value == FLOOR


def test_the_threshold_grows_with_noise_with_spread_and_with_fewer_steps() -> None:
    assert limit(64, noise=0.2).value > limit(64, noise=0.05).value
    assert limit(64, spread=0.05, noise=0.02).value > limit(64, spread=0.01, noise=0.02).value
    assert limit(64, 20, noise=0.05).value > limit(64, 400, noise=0.05).value


def test_the_error_of_one_rank_falls_with_the_number_of_ranks() -> None:
    few, many = limit(8, noise=0.05), limit(512, noise=0.05)
    assert many.rank_error < few.rank_error * 8 / 512
    assert limit(16, noise=0.05).rank_error == pytest.approx(few.rank_error * 8 / 16)
    same_freedom = student_quantile(1 - few.rank_error, 229), student_quantile(1 - many.rank_error, 229)
    assert same_freedom[1] > same_freedom[0]


def test_ranks_that_differ_by_much_raise_the_threshold_above_what_they_differ_by() -> None:
    effects = noisy(64, 200, spread=0.05, noise=0.01)
    assert limit(64, spread=0.05, noise=0.01).value > effects.effect.max()


def test_fewer_steps_of_a_stretch_need_more() -> None:
    effects = noisy(32, 200, noise=0.08)
    whole = threshold_for(effects, one_kind(32))
    part = threshold_for(effects, one_kind(32), steps_share=0.1)
    assert part.value > whole.value


def test_the_scatter_is_within_groups() -> None:
    effects = noisy(64, 100, noise=0.01)
    apart = np.where(np.arange(64) < 32, 0.0, 0.5)
    moved = Effects(
        wander=1.0,
        effect=(effects.effect + apart).astype(np.float32),
        **{
            name: getattr(effects, name)
            for name in (
                "noise",
                "autocorrelation",
                "num_steps",
                "standard_error",
                "halves",
                "windows",
                "window_edges",
            )
        },
    )
    two = Peers(
        group_of=(np.arange(64) >= 32).astype(np.int32), keys=((("pp", 0),), (("pp", 1),)), known=True
    )
    assert scatter(moved, two) < 0.01 < scatter(moved, one_kind(64))


def test_nothing_measured_gives_a_threshold_all_the_same() -> None:
    threshold = threshold_for(effects_of(np.full((4, 30), np.nan, dtype=np.float32)), one_kind(4))
    assert threshold.value >= FLOOR

"""Latency, bandwidth, plateau and cliffs of curves whose answer is known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.nccl_bench.analysis.fit import find_cliffs, fit_curve, plateau_reached
from distdoctor.units import GIB, KIB, MIB

SIZES = [1 << power for power in range(3, 34)]


def curve(alpha_us: float, beta_gbps: float, *, noise: float = 0.0, seed: int = 0) -> list[tuple[int, float]]:
    draw = random.Random(seed)
    return [(size, (alpha_us + size / beta_gbps / 1e3) * (1 + draw.uniform(-noise, noise))) for size in SIZES]


@given(
    alpha_us=st.floats(5, 2000),
    beta_gbps=st.floats(1, 900),
    noise=st.floats(0, 0.1),
    seed=st.integers(0, 10_000),
)
def test_a_noisy_curve_gives_back_its_latency_and_bandwidth(
    alpha_us: float, beta_gbps: float, noise: float, seed: int
) -> None:
    fit = fit_curve(curve(alpha_us, beta_gbps, noise=noise, seed=seed))
    assert fit is not None
    assert fit.alpha_us == pytest.approx(alpha_us, rel=0.02 + noise)
    if fit.n_half_bytes < GIB / 4:
        assert fit.beta_gbps == pytest.approx(beta_gbps, rel=0.05 + 2 * noise)
    assert fit.residual <= noise + 1e-6


@given(beta_gbps=st.floats(1, 900), outlier=st.integers(0, len(SIZES) - 1), factor=st.floats(2, 50))
def test_one_outlier_does_not_bend_the_curve(beta_gbps: float, outlier: int, factor: float) -> None:
    points = curve(30, beta_gbps)
    points[outlier] = (points[outlier][0], points[outlier][1] * factor)
    fit = fit_curve(points)
    assert fit is not None
    assert fit.alpha_us == pytest.approx(30, rel=0.05)
    assert fit.beta_gbps == pytest.approx(beta_gbps, rel=0.05)


def test_half_and_ninety_per_cent_lie_where_the_model_has_them() -> None:
    fit = fit_curve(curve(100, 10))
    assert fit is not None
    assert fit.n_half_bytes == pytest.approx(1_000_000, rel=0.01)
    assert fit.plateau_reached
    assert fit.plateau_gbps == pytest.approx(10, rel=0.01)
    assert fit.size_at_90_pct == 16 * MIB


def test_a_curve_that_still_rises_has_only_a_lower_bound() -> None:
    points = [(size, time) for size, time in curve(100, 400) if size <= 64 * MIB]
    fit = fit_curve(points)
    assert fit is not None
    assert not fit.plateau_reached
    assert fit.size_at_90_pct is None
    assert fit.plateau_gbps < 400


def test_steps_by_four_are_judged_by_doubling() -> None:
    every_other = curve(100, 10)[::2]
    assert plateau_reached(every_other)
    assert not plateau_reached([point for point in every_other if point[0] <= 2 * MIB])


@pytest.mark.parametrize("points", [[], [(1024, 5.0)], [(0, 3.0), (8, 0.0), (16, 4.0), (32, 4.0)]])
def test_too_few_sizes_give_no_fit(points: list[tuple[int, float]]) -> None:
    assert fit_curve(points) is None


def test_times_that_do_not_grow_are_all_latency() -> None:
    fit = fit_curve([(size, 50.0) for size in (8, 64, 512, 4096)])
    assert fit is not None
    assert fit.alpha_us == pytest.approx(50)


def from_bandwidths(bandwidths: list[float], start: int = MIB) -> list[tuple[int, float]]:
    return [
        ((start << index), (start << index) / bandwidth / 1e3) for index, bandwidth in enumerate(bandwidths)
    ]


def test_a_fall_that_stays_is_a_cliff() -> None:
    (cliff,) = find_cliffs(from_bandwidths([10, 20, 29.5, 5.3, 5.2]))
    assert (cliff.before_bytes, cliff.after_bytes) == (4 * MIB, 8 * MIB)
    assert cliff.drop == pytest.approx(0.82, abs=0.01)
    assert not cliff.recovers


def test_a_fall_that_comes_back_is_a_dip() -> None:
    (dip,) = find_cliffs(from_bandwidths([10, 20, 12, 25, 30]))
    assert dip.recovers


def test_neighbouring_falls_are_one_cliff() -> None:
    (cliff,) = find_cliffs(from_bandwidths([2.25, 2.2, 1.43, 1.04]))
    assert cliff.before_gbps == pytest.approx(2.2)
    assert cliff.after_gbps == pytest.approx(1.04)


@given(st.floats(1, 2000), st.floats(0.1, 900), st.floats(0, 0.1), st.integers(0, 10_000))
def test_noise_of_ten_per_cent_makes_no_cliff(alpha: float, beta: float, noise: float, seed: int) -> None:
    assert find_cliffs(curve(alpha, beta, noise=noise, seed=seed)) == ()


def test_bandwidths_that_a_table_rounds_to_nothing_make_no_cliff() -> None:
    assert find_cliffs(from_bandwidths([0.05, 0.01, 0.02], start=8 * KIB)) == ()


def test_of_two_times_for_one_size_the_faster_counts() -> None:
    points = from_bandwidths([100, 200, 220])
    assert find_cliffs([*points, (2 * MIB, points[1][1] * 3)]) == ()

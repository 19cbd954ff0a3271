"""What shape does time over size have: latency, bandwidth, plateau, cliffs?

The model is the usual one of two parameters, t(S) = alpha + S / beta: alpha is the time of an empty message, beta
the bandwidth that long messages approach, and n_half = alpha · beta the size that reaches half of it (R. W.
Hockney, The communication challenge for MPP, Parallel Computing 20, 1994). All bandwidths here are S / t, in
GB/s of 10^9 bytes; a collective's busbw is that times a factor that does not depend on size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.analysis.statistics import median

Point = tuple[int, float]
"""Size in bytes, time in microseconds."""

# A fall by more than a fifth from one size to the next larger is a cliff. Our own threshold, tried on published
# tables: no hit in 15 healthy ones, a hit in each of four unhealthy ones.
CLIFF_DROP = 0.20

# Below this bandwidth, in GB/s, a printed table has too few digits for a ratio.
CLIFF_MIN_GBPS = 0.05

# After a dip the bandwidth comes back to at least this share. Our own threshold.
RECOVERED = 0.9

# With t = alpha + S / beta, bandwidth grows by less than 5 % per doubling exactly from 95 % of beta on.
PLATEAU_GROWTH_PER_DOUBLING = 1.05

# What counts as the end of the climb: a share of the plateau.
NEAR_PLATEAU = 0.9

# Fewer sizes do not show a curve.
MIN_SIZES = 3

# Iterations of reweighted least squares; it settles in about ten.
_ROUNDS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One curve in a few numbers."""

    alpha_us: float
    """Time of an empty message, at least 0."""
    beta_gbps: float
    """Bandwidth (size / time) that long messages approach."""
    n_half_bytes: int
    """Size that reaches half of beta."""
    plateau_gbps: float
    """Highest measured bandwidth among the largest sizes (down to a quarter of the largest)."""
    plateau_reached: bool
    """False: still rising at the end, so that `plateau_gbps` is a lower bound."""
    size_at_90_pct: int | None
    """Smallest measured size from which on every size has 90 % of the plateau; None: plateau not reached."""
    residual: float
    """Median of |model - measured| / measured: 0.05 is a good fit, 0.3 tells that the model does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """Bandwidth (size / time) that falls where the size grows."""

    before_bytes: int
    after_bytes: int
    before_gbps: float
    after_gbps: float
    recovers: bool
    """A larger size reaches the old bandwidth again: a dip, not a cliff."""
    sizes_below: int = 1
    """Sizes from the fall on that stay below the old bandwidth."""

    @property
    def drop(self) -> float:
        """From 0 to 1."""
        return 1 - self.after_gbps / self.before_gbps


def fit_curve(points: Sequence[Point]) -> Fit | None:
    """The curve through `points`; None for fewer than three sizes, or when nothing took any time.

    Minimises the sum of |model - measured| / measured by reweighted least squares: relative, so that 20 µs count
    as much as 20 ms, and absolute instead of squared, so that one outlier does not bend the curve.
    """
    curve = _clean(points)
    if len(curve) < MIN_SIZES:
        return None
    alpha, per_byte = _least_absolute(curve)
    bandwidths = [size / time / 1e3 for size, time in curve]
    reached = plateau_reached(curve)
    plateau = max(
        bandwidth for (size, _), bandwidth in zip(curve, bandwidths, strict=True) if size >= curve[-1][0] / 4
    )
    beta = 1 / per_byte / 1e3 if per_byte > 0 else plateau
    return Fit(
        alpha_us=alpha,
        beta_gbps=beta,
        n_half_bytes=round(alpha * beta * 1e3),
        plateau_gbps=plateau,
        plateau_reached=reached,
        size_at_90_pct=_climb_ends(curve, plateau) if reached else None,
        residual=median([abs(alpha + size * per_byte - time) / time for size, time in curve]),
    )


def plateau_reached(points: Sequence[Point]) -> bool:
    """Bandwidth grows by less than 5 % per doubling at the end; False for a single size."""
    curve = _clean(points)
    if len(curve) < 2:
        return False
    last_size, last_time = curve[-1]
    earlier = [(size, time) for size, time in curve if size <= last_size / 2]
    if not earlier:
        return False
    size, time = earlier[-1]
    growth = (last_size * time) / (size * last_time)
    return growth < math.pow(PLATEAU_GROWTH_PER_DOUBLING, math.log2(last_size / size))


def find_cliffs(points: Sequence[Point]) -> tuple[Cliff, ...]:
    """Falls by more than 20 % from one size to the next, neighbouring falls as one; smallest size first."""
    curve = [(size, size / time / 1e3) for size, time in _clean(points)]
    cliffs: list[Cliff] = []
    index = 1
    while index < len(curve):
        start = index - 1
        while index < len(curve) and _falls(curve[index - 1][1], curve[index][1]):
            index += 1
        if index - 1 > start:
            cliffs.append(_cliff(curve, start, index - 1))
        else:
            index += 1
    return tuple(cliffs)


def _falls(before_gbps: float, after_gbps: float) -> bool:
    return before_gbps > CLIFF_MIN_GBPS and after_gbps < before_gbps * (1 - CLIFF_DROP)


def _cliff(curve: Sequence[tuple[int, float]], start: int, end: int) -> Cliff:
    before = curve[start][1]
    return Cliff(
        before_bytes=curve[start][0],
        after_bytes=curve[end][0],
        before_gbps=before,
        after_gbps=curve[end][1],
        recovers=any(bandwidth >= RECOVERED * before for _, bandwidth in curve[end + 1 :]),
        sizes_below=1
        + next(
            (n for n, (_, bandwidth) in enumerate(curve[end + 1 :]) if bandwidth >= RECOVERED * before),
            len(curve) - end - 1,
        ),
    )


def _clean(points: Sequence[Point]) -> list[Point]:
    """Sorted, one point a size (the fastest: noise only makes slower), without empty messages."""
    best: dict[int, float] = {}
    for size, time in points:
        if size > 0 and time > 0:
            best[size] = min(time, best.get(size, time))
    return sorted(best.items())


def _climb_ends(curve: Sequence[Point], plateau: float) -> int | None:
    """The smallest size from which on no size is below 90 % of the plateau."""
    answer = None
    for size, time in reversed(curve):
        if size / time / 1e3 < NEAR_PLATEAU * plateau:
            break
        answer = size
    return answer


def _least_absolute(curve: Sequence[Point]) -> tuple[float, float]:
    """alpha (µs, >= 0) and time per byte (µs, >= 0) with the least sum of relative errors."""
    weights = [1.0] * len(curve)
    alpha, per_byte = 0.0, 0.0
    for _ in range(_ROUNDS):
        alpha, per_byte = _weighted(curve, weights)
        errors = [abs(alpha + size * per_byte - time) / time for size, time in curve]
        weights = [1 / max(error, 1e-6) for error in errors]
    return alpha, per_byte


def _weighted(curve: Sequence[Point], weights: Sequence[float]) -> tuple[float, float]:
    """Weighted least squares of (alpha + size · per_byte) / time = 1, with both parameters kept at or above 0."""
    ones = [1 / time for _, time in curve]
    sizes = [size / time for size, time in curve]
    a11 = sum(w * x * x for w, x in zip(weights, ones, strict=True))
    a12 = sum(w * x * y for w, x, y in zip(weights, ones, sizes, strict=True))
    a22 = sum(w * y * y for w, y in zip(weights, sizes, strict=True))
    b1 = sum(w * x for w, x in zip(weights, ones, strict=True))
    b2 = sum(w * y for w, y in zip(weights, sizes, strict=True))
    determinant = a11 * a22 - a12 * a12
    if determinant <= 1e-12 * a11 * a22:
        return 0.0, b2 / a22
    alpha = (b1 * a22 - b2 * a12) / determinant
    per_byte = (a11 * b2 - a12 * b1) / determinant
    if alpha < 0:
        return 0.0, b2 / a22
    if per_byte < 0:
        return b1 / a11, 0.0
    return alpha, per_byte

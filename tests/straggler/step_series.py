"""Series of step times for tests: flat with realistic noise, and what is built upon it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distdoctor.straggler.analysis.series.regimes import SeriesShape, shape_of
from distdoctor.straggler.facts.series import JobSeries, SeriesKind

DEGREES_OF_FREEDOM = 3
AUTOCORRELATION = 0.5
BURN_IN = 50


def flat(seed: int, num: int, *, sigma: float = 0.02, level: float = 400.0) -> NDArray[np.float64]:
    """Step times with heavy tails (Student's t, 3 degrees of freedom), each like its neighbours (AR 0.5)."""
    rng = np.random.default_rng(seed)
    shocks = rng.standard_t(DEGREES_OF_FREEDOM, num + BURN_IN) / DEGREES_OF_FREEDOM**0.5
    noise = np.empty_like(shocks)
    last = 0.0
    for at, shock in enumerate(shocks):
        last = noise[at] = AUTOCORRELATION * last + shock
    noise *= sigma * (1 - AUTOCORRELATION**2) ** 0.5
    return level * np.maximum(1 + noise[BURN_IN:], 0.2)


def steady(seed: int, num: int, *, sigma: float = 0.01, level: float = 400.0) -> NDArray[np.float64]:
    """Step times with light tails: nothing that could pass for a stall."""
    return level * np.exp(np.random.default_rng(seed).normal(0, sigma, num))


def slower(times: NDArray[np.float64], by: float, start: int, end: int | None = None) -> NDArray[np.float64]:
    """The same with values from `start` (to `end`) longer by the share `by`."""
    changed = times.copy()
    changed[start:end] *= 1 + by
    return changed


def shape(times: ArrayLike, **more: Any) -> SeriesShape:
    return shape_of(np.arange(len(np.asarray(times))), times, **more)


def series(values: ArrayLike, **more: Any) -> JobSeries:
    """A step time in ms, or with `kind=SeriesKind.RATE` a throughput."""
    array = np.asarray(values, dtype=np.float64)
    kind = more.get("kind", SeriesKind.TIME)
    given = {
        "name": "step time" if kind is SeriesKind.TIME else "throughput",
        "kind": kind,
        "unit": "ms" if kind is SeriesKind.TIME else "samples/s",
        "source": "a training log",
        "path": "train.log",
        "steps": np.arange(len(array)),
        "values": array,
    }
    return JobSeries(**{**given, **more})

"""Several series of one metric of one GPU as one: those that follow one another, and those that overlap and agree.

A GPU gets a new series with each pod; two exports overlap; two Prometheus servers scrape the same exporter. What
contradicts itself at the same time is of different things, such as slices of a GPU, and is no series of the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.telemetry import GpuSeries, Metric

Floats: TypeAlias = NDArray[np.float64]

# Values beyond these are broken (exporters write sentinels such as 2^63 for "not supported").
RANGES: Mapping[Metric, tuple[float, float]] = {
    Metric.SM_CLOCK: (1, 20_000),
    Metric.MEMORY_CLOCK: (1, 50_000),
    Metric.POWER: (0.1, 10_000),
    Metric.POWER_LIMIT: (1, 10_000),
    Metric.TEMPERATURE: (-50, 200),
    Metric.MEMORY_TEMPERATURE: (1, 200),
    Metric.UTILISATION: (0, 100),
    Metric.SM_ACTIVE: (0, 1.05),
    Metric.TENSOR_ACTIVE: (0, 1.05),
    Metric.DRAM_ACTIVE: (0, 1.05),
}
# Counters and masks: exact in a float.
_MAX_COUNT = 2.0**53

# Two series of the same time contradict one another when half of their samples differ by more than this share: two
# scrapes of one exporter are seconds apart and differ by less. Our own threshold.
CONTRADICTS = 0.1

# Prometheus repeats the last sample of a series that ended for so long (its lookback), beside the one that follows.
LOOKBACK_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Sound samples, times ascending, each once; empty when the series contradict one another."""

    times: Floats
    values: Floats
    num_broken: int
    contradictory: bool


def joined(several: Sequence[GpuSeries], metric: Metric, *, is_one_gpu: bool = True) -> Joined:
    """Series of one GPU, metric and name as one; samples that are broken are dropped and counted.

    Where it is not certain that they are of one GPU, all that is not the same at the same time contradicts.
    """
    sound: list[tuple[Floats, Floats]] = []
    num_broken = 0
    for series in several:
        times, values, broken = _sound(series, metric)
        num_broken += broken
        if len(times):
            sound.append((times, values))
    nothing = np.empty(0)
    if not sound:
        return Joined(times=nothing, values=nothing, num_broken=num_broken, contradictory=False)
    sound.sort(key=lambda each: (each[0][0], each[0][-1]))
    longest = sound[0]
    for later in sound[1:]:
        if _contradict(longest, later, CONTRADICTS if is_one_gpu else 0.0):
            return Joined(times=nothing, values=nothing, num_broken=num_broken, contradictory=True)
        if later[0][-1] > longest[0][-1]:
            longest = later
    if len(sound) == 1:
        return Joined(times=longest[0], values=longest[1], num_broken=num_broken, contradictory=False)
    distinct, first = np.unique(np.concatenate([times for times, _ in sound]), return_index=True)
    values = np.concatenate([values for _, values in sound])[first]
    return Joined(times=distinct, values=values, num_broken=num_broken, contradictory=False)


def _sound(series: GpuSeries, metric: Metric) -> tuple[Floats, Floats, int]:
    n = min(len(series.utc_s), len(series.values))
    times, values = series.utc_s[:n].astype(np.float64), series.values[:n].astype(np.float64)
    low, high = RANGES.get(metric, (0.0, _MAX_COUNT))
    with np.errstate(invalid="ignore"):
        keep = np.isfinite(times) & (values >= low) & (values <= high)
    order = np.argsort(times[keep], kind="stable")
    # Those without a time are told apart from broken ones.
    return times[keep][order], values[keep][order], int(n - keep.sum() - np.isnan(times).sum())


def _contradict(earlier: tuple[Floats, Floats], later: tuple[Floats, Floats], most: float) -> bool:
    """Whether they tell different things where both have samples; each of `later` beside the nearest of `earlier`."""
    inside = later[0] <= earlier[0][-1]
    both_s = min(earlier[0][-1], later[0][-1]) - later[0][0]
    shorter_s = min(earlier[0][-1] - earlier[0][0], later[0][-1] - later[0][0])
    if not inside.any() or (both_s <= LOOKBACK_S and both_s < shorter_s / 2):
        return False
    times, values = later[0][inside], later[1][inside]
    after = np.minimum(np.searchsorted(earlier[0], times), len(earlier[0]) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(times - earlier[0][before] <= earlier[0][after] - times, before, after)
    other = earlier[1][nearest]
    unlike = np.abs(values - other) > most * np.maximum(np.abs(values), np.abs(other))
    return bool(np.mean(unlike) > 0.5)

"""Telemetry of GPUs as exporters sample it: jitter, noise, a series for each metric and GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from distdoctor.report.model import GpuRef
from distdoctor.straggler.facts.telemetry import GpuSeries, Metric, Telemetry

BEGIN_S = 1_700_000_000.0
INTERVAL_S = 15.0

Values: TypeAlias = float | Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""A level, or one over time."""

# An H100 under load, all ranks at work alike.
UNDER_LOAD: Mapping[Metric, float] = {
    Metric.SM_CLOCK: 1755,
    Metric.POWER: 620,
    Metric.POWER_LIMIT: 700,
    Metric.TEMPERATURE: 64,
    Metric.UTILISATION: 100,
    Metric.SM_ACTIVE: 0.6,
    Metric.THROTTLE_REASONS: 0,
}
IDLE: Mapping[Metric, float] = {
    Metric.SM_CLOCK: 345,
    Metric.POWER: 72,
    Metric.POWER_LIMIT: 700,
    Metric.TEMPERATURE: 33,
    Metric.UTILISATION: 0,
    Metric.SM_ACTIVE: 0.0,
    Metric.THROTTLE_REASONS: 1,
}
NOISE: Mapping[Metric, float] = {
    Metric.SM_CLOCK: 0.01,
    Metric.POWER: 0.02,
    Metric.TEMPERATURE: 0.01,
    Metric.SM_ACTIVE: 0.03,
}


def telemetry(
    num_gpus: int = 8,
    *,
    unlike: Mapping[int, Mapping[Metric, Values]] | None = None,
    everybody: Mapping[Metric, Values] | None = None,
    metrics: tuple[Metric, ...] | None = None,
    model: str | Mapping[int, str] = "NVIDIA H100 80GB HBM3",
    job: str | Mapping[int, str | None] | None = "llm-train",
    num_samples: int = 120,
    gpus_per_host: int = 8,
    seed: int = 1,
) -> Telemetry:
    """`unlike` changes single GPUs, `everybody` all of them."""
    rng = np.random.default_rng(seed)
    series = []
    for gpu in range(num_gpus):
        levels: dict[Metric, Values] = {**UNDER_LOAD, **(everybody or {}), **(unlike or {}).get(gpu, {})}
        ref = GpuRef(
            host=f"host-{'abcdefghijklmnopqrstuvwxyz'[gpu // gpus_per_host]}",
            index=gpu % gpus_per_host,
            uuid=f"GPU-{gpu:04d}",
            model=model if isinstance(model, str) else model[gpu],
        )
        for metric, level in levels.items():
            if metrics is not None and metric not in metrics:
                continue
            times = BEGIN_S + INTERVAL_S * np.arange(num_samples) + rng.uniform(0, 3, num_samples)
            values = level(times) if callable(level) else np.full(num_samples, float(level))
            values = values * (1 + NOISE.get(metric, 0.0) * rng.standard_normal(num_samples))
            series.append(
                GpuSeries(
                    metric=metric,
                    gpu=ref,
                    utc_s=times,
                    values=values,
                    job=job if isinstance(job, str) or job is None else job[gpu],
                )
            )
    return Telemetry(source="Prometheus", path="gpus.json", series=tuple(series))


def from_time(at_s: float, before: float, after: float) -> Values:
    """One level before a time, another from then on."""
    return lambda times: np.where(times < at_s, before, after)


def growing(per_second: float) -> Values:
    """A counter."""
    return lambda times: 1e6 + per_second * (times - BEGIN_S)

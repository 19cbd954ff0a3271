"""Monitoring samples of GPUs on one time grid, and which GPUs did the same work at the same time.

Exporters sample each GPU at times of their own, restart, and give a GPU a new series when its pod changes. Here a
GPU is one row, time is cut into equal bins, and a bin without a sample is NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distdoctor.report.model import GpuRef
from distdoctor.straggler.analysis.telemetry.joined_series import RANGES, Joined, joined
from distdoctor.straggler.facts.telemetry import GpuSeries, Metric, Telemetry

# GPUs × bins of one metric; longer exports get wider bins.
MAX_VALUES = 4_000_000
MAX_BINS = 4_000

# A bin holds about two samples, so that an exporter's jitter leaves no holes.
SAMPLES_PER_BIN = 2.0

# Counters: by how much they grew counts, and those of different names count different things.
COUNTERS = frozenset(
    (Metric.POWER_VIOLATION, Metric.THERMAL_VIOLATION, Metric.PCIE_REPLAYS, Metric.NVLINK_ERRORS)
)

# A GPU runs something: NVML's utilisation is 100 % while any kernel is there, waiting collectives too. Without it,
# power above this share of the limit (an H100 idles at 70 of 700 W), or of the most that peers draw. Our own
# thresholds.
BUSY_UTILISATION = 80.0
BUSY_POWER_SHARE = 0.25
BUSY_SM_ACTIVE = 0.2

# The job runs while at least this share of the GPUs is busy; a GPU belongs to it when it is busy in this share of
# that time, and idles when it is busy in less than the last. Our own thresholds.
ACTIVE_SHARE = 0.5
BELONGS_SHARE = 0.5
IDLE_SHARE = 0.1


_Key = tuple[str | int | None, ...]
Floats = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class OneGpu:
    """All series of one GPU, sound samples only, in order of time."""

    gpu: GpuRef
    job: str | None = None
    samples: dict[Metric, tuple[Floats, Floats]] = field(default_factory=dict)
    """(times, values) of all but counters"""
    counters: dict[Metric, list[tuple[Floats, Floats]]] = field(default_factory=dict)
    """(times, values) of each name that counts such things."""
    contradictory: set[Metric] = field(default_factory=set)
    """Several series that tell different things at the same time, as of MIG slices: not used."""

    @property
    def recorded(self) -> set[Metric]:
        """Metrics that have samples."""
        return set(self.samples) | set(self.counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """GPUs of one model and job on one time grid. Arrays (gpus, bins), NaN: no sample."""

    model: str | None
    job: str | None
    gpus: tuple[OneGpu, ...]
    begin_s: float
    width_s: float
    values: Mapping[Metric, NDArray[np.float32]]
    busy: NDArray[np.bool_]
    active: NDArray[np.bool_]
    """(bins,): the job runs."""
    belongs: NDArray[np.bool_]
    """(gpus,): takes part in the job."""
    idle: NDArray[np.bool_]
    """(gpus,): does nothing while the job runs."""

    seen: NDArray[np.float64]
    """(gpus,): in which share of the time that the job runs it has samples."""

    @property
    def working(self) -> NDArray[np.bool_]:
        """(gpus, bins): a GPU of the job is busy while the job runs."""
        return np.asarray(self.busy & self.active & self.belongs[:, None])

    def is_active_at(self, times_s: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether the job runs at these times."""
        index = np.floor((times_s - self.begin_s) / self.width_s).astype(np.int64)
        inside = (index >= 0) & (index < len(self.active))
        return np.asarray(inside & self.active[np.clip(index, 0, len(self.active) - 1)])


def gpus_of(telemetry: Iterable[Telemetry]) -> tuple[list[OneGpu], int]:
    """GPUs with their sound samples, and how many samples were broken."""
    gpus: dict[_Key, OneGpu] = {}
    parts: dict[tuple[_Key, Metric, str | None], list[GpuSeries]] = {}
    for each in telemetry:
        for series in each.series:
            gpu = series.gpu
            key: _Key = (gpu.uuid,) if gpu.uuid else (gpu.host, gpu.index, gpu.pci)
            one = gpus.setdefault(key, OneGpu(gpu=gpu, job=series.job))
            one.job = one.job or series.job
            parts.setdefault((key, series.metric, series.name), []).append(series)
    num_broken = 0
    for (key, metric, _), several in parts.items():
        series_of_name = joined(several, metric)
        num_broken += series_of_name.num_broken
        _add(gpus[key], metric, series_of_name)
    return [one for one in gpus.values() if one.recorded or one.contradictory], num_broken


def _add(one: OneGpu, metric: Metric, series: Joined) -> None:
    """Of several names for one gauge the one with most samples counts; counters are kept apart."""
    if series.contradictory:
        one.contradictory.add(metric)
    elif not len(series.times):
        return
    elif metric in COUNTERS:
        one.counters.setdefault(metric, []).append((series.times, series.values))
    elif metric not in one.samples or len(series.times) > len(one.samples[metric][0]):
        one.samples[metric] = (series.times, series.values)


def panels_of(gpus: Sequence[OneGpu]) -> list[Panel]:
    """One panel for each model and job, most GPUs first."""
    sets: dict[tuple[str | None, str | None], list[OneGpu]] = {}
    for one in gpus:
        sets.setdefault((one.gpu.model, one.job), []).append(one)
    panels = [panel for (model, job), each in sets.items() if (panel := _panel(model, job, each)) is not None]
    return sorted(panels, key=lambda panel: -len(panel.gpus))


def _panel(model: str | None, job: str | None, gpus: list[OneGpu]) -> Panel | None:
    spans = [times for one in gpus for times, _ in one.samples.values()]
    spans += [times for one in gpus for each in one.counters.values() for times, _ in each]
    intervals = [float(np.median(np.diff(times))) for times in spans if len(times) > 1]
    intervals = [each for each in intervals if each > 0]
    if not intervals:
        return None
    begin, end = min(float(times[0]) for times in spans), max(float(times[-1]) for times in spans)
    most_bins = max(1, min(MAX_BINS, MAX_VALUES // len(gpus)))
    width = max(SAMPLES_PER_BIN * float(np.median(intervals)), (end - begin) / most_bins * (1 + 1e-9), 1e-3)
    num_bins = int((end - begin) / width) + 1
    values = {
        metric: _binned(gpus, metric, begin, width, num_bins)
        for metric in RANGES
        if any(metric in one.samples for one in gpus)
    }
    busy = _busy(values, (len(gpus), num_bins))
    has = np.any([~np.isnan(each) for each in values.values()], axis=0) if values else np.zeros_like(busy)
    num_seen = has.sum(axis=0)
    active = (num_seen > 0) & (busy.sum(axis=0) >= ACTIVE_SHARE * np.maximum(num_seen, 1))
    seen_active = (has & active).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (busy & active).sum(axis=1) / seen_active
    return Panel(
        model=model,
        job=job,
        gpus=tuple(gpus),
        begin_s=begin,
        width_s=width,
        values=values,
        busy=busy,
        active=active,
        seen=np.asarray(seen_active / max(1, int(active.sum()))),
        belongs=np.asarray((seen_active > 0) & (share >= BELONGS_SHARE)),
        idle=np.asarray((seen_active > 0) & (share < IDLE_SHARE)),
    )


def _binned(
    gpus: Sequence[OneGpu], metric: Metric, begin: float, width: float, num_bins: int
) -> NDArray[np.float32]:
    """Means of the samples of each bin."""
    table = np.full((len(gpus), num_bins), np.nan, dtype=np.float32)
    for row, one in enumerate(gpus):
        if metric not in one.samples:
            continue
        times, values = one.samples[metric]
        index = np.clip(((times - begin) / width).astype(np.int64), 0, num_bins - 1)
        count = np.bincount(index, minlength=num_bins)
        with np.errstate(invalid="ignore", divide="ignore"):
            table[row] = np.bincount(index, values, minlength=num_bins) / count
    return table


def _busy(values: Mapping[Metric, NDArray[np.float32]], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """By utilisation; where it has no sample by power, then by SM activity."""
    busy, known = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)

    def tell(table: NDArray[np.float32], least: NDArray[np.float32] | float) -> None:
        with np.errstate(invalid="ignore"):
            new = ~known & ~np.isnan(table)
            busy[new] = (table >= least)[new]
        known[new] = True

    if Metric.UTILISATION in values:
        tell(values[Metric.UTILISATION], BUSY_UTILISATION)
    if Metric.POWER in values:
        power = values[Metric.POWER]
        most = float(np.nanpercentile(power, 99)) if np.any(~np.isnan(power)) else np.nan
        limit = values.get(Metric.POWER_LIMIT, np.full_like(power, np.nan))
        tell(power, np.float32(BUSY_POWER_SHARE) * np.where(np.isnan(limit), np.float32(most), limit))
    if Metric.SM_ACTIVE in values:
        tell(values[Metric.SM_ACTIVE], BUSY_SM_ACTIVE)
    return busy

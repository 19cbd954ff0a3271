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
from distdoctor.straggler.analysis.telemetry.job_time import LOAD, JobTime, busy_of, job_time
from distdoctor.straggler.analysis.telemetry.joined_series import RANGES, Joined, joined
from distdoctor.straggler.analysis.telemetry.pod_names import jobs_of_pods
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

_Key = tuple[str | int | None, ...]
Floats = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class OneGpu:
    """All series of one GPU, sound samples only, in order of time."""

    gpu: GpuRef
    job: str | None = None
    """As the evidence tells it."""
    pod_s: dict[str, float] = field(default_factory=dict)
    """Pods that used it, and for how long, over all metrics."""
    samples: dict[Metric, tuple[Floats, Floats]] = field(default_factory=dict)
    """(times, values) of all but counters"""
    counters: dict[Metric, list[tuple[Floats, Floats]]] = field(default_factory=dict)
    """(times, values) of each name that counts such things."""
    contradictory: set[Metric] = field(default_factory=set)
    """Several series that tell different things at the same time, as of MIG slices: not used."""

    @property
    def is_named(self) -> bool:
        """Its UUID or its host is known, and so it is one GPU."""
        return self.gpu.uuid is not None or self.gpu.host is not None

    @property
    def pod(self) -> str | None:
        """The pod that used it for longest."""
        return max(self.pod_s, key=lambda pod: self.pod_s[pod], default=None)

    @property
    def recorded(self) -> set[Metric]:
        """Metrics that have samples."""
        return set(self.samples) | set(self.counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """GPUs of one model and job on one time grid. Arrays (gpus, bins), NaN: no sample."""

    model: str | None
    job: str | None
    pods: str | None
    """What the names of its pods have in common, where no job is told."""
    gpus: tuple[OneGpu, ...]
    begin_s: float
    width_s: float
    values: Mapping[Metric, NDArray[np.float32]]
    load_known: bool
    """Utilisation, power or activity was recorded; else `active` and `belongs` are all of them, and `busy` none."""
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

    def bins_from(self, from_s: float | None) -> NDArray[np.bool_]:
        """(bins,): begins at this time or later; None: all."""
        begins = self.begin_s + self.width_s * np.arange(len(self.active))
        return np.asarray(begins >= from_s) if from_s is not None else np.ones(len(begins), dtype=bool)

    def while_active(self, times_s: Floats, values: Floats, from_s: float | None) -> tuple[Floats, Floats]:
        """Of one series the samples while the job runs, from a time on."""
        keep = self.is_active_at(times_s)
        if from_s is not None:
            keep &= times_s >= from_s
        return times_s[keep], values[keep]


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
            if series.pod is not None:
                one.pod_s[series.pod] = one.pod_s.get(series.pod, 0.0) + _span_s(series)
            parts.setdefault((key, series.metric, series.name), []).append(series)
    num_broken = 0
    for (key, metric, _), several in parts.items():
        series_of_name = joined(several, metric, is_one_gpu=gpus[key].is_named)
        num_broken += series_of_name.num_broken
        _add(gpus[key], metric, series_of_name)
    for one in gpus.values():
        if one.contradictory and not one.is_named:
            # One index of several hosts: what does not differ is of several GPUs as well.
            one.samples.clear()
            one.counters.clear()
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


def _span_s(series: GpuSeries) -> float:
    known = series.utc_s[np.isfinite(series.utc_s)]
    return float(known.max() - known.min()) if len(known) else 0.0


def panels_of(gpus: Sequence[OneGpu]) -> list[Panel]:
    """One panel for each model and job, most GPUs first. Where the evidence tells no job, pods' names part them."""
    pods = jobs_of_pods([None if one.job is not None else one.pod for one in gpus])
    sets: dict[tuple[str | None, str | None, str | None], list[OneGpu]] = {}
    for one, of_pods in zip(gpus, pods, strict=True):
        sets.setdefault((one.gpu.model, one.job, of_pods), []).append(one)
    panels = [
        panel for (model, job, of_pods), each in sets.items() if (panel := _panel(model, job, of_pods, each))
    ]
    return sorted(panels, key=lambda panel: -len(panel.gpus))


def _panel(model: str | None, job: str | None, pods: str | None, gpus: list[OneGpu]) -> Panel | None:
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
    shape = (len(gpus), num_bins)
    load_known = any(metric in values for metric in LOAD)
    busy = busy_of(values, shape)
    has = (
        np.any([~np.isnan(each) for each in values.values()], axis=0)
        if values
        else np.zeros(shape, dtype=bool)
    )
    time = job_time(busy, has) if load_known else _all_the_time(shape)
    return Panel(
        model=model,
        job=job,
        pods=pods,
        gpus=tuple(gpus),
        begin_s=begin,
        width_s=width,
        values=values,
        load_known=load_known,
        busy=busy,
        active=time.active,
        belongs=time.belongs,
        idle=time.idle,
        seen=time.seen,
    )


def _all_the_time(shape: tuple[int, int]) -> JobTime:
    """Where nothing tells when GPUs work: what needs no load is looked at in all samples."""
    return JobTime(
        active=np.ones(shape[1], dtype=bool),
        belongs=np.ones(shape[0], dtype=bool),
        idle=np.zeros(shape[0], dtype=bool),
        seen=np.ones(shape[0]),
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

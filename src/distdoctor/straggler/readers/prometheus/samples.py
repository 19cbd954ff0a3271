"""Series of one file, gathered: one for each metric and GPU, times ascending, what cannot be left out and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from distdoctor.report.model import GpuRef
from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.series import ToolClaim
from distdoctor.straggler.facts.telemetry import GpuSeries, Metric
from distdoctor.straggler.readers.prometheus.labels import gpu_of, is_slice, job_of, pod_of
from distdoctor.straggler.readers.prometheus.metrics import NCCL_INSPECTOR, XPU_TIMER, Meaning, meaning_of
from distdoctor.straggler.readers.rank_words import named_ranks

# Series of one file: 16,384 GPUs of some ten metrics. Our own limit.
MAX_SERIES = 250_000

# Samples of one file, 16 bytes each.
MAX_SAMPLES = 50_000_000

# What DCGM writes where it has no value: blanks of 32- and 64-bit integers and of floats, and 15 codes above each
# (dcgm_structs.h: DCGM_INT32_BLANK, DCGM_INT64_BLANK, DCGM_FP64_BLANK).
_BLANKS = ((2147483632.0, 2147483647.0), (140737488355328.0, 140737488355343.0), (9.22e18, np.inf))

_MAY_BE_NEGATIVE = (Metric.TEMPERATURE, Metric.MEMORY_TEMPERATURE)

Floats = NDArray[np.float64]


@dataclass(slots=True)
class _Series:
    meaning: Meaning
    gpu: GpuRef
    pod: str | None
    job: str | None
    name: str
    times: list[Floats] = field(default_factory=list)
    values: list[Floats] = field(default_factory=list)


@dataclass(slots=True)
class Samples:
    """Gathers series; `finish` makes facts of them."""

    path: str
    num_series: int = 0
    num_samples: int = 0
    names: Counter[str] = field(default_factory=Counter)
    """Series of names that are not known here."""
    left_out: Counter[str] = field(default_factory=Counter)
    hanging: dict[int, bool] = field(default_factory=dict)
    """What xpu_timer says of each rank."""
    hanging_hosts: dict[int, str] = field(default_factory=dict)
    xpu_names: set[str] = field(default_factory=set)
    inspector_names: set[str] = field(default_factory=set)
    has_no_times: bool = False
    """After `finish`: it is what an exporter served at one moment."""
    _series: dict[tuple[object, ...], _Series] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """No more is taken."""
        return self.num_series >= MAX_SERIES or self.num_samples >= MAX_SAMPLES

    def add(self, name: str, labels: Mapping[str, str], times: Floats, values: Floats) -> None:
        """One series: `times` in seconds since 1970 (NaN: not told) and values, both of shape (samples,)."""
        self.num_series += 1
        self.num_samples += len(values)
        if name.startswith(XPU_TIMER):
            self._add_xpu_timer(name, labels, values)
            return
        if NCCL_INSPECTOR.fullmatch(name):
            self.inspector_names.add(name)
            return
        meaning = meaning_of(name, labels)
        if meaning is None:
            self.names[" ".join(name.split())[:100]] += 1
            return
        gpu = None if is_slice(labels) else gpu_of(labels)
        if gpu is None:
            what = "are of parts of a GPU (MIG)" if is_slice(labels) else "name no single GPU"
            self.left_out[f"series {what}"] += 1
            return
        if gpu.host is None and labels.get("Hostname"):
            self.left_out["series name the exporter's pod instead of a host (kept, without a host)"] += 1
        pod, job = pod_of(labels), job_of(labels)
        # Series of other labels stay apart, also where the GPU is the same by what is known: they may contradict.
        key = (name, *sorted(labels.items()))
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(meaning=meaning, gpu=gpu, pod=pod, job=job, name=name)
        good = self._good(meaning, times, values)
        series.times.append(times[good])
        series.values.append(values[good] * meaning.factor)

    def _good(self, meaning: Meaning, times: Floats, values: Floats) -> NDArray[np.bool_]:
        """Samples that are numbers. NaN is a gap or a stale series, and says nothing."""
        good = np.isfinite(values) & ~np.isinf(times)
        self.left_out["samples are no numbers (gaps, stale series)"] += int(
            len(good) - np.count_nonzero(good)
        )
        real = good.copy()
        for low, high in _BLANKS:
            real &= ~((values >= low) & (values <= high))
        if meaning.metric not in _MAY_BE_NEGATIVE:
            real &= ~(values < 0)
        self.left_out["samples are blanks of DCGM or negative"] += int(
            np.count_nonzero(good) - np.count_nonzero(good & real)
        )
        kept: NDArray[np.bool_] = good & real
        return kept

    def _add_xpu_timer(self, name: str, labels: Mapping[str, str], values: Floats) -> None:
        self.xpu_names.add(name)
        rank = labels.get("rank", "")
        if name != "XPU_TIMER_COMMON_HANG" or not rank.isdecimal() or len(rank) > 6 or not len(values):
            return
        known = values[np.isfinite(values)]
        if len(known):
            self.hanging[int(rank)] = bool(known[-1] > 0)
            self.hanging_hosts[int(rank)] = labels.get("ip") or labels.get("pod_name") or ""

    def finish(self) -> tuple[tuple[GpuSeries, ...], list[Note], list[ToolClaim]]:
        """All series, what is odd about them, and what a tool itself claims."""
        best: dict[tuple[object, ...], int] = {}
        for series in self._series.values():
            if series.meaning.choice is not None:
                at = _place(series)
                best[at] = min(best.get(at, series.meaning.choice), series.meaning.choice)
        found = []
        num_back = 0
        for series in self._series.values():
            if series.meaning.choice is not None and series.meaning.choice != best[_place(series)]:
                continue
            times, values = _in_order(np.concatenate(series.times), np.concatenate(series.values))
            if not len(values):
                continue
            if series.meaning.is_counter and np.any(np.diff(values) < 0):
                num_back += 1
            found.append(
                GpuSeries(
                    metric=series.meaning.metric,
                    gpu=series.gpu,
                    utc_s=times,
                    values=values,
                    pod=series.pod,
                    job=series.job,
                    name=series.name,
                )
            )
        found = self._without_shared_hosts(found)
        self.has_no_times = bool(found) and all(np.isnan(series.utc_s).all() for series in found)
        return tuple(found), self._notes(num_back), self._claims()

    def _without_shared_hosts(self, found: list[GpuSeries]) -> list[GpuSeries]:
        """An address at which two GPUs have one index at the same time stands for several machines, and names none."""
        shared = shared_hosts(found)
        for host in sorted(shared):
            what = f"series name `{host}`, behind which several hosts are (kept, without a host)"
            self.left_out[what] += sum(series.gpu.host == host for series in found)
        return [
            replace(series, gpu=msgspec.structs.replace(series.gpu, host=None))
            if series.gpu.host in shared
            else series
            for series in found
        ]

    def _notes(self, num_back: int) -> list[Note]:
        notes = []
        for what, count in sorted(self.left_out.items()):
            if count:
                notes.append(
                    Note(
                        kind=NoteKind.DROPPED_VALUES,
                        text=f"`{self.path}`: {count} {what}"
                        + ("" if "kept" in what else ", and were left out"),
                    )
                )
        if num_back:
            notes.append(
                Note(
                    kind=NoteKind.RESTARTED,
                    text=f"`{self.path}`: {num_back} counters went back, as when an exporter or a host restarts; values "
                    "are as recorded",
                )
            )
        if self.is_full:
            notes.append(
                Note(
                    kind=NoteKind.CUT_SHORT,
                    text=f"`{self.path}`: reading stopped at {self.num_series:,} series of {self.num_samples:,} samples",
                )
            )
        if self.xpu_names:
            notes.append(
                Note(
                    kind=NoteKind.LIMITED,
                    text=f"`{self.path}`: xpu_timer gives averages of kernels by size class, not times of steps: who is "
                    "slow cannot be told from them",
                    how="xpu_timer's timeline dumps have single kernels",
                )
            )
        if self.inspector_names:
            notes.append(
                Note(
                    kind=NoteKind.LIMITED,
                    text=f"`{self.path}`: NCCL Inspector's Prometheus output averages over half a minute and more: who "
                    "comes last to a collective cannot be told from it",
                    how="NCCL_INSPECTOR_PROM_DUMP=0 writes one record for each collective",
                )
            )
        return notes

    def _claims(self) -> list[ToolClaim]:
        ranks = sorted(rank for rank, hangs in self.hanging.items() if hangs)
        if not ranks:
            return []
        hosts = tuple(dict.fromkeys(host for rank in ranks if (host := self.hanging_hosts[rank])))
        return [
            ToolClaim(
                tool="xpu_timer",
                text=f"XPU_TIMER_COMMON_HANG is 1 on {named_ranks(ranks)} of "
                f"{len(self.hanging)}: the job hangs there",
                path=self.path,
                ranks=tuple(ranks),
                hosts=hosts,
                rule="a kernel that was launched did not end in xpu_timer's time limit; who waits and who is waited for "
                "look the same",
            )
        ]


def _place(series: _Series) -> tuple[object, ...]:
    gpu = series.gpu
    return (series.meaning.metric, gpu.host, gpu.index, gpu.uuid, gpu.pci, series.pod, series.job)


def shared_hosts(found: Sequence[GpuSeries]) -> set[str]:
    """Names at which one index is two GPUs by their UUIDs at the same time; one that follows another was exchanged."""
    spans: dict[tuple[str, int], dict[str, tuple[float, float]]] = {}
    for series in found:
        gpu = series.gpu
        if gpu.host is None or gpu.index is None or gpu.uuid is None:
            continue
        times = series.utc_s[~np.isnan(series.utc_s)]
        begin, end = (float(times[0]), float(times[-1])) if len(times) else (-np.inf, np.inf)
        of_index = spans.setdefault((gpu.host, gpu.index), {})
        known = of_index.get(gpu.uuid, (begin, end))
        of_index[gpu.uuid] = (min(known[0], begin), max(known[1], end))
    shared = set()
    for (host, _), of_index in spans.items():
        in_order = sorted(of_index.values())
        if any(later[0] < earlier[1] for earlier, later in pairwise(in_order)):
            shared.add(host)
    return shared


def _in_order(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """By time, each time once (two Prometheus servers scrape alike); of samples without a time the last one."""
    if len(times) and np.isnan(times).all():
        return times[-1:], values[-1:]
    known = ~np.isnan(times)
    distinct, first = np.unique(times[known], return_index=True)
    return distinct, values[known][first]

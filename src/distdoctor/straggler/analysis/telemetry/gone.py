"""Whose samples stop while those of the others go on? The GPU, its host or its exporter may be lost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distdoctor.straggler.analysis.telemetry.gpu_panel import OneGpu, Panel
from distdoctor.straggler.analysis.telemetry.job_time import MIN_BINS

# So many of the GPUs go on to the end at least; else it is the recording that ends. Our own threshold.
GO_ON_SHARE = 0.75

# To the end: all but so many bins.
AT_END_BINS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """One GPU of the job that is no longer recorded."""

    row: int
    """Of the panel."""
    last_s: float
    """Its last sample, seconds since 1970 UTC."""
    others_s: float
    """For how long the others go on."""


def gone_gpus(panel: Panel, *, from_s: float | None = None) -> list[Gone]:
    """GPUs that worked and of which nothing is recorded while the job runs on, for `MIN_BINS` at least."""
    last = np.array([_last(one) for one in panel.gpus])
    end = float(last.max())
    if np.mean(last >= end - AT_END_BINS * panel.width_s) < GO_ON_SHARE:
        return []
    begins = panel.begin_s + panel.width_s * np.arange(len(panel.active))
    found = []
    for row in np.flatnonzero(panel.belongs & (last < end - MIN_BINS * panel.width_s)):
        moment = float(last[row])
        runs_on = int(np.sum(panel.active & (begins > moment)))
        worked = int(panel.working[row].sum())
        if runs_on >= MIN_BINS and worked >= MIN_BINS and (from_s is None or moment >= from_s):
            found.append(Gone(row=int(row), last_s=moment, others_s=end - moment))
    return found


def _last(one: OneGpu) -> float:
    ends = [float(times[-1]) for times, _ in one.samples.values()]
    ends += [float(times[-1]) for each in one.counters.values() for times, _ in each]
    return max(ends)

"""Which GPUs reported an Xid while they were recorded? The gauge keeps the last one for ever.

An exporter may give a GPU its series of Xids only after the first one. Such a series that begins in the middle of the
recording is an Xid that came up then, unless everything else of the GPU begins there too, or was away just before: then
the exporter, or the query, begins there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.telemetry.gpu_panel import OneGpu, Panel
from distdoctor.straggler.facts.telemetry import Metric

# Bins before the series begins in which the GPU's other metrics have samples, nearly all of them. Our own thresholds.
BINS_BEFORE = 5
SEEN_BEFORE = 0.8


def xids_that_came_up(panel: Panel, *, from_s: float | None = None) -> dict[int, float]:
    """Row → the last Xid of GPUs on which it changed, or came up, in the time looked at."""
    range_begins = _begins_without_xid(panel)
    found = {}
    for row, one in enumerate(panel.gpus):
        if Metric.XID not in one.samples:
            continue
        times, values = one.samples[Metric.XID]
        if values[-1] <= 0:
            continue
        moments = times[1:][values[1:] != values[:-1]].tolist()
        if values[0] > 0 and _born(one, times[0], panel.width_s, range_begins):
            moments.append(float(times[0]))
        if any(from_s is None or moment >= from_s for moment in moments):
            found[row] = float(values[-1])
    return found


def _begins_without_xid(panel: Panel) -> NDArray[np.float64]:
    """When series begin that tell no Xid: the exporter writes them for all GPUs, and the query begins there."""
    series = [one.samples[Metric.XID] for one in panel.gpus if Metric.XID in one.samples]
    return np.array(sorted(float(times[0]) for times, values in series if values[0] == 0), dtype=np.float64)


def _born(one: OneGpu, moment: float, width_s: float, range_begins: NDArray[np.float64]) -> bool:
    at = int(np.searchsorted(range_begins, moment - 2 * width_s))
    if at < len(range_begins) and range_begins[at] <= moment + 2 * width_s:
        return False
    others = [times for metric, (times, _) in one.samples.items() if metric is not Metric.XID]
    for times in others:
        before = times[(times < moment) & (times >= moment - BINS_BEFORE * width_s)]
        bins = np.unique(np.floor((moment - before) / width_s))
        if len(bins) >= SEEN_BEFORE * BINS_BEFORE:
            return True
    return False

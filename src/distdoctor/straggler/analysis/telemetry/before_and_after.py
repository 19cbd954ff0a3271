"""What changed at a time that somebody asks about: one GPU beside the others, or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distdoctor.straggler.analysis.peer_median import row_medians
from distdoctor.straggler.analysis.telemetry.gpu_panel import Panel
from distdoctor.straggler.analysis.telemetry.job_time import MIN_BINS
from distdoctor.straggler.analysis.telemetry.oddity import FLOORS
from distdoctor.straggler.analysis.telemetry.others import relative_to_others
from distdoctor.straggler.facts.telemetry import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a GPU did before and after a time, as a share of what the others did; both are medians."""

    row: int
    metric: Metric
    before: float
    """0.99: 1 % less than the others."""
    after: float


def changes(panel: Panel, around_s: float, metrics: Sequence[Metric] = tuple(FLOORS)) -> list[Change]:
    """GPUs that were like the others and no longer are, or the reverse; needs `MIN_BINS` on both sides."""
    after = panel.bins_from(around_s)
    found = []
    for metric in metrics:
        table = panel.values.get(metric)
        if table is None:
            continue
        ratio = relative_to_others(table, panel.working)
        before_enough = np.sum(~np.isnan(ratio[:, ~after]), axis=1) >= MIN_BINS
        after_enough = np.sum(~np.isnan(ratio[:, after]), axis=1) >= MIN_BINS
        first, second = row_medians(ratio[:, ~after]), row_medians(ratio[:, after])
        for row in np.flatnonzero(before_enough & after_enough):
            if abs(float(second[row]) / float(first[row]) - 1) >= FLOORS[metric]:
                found.append(
                    Change(row=int(row), metric=metric, before=float(first[row]), after=float(second[row]))
                )
    return found


def common_change(panel: Panel, around_s: float, metric: Metric) -> tuple[float, float] | None:
    """Median of all working GPUs before and after; None when too little was recorded on a side."""
    table = panel.values.get(metric)
    if table is None:
        return None
    block = np.where(panel.working, table, np.float32(np.nan))
    after = panel.bins_from(around_s)
    sides = []
    for side in (~after, after):
        per_bin = row_medians(np.ascontiguousarray(block[:, side].T).astype(np.float32))
        seen = per_bin[np.isfinite(per_bin)]
        if len(seen) < MIN_BINS:
            return None
        sides.append(float(np.median(seen)))
    return sides[0], sides[1]

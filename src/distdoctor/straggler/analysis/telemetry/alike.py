"""In which metrics are the GPUs of a job really alike, and do they fall into two groups by their clock?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import row_medians
from distdoctor.straggler.analysis.telemetry.gpu_panel import Panel
from distdoctor.straggler.analysis.telemetry.job_time import MIN_BINS, MIN_GPUS
from distdoctor.straggler.analysis.telemetry.others import others_of
from distdoctor.straggler.facts.telemetry import Metric

# Each group holds at least this share of the GPUs, the slower one more: fewer stand out by themselves. Our own.
GROUP_SHARE = 0.25

# The clocks of two groups are so far apart, and in this share of the time. Our own thresholds.
GROUP_GAP = 0.10
GROUP_LASTS = 0.8

# Two groups differ in power or activity by this share. Our own threshold.
WORK_DIFFERS = 0.15


# A GPU that is unlike the others for less of its time is alike. Our own threshold.
ODD_TIME_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """The medians under load of the GPUs of a panel in one metric."""

    low: float
    high: float
    is_alike: bool
    """No GPU is further from the middle one than the floor."""
    odd_row: int
    """The GPU that is beyond the floor for the largest share of its time."""
    odd_share: float
    """By how much that share is larger than the others': when phases change, samples of all differ for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoGroups:
    """GPUs that run at one clock while the others run at another."""

    slow: tuple[int, ...]
    """Rows of the panel."""
    fast: tuple[int, ...]
    slow_mhz: float
    fast_mhz: float
    share: float
    """In which share of the time."""
    slow_power: float
    """The slower group's median power as a share of the faster group's; NaN without power."""
    slow_activity: float
    """The same of SM activity."""


def levels_of(
    panel: Panel, working: NDArray[np.bool_], floors: Mapping[Metric, float], absolute: Mapping[Metric, float]
) -> dict[Metric, Levels]:
    """`floors`: shares of the middle GPU; `absolute`: in the unit of the metric."""
    found = {}
    for metric in (*floors, *absolute):
        if metric not in panel.values:
            continue
        block = np.where(working, panel.values[metric], np.float32(np.nan)).astype(np.float32)
        medians = row_medians(block)
        known = medians[np.isfinite(medians)]
        if not len(known):
            continue
        middle = float(np.median(known))
        others = others_of(block)
        with np.errstate(invalid="ignore"):
            floor = absolute[metric] if metric in absolute else floors[metric] * others
            beyond = np.sum(np.abs(block - others) >= floor, axis=1)
        share = beyond / np.maximum(np.sum(np.isfinite(block), axis=1), 1)
        low, high = float(known.min()), float(known.max())
        most = absolute[metric] if metric in absolute else floors[metric] * middle
        found[metric] = Levels(
            low=low,
            high=high,
            is_alike=high == low or max(high - middle, middle - low) < most,
            odd_row=int(np.argmax(share)),
            odd_share=float(share.max() - np.median(share[np.isfinite(medians)])),
        )
    return found


def two_clock_groups(panel: Panel, working: NDArray[np.bool_]) -> TwoGroups | None:
    """The two groups, when there are two; None when all run alike, in more groups, or a few stand out."""
    table = panel.values.get(Metric.SM_CLOCK)
    if table is None:
        return None
    block = np.where(working, table, np.float32(np.nan))
    medians = row_medians(block)
    enough = np.sum(~np.isnan(block), axis=1) >= MIN_BINS
    rows = np.flatnonzero(np.isfinite(medians) & enough)
    if len(rows) < MIN_GPUS:
        return None
    rows = rows[np.argsort(medians[rows], kind="stable")]
    clocks = medians[rows].astype(np.float64)
    gaps = clocks[:-1] / clocks[1:]
    at = int(np.argmin(gaps)) + 1
    few_slow, few_fast = at <= GROUP_SHARE * len(rows), len(rows) - at < GROUP_SHARE * len(rows)
    if gaps[at - 1] > 1 - GROUP_GAP or few_slow or few_fast:
        return None
    slow, fast = rows[:at], rows[at:]
    ratio = _ratio(block, slow, fast)
    ratio = ratio[np.isfinite(ratio)]
    if len(ratio) < MIN_BINS or np.mean(ratio <= 1 - GROUP_GAP) < GROUP_LASTS:
        return None
    return TwoGroups(
        slow=tuple(sorted(slow.tolist())),
        fast=tuple(sorted(fast.tolist())),
        slow_mhz=float(np.median(clocks[:at])),
        fast_mhz=float(np.median(clocks[at:])),
        share=float(np.mean(ratio <= 1 - GROUP_GAP)),
        slow_power=_beside(panel, working, Metric.POWER, slow, fast),
        slow_activity=_beside(panel, working, Metric.SM_ACTIVE, slow, fast),
    )


def _ratio(
    block: NDArray[np.float32], slow: NDArray[np.int64], fast: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(bins,): the slower group's median over the faster group's; NaN where either is missing."""
    sides = [row_medians(np.ascontiguousarray(block[rows].T)).astype(np.float64) for rows in (slow, fast)]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sides[0] / sides[1])


def _beside(
    panel: Panel, working: NDArray[np.bool_], metric: Metric, slow: NDArray[np.int64], fast: NDArray[np.int64]
) -> float:
    table = panel.values.get(metric)
    if table is None:
        return float("nan")
    ratio = _ratio(np.where(working, table, np.float32(np.nan)), slow, fast)
    known = ratio[np.isfinite(ratio)]
    return float(np.median(known)) if len(known) else float("nan")

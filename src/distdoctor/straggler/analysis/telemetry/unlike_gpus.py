"""Which GPU is unlike the others of its model and job in what monitoring recorded? Pure functions over arrays.

Utilisation says nothing here: a collective that waits keeps a GPU at 100 %. What differs between one that works and
one that waits is how much of it is active, and so its power. Without step times none of this proves a slow rank.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import row_medians
from distdoctor.straggler.analysis.telemetry.alike import (
    Levels,
    TwoGroups,
    levels_of,
    two_clock_groups,
)
from distdoctor.straggler.analysis.telemetry.counter_growth import growth
from distdoctor.straggler.analysis.telemetry.gpu_panel import Panel
from distdoctor.straggler.analysis.telemetry.job_time import LIGHT_UTILISATION, MIN_BINS, MIN_GPUS
from distdoctor.straggler.analysis.telemetry.oddity import (
    FLOORS,
    ODD_SHARE,
    TEMPERATURE_FLOOR_C,
    CommonReason,
    Oddity,
    Sign,
)
from distdoctor.straggler.analysis.telemetry.others import others_of, relative_to_others
from distdoctor.straggler.analysis.telemetry.throttle_reasons import odd_reasons
from distdoctor.straggler.analysis.telemetry.xids import xids_that_came_up
from distdoctor.straggler.facts.telemetry import Metric

# Beyond the peers by so many robust standard deviations of GPUs as well as by the floors below, and in this share of
# the time by half the floor. Our own thresholds.
ODD_SCALES = 5.0
LASTING_SHARE = 0.8
# Held back in this share of the time, and by so much more than the peers. Our own thresholds.
HELD_BACK_SHARE = 0.05
HELD_BACK_MORE = {Metric.THERMAL_VIOLATION: 0.05, Metric.POWER_VIOLATION: 0.2}

# Errors that were counted while the job ran, on a GPU whose peers counted a tenth or less. Our own threshold.
MIN_ERRORS = 10
ERRORS_TIMES = 10


def odd_gpus(panel: Panel, *, from_s: float | None = None) -> tuple[list[Oddity], list[CommonReason]]:
    """GPUs that are unlike the others, worst sign first. Only what was recorded from `from_s` on counts, if given.

    Comparisons need `enough(panel)`; reasons, Xids and failed row remaps are told of any GPU.
    """
    working = panel.working & panel.bins_from(from_s)
    reasons, common = odd_reasons(panel, from_s)
    found = [*reasons, *_errors(panel, from_s), *_faults(panel, from_s), *_idle(panel)]
    if enough(panel, from_s=from_s) is None:
        found += _held_back(panel, from_s)
        found += _clock(panel, working)
        found += _hot(panel, working)
        found += _activity(panel, working)
    order = list(Sign)
    return sorted(found, key=lambda each: (order.index(each.sign), each.row)), common


def enough(panel: Panel, *, from_s: float | None = None) -> str | None:
    """None when GPUs of the panel can be compared; else why not."""
    num = int(panel.belongs.sum())
    model = panel.model or "unknown model"
    if not panel.load_known:
        return f"{model}: neither utilisation nor power was exported, and so nobody knows when GPUs work"
    if num == 0 and panel.busy.any():
        return f"{model}: GPUs are under load, but never {MIN_GPUS} of them together for long"
    if num == 0:
        return f"{model}: no GPU is under load in this time"
    if num < MIN_GPUS:
        return f"{model}: {num} GPU{'s' if num > 1 else ''} under load, {MIN_GPUS} are needed to tell which is unlike the others"
    bins = int(np.sum(panel.working[panel.belongs].sum(axis=0)[panel.bins_from(from_s)] >= MIN_GPUS))
    if bins < MIN_BINS:
        return (
            f"{model}: samples of {bins} stretches of {panel.width_s:.0f} s under load, {MIN_BINS} are needed"
        )
    return None


def _odd_rows(ratio: NDArray[np.float32], floor: float, sign: int) -> list[tuple[int, float, float]]:
    """Rows beyond the floor in the direction of `sign`: (row, effect, share of the time)."""
    effects = row_medians(ratio - 1)
    num_bins = np.sum(~np.isnan(ratio), axis=1)
    known = np.isfinite(effects) & (num_bins >= MIN_BINS)
    if known.sum() < MIN_GPUS:
        return []
    seen = effects[known]
    scale = 1.4826 * float(np.median(np.abs(seen - np.median(seen))))
    least = max(floor, ODD_SCALES * scale)
    with np.errstate(invalid="ignore"):
        lasting = np.sum(sign * (ratio - 1) >= floor / 2, axis=1) / np.maximum(num_bins, 1)
        odd = known & (sign * effects >= least) & (lasting >= LASTING_SHARE)
    if odd.sum() > ODD_SHARE * known.sum():
        return []
    return [(int(row), float(effects[row]), float(lasting[row])) for row in np.flatnonzero(odd)]


def _gauges(
    panel: Panel, working: NDArray[np.bool_], metric: Metric, direction: int, sign: Sign
) -> list[Oddity]:
    table = panel.values.get(metric)
    if table is None:
        return []
    ratio = relative_to_others(table, working)
    middle = row_medians(np.where(working, table, np.float32(np.nan)))
    found = []
    for row, effect, share in _odd_rows(ratio, FLOORS[metric], direction):
        value = float(middle[row])
        found.append(
            Oddity(sign=sign, row=row, value=value, peers=value / (1 + effect), metric=metric, share=share)
        )
    return found


def _clock(panel: Panel, working: NDArray[np.bool_]) -> list[Oddity]:
    return _gauges(panel, working, Metric.SM_CLOCK, -1, Sign.LOW_CLOCK)


def _activity(panel: Panel, working: NDArray[np.bool_]) -> list[Oddity]:
    """Who works while the others wait, or less than they do; activity itself where it is recorded, and power."""
    found: list[Oddity] = []
    for metric in (Metric.SM_ACTIVE, Metric.TENSOR_ACTIVE, Metric.POWER):
        found += _gauges(panel, working, metric, +1, Sign.WORKS_MORE)
        found += _gauges(panel, working, metric, -1, Sign.WORKS_LESS)
    return found


def _hot(panel: Panel, working: NDArray[np.bool_]) -> list[Oddity]:
    table = panel.values.get(Metric.TEMPERATURE)
    if table is None:
        return []
    block = np.where(working, table, np.float32(np.nan)).astype(np.float32)
    above = block - others_of(block)
    middle = row_medians(block)
    # As a share of the floor, so that the rule for ratios holds: 1 + excess / 10 C.
    rows = _odd_rows(np.asarray(1 + above / np.float32(TEMPERATURE_FLOOR_C)), 1.0, +1)
    return [
        Oddity(
            sign=Sign.HOT,
            row=row,
            value=float(middle[row]),
            peers=float(middle[row]) - effect * TEMPERATURE_FLOOR_C,
            metric=Metric.TEMPERATURE,
            share=share,
        )
        for row, effect, share in rows
    ]


def levels(panel: Panel, from_s: float | None) -> dict[Metric, Levels]:
    """How far the GPUs under load are apart in what is compared."""
    working = panel.working & panel.bins_from(from_s)
    return levels_of(panel, working, FLOORS, {Metric.TEMPERATURE: TEMPERATURE_FLOOR_C})


def clock_groups(panel: Panel, from_s: float | None) -> TwoGroups | None:
    """GPUs under load in two groups by their clock, where they can be compared."""
    if enough(panel, from_s=from_s) is not None:
        return None
    return two_clock_groups(panel, panel.working & panel.bins_from(from_s))


def _growths(panel: Panel, metric: Metric, from_s: float | None) -> dict[int, list[tuple[float, float]]]:
    """Row → growth and seconds of each counter of this kind while the job ran."""
    told: dict[int, list[tuple[float, float]]] = {}
    for row in np.flatnonzero(panel.belongs):
        counters = panel.gpus[row].counters.get(metric, [])
        grown = [growth(*panel.while_active(*counter, from_s)) for counter in counters]
        if any(seconds > 0 for _, seconds in grown):
            told[int(row)] = [(count, seconds) for count, seconds in grown if seconds > 0]
    return told


def _held_back(panel: Panel, from_s: float | None) -> list[Oddity]:
    """Shares of the time from the driver's counters of nanoseconds; shares above 1 are another unit, and none.

    Of several counters (heat by hardware and by software) the larger counts: they may run at the same time.
    """
    found = []
    for metric, sign in (
        (Metric.THERMAL_VIOLATION, Sign.HELD_BY_HEAT),
        (Metric.POWER_VIOLATION, Sign.HELD_BY_POWER),
    ):
        shares = {
            row: max(grown / 1e9 / seconds for grown, seconds in of_gpu)
            for row, of_gpu in _growths(panel, metric, from_s).items()
        }
        if len(shares) < MIN_GPUS or max(shares.values()) > 1.05:
            continue
        odd = []
        for row, share in shares.items():
            peers = float(np.median([other for each, other in shares.items() if each != row]))
            if share >= HELD_BACK_SHARE and share - peers >= HELD_BACK_MORE[metric]:
                odd.append(Oddity(sign=sign, row=row, value=share, peers=peers, metric=metric, share=share))
        if len(odd) <= ODD_SHARE * len(shares):
            found += odd
    return found


def _errors(panel: Panel, from_s: float | None) -> list[Oddity]:
    found = []
    for metric in (Metric.NVLINK_ERRORS, Metric.PCIE_REPLAYS):
        grown = {
            row: sum(count for count, _ in of_gpu) for row, of_gpu in _growths(panel, metric, from_s).items()
        }
        for row, count in grown.items():
            others = [other for each, other in grown.items() if each != row]
            peers = float(np.median(others)) if others else 0.0
            if others and count >= MIN_ERRORS and count >= ERRORS_TIMES * peers:
                found.append(Oddity(sign=Sign.LINK_ERRORS, row=row, value=count, peers=peers, metric=metric))
    return found


def _faults(panel: Panel, from_s: float | None) -> list[Oddity]:
    """The last Xid, where it came up during the recording, and failed row remaps."""
    appeared = xids_that_came_up(panel, from_s=from_s)
    found = [
        Oddity(sign=Sign.XID, row=row, value=xid, peers=0.0, metric=Metric.XID)
        for row, xid in appeared.items()
    ]
    for row, one in enumerate(panel.gpus):
        _, flags = one.samples.get(Metric.ROW_REMAP_FAILURE, (np.empty(0), np.empty(0)))
        if len(flags) and flags[-1] > 0:
            found.append(
                Oddity(
                    sign=Sign.ROW_REMAP,
                    row=row,
                    value=float(flags[-1]),
                    peers=0.0,
                    metric=Metric.ROW_REMAP_FAILURE,
                )
            )
    return found


def _idle(panel: Panel) -> list[Oddity]:
    """GPUs that do nothing, or little, although the evidence says that they belong to the job whose others work."""
    table = panel.values.get(Metric.UTILISATION)
    if panel.job is None or table is None or panel.belongs.sum() < MIN_GPUS:
        return []
    rows = np.flatnonzero(~panel.belongs & (panel.seen > 0))
    if len(rows) > ODD_SHARE * len(panel.gpus):
        return []
    middle = row_medians(np.where(panel.active, table, np.float32(np.nan)).astype(np.float32))
    peers = float(np.median(middle[panel.belongs]))
    found = []
    for row in rows:
        value = float(middle[row])
        nothing = bool(panel.idle[row]) and value < LIGHT_UTILISATION
        if np.isfinite(value) and value < peers:
            sign = Sign.IDLE if nothing else Sign.WORKS_LESS
            found.append(Oddity(sign=sign, row=int(row), value=value, peers=peers, metric=Metric.UTILISATION))
    return found

"""When does the job run, and which GPUs take part in it? From who is busy when; arrays have shape (gpus, bins)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.telemetry import Metric

# To say who is unlike the others, so many GPUs and so many common bins of time. Our own thresholds.
MIN_GPUS = 4
MIN_BINS = 10

# A GPU runs something: NVML's utilisation is 100 % while any kernel is there, waiting collectives too. Without it,
# power above this share of the limit (an H100 idles at 70 of 700 W), or of the most that peers draw. Our own
# thresholds.
BUSY_UTILISATION = 80.0
BUSY_POWER_SHARE = 0.25
BUSY_SM_ACTIVE = 0.2

# Below `BUSY_UTILISATION` and above this, a GPU with gaps between its kernels is busy when it is active, or draws so
# much of its limit. Our own thresholds.
LIGHT_UTILISATION = 20.0
LIGHT_POWER_SHARE = 0.4

LOAD = (Metric.UTILISATION, Metric.POWER, Metric.SM_ACTIVE)

# The job runs while at least this share of the GPUs is busy; a GPU belongs to it when it is busy in this share of
# that time, and idles when it is busy in less than the last. Our own thresholds.
ACTIVE_SHARE = 0.5
BELONGS_SHARE = 0.5
IDLE_SHARE = 0.1

# Where most GPUs never work, those count that are busy for this share of the time that the busiest is. Our own.
EVER_SHARE = 0.25

Values = Mapping[Metric, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """When the job runs, shape (bins,), and what each GPU does then, shape (gpus,)."""

    active: NDArray[np.bool_]
    belongs: NDArray[np.bool_]
    idle: NDArray[np.bool_]
    seen: NDArray[np.float64]
    """In which share of the time that the job runs it has samples."""


def job_time(busy: NDArray[np.bool_], has: NDArray[np.bool_]) -> JobTime:
    """`has`: where a GPU has samples. Without enough time of any kind the first that holds some."""
    first: JobTime | None = None
    for active, least in _times(busy, has):
        found = _of(busy, has, active, least)
        if active.sum() >= MIN_BINS and found.belongs.sum() >= MIN_GPUS:
            return found
        if first is None and active.any():
            first = found
    return first if first is not None else _of(busy, has, np.zeros(busy.shape[1], dtype=bool), None)


def _times(busy: NDArray[np.bool_], has: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], int | None]]:
    """Kinds of time in which a job may run, and of the last in how many bins a GPU has to be busy."""
    num_seen, num_busy = has.sum(axis=0), busy.sum(axis=0)
    yield (num_seen > 0) & (num_busy >= ACTIVE_SHARE * np.maximum(num_seen, 1)), None
    # A small job in the export of a large cluster.
    bins_busy = busy.sum(axis=1)
    ever = bins_busy >= max(1.0, EVER_SHARE * float(bins_busy.max(initial=0)))
    ever_seen = has[ever].sum(axis=0)
    yield (ever_seen > 0) & (busy[ever].sum(axis=0) >= ACTIVE_SHARE * np.maximum(ever_seen, 1)), None
    # Jobs one after another, each on GPUs of its own.
    yield num_busy >= MIN_GPUS, MIN_BINS


def _of(
    busy: NDArray[np.bool_], has: NDArray[np.bool_], active: NDArray[np.bool_], least: int | None
) -> JobTime:
    seen_active = (has & active).sum(axis=1)
    bins_busy = (busy & active).sum(axis=1)
    share = bins_busy / np.maximum(seen_active, 1)
    belongs = share >= BELONGS_SHARE if least is None else bins_busy >= least
    return JobTime(
        active=active,
        belongs=np.asarray((seen_active > 0) & belongs),
        idle=np.asarray((seen_active > 0) & (share < IDLE_SHARE)),
        seen=np.asarray(seen_active / max(1, int(active.sum()))),
    )


def busy_of(values: Values, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """By utilisation, where it is neither high nor low by activity or power; without it by power, then by activity."""
    busy, known = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)

    def tell(table: NDArray[np.float32], is_busy: NDArray[np.bool_]) -> None:
        new = ~known & ~np.isnan(table)
        busy[new] = is_busy[new]
        known[new] = True

    with np.errstate(invalid="ignore"):
        if Metric.UTILISATION in values:
            load = values[Metric.UTILISATION]
            tell(
                load, (load >= BUSY_UTILISATION) | ((load >= LIGHT_UTILISATION) & _is_at_work(values, shape))
            )
        if Metric.POWER in values:
            tell(values[Metric.POWER], values[Metric.POWER] >= BUSY_POWER_SHARE * _full_power(values))
        if Metric.SM_ACTIVE in values:
            tell(values[Metric.SM_ACTIVE], values[Metric.SM_ACTIVE] >= BUSY_SM_ACTIVE)
    return busy


def _is_at_work(values: Values, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Active, or at a good share of its power; without a limit that share is of the most that peers draw."""
    at_work = np.zeros(shape, dtype=bool)
    if Metric.POWER in values:
        at_work = values[Metric.POWER] >= LIGHT_POWER_SHARE * _full_power(values)
    if Metric.SM_ACTIVE in values:
        active = values[Metric.SM_ACTIVE]
        at_work = np.where(np.isnan(active), at_work, active >= BUSY_SM_ACTIVE)
    return np.asarray(at_work)


def _full_power(values: Values) -> NDArray[np.float32]:
    power = values[Metric.POWER]
    most = float(np.nanpercentile(power, 99)) if np.any(~np.isnan(power)) else np.nan
    limit = values.get(Metric.POWER_LIMIT, np.full_like(power, np.nan))
    return np.where(np.isnan(limit), np.float32(most), limit)

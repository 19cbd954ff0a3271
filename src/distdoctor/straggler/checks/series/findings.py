"""What one log shows: its series as outcomes of three checks, and in one line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from distdoctor.report.checking import Found, Outcome
from distdoctor.straggler.analysis.series.regimes import (
    LEAST_TIME,
    MOST_TIME,
    SeriesShape,
    rounding_of,
    shape_of,
)
from distdoctor.straggler.analysis.series.running import Values
from distdoctor.straggler.checks.series.periodic import periodic_outcomes
from distdoctor.straggler.checks.series.regime import regime_outcomes
from distdoctor.straggler.checks.series.stall import stall_outcomes
from distdoctor.straggler.checks.series.words import Told, value_words, warmup_words
from distdoctor.straggler.facts.series import JobSeries, SeriesKind

# A running mean hides stalls; its name gives it away before its values do.
_AVERAGES = ("avg", "average", "mean", "running")

# Not the speed of training.
_OTHER_WORK = ("valid", "eval", "test", "init", "warmup", "checkpoint")

# Values of a second series that a change is confirmed with, on each side.
_MIN_BESIDE = 4


def series_outcomes(
    series: JobSeries, *, around_s: float | None = None, beside: Sequence[JobSeries] = ()
) -> Sequence[Outcome]:
    """What a series shows, by all three checks in the order regime, stall, periodic.

    around_s: when somebody noticed it, seconds since 1970 UTC. beside: other series of the same run; a throughput
    tells a larger batch from a slowdown.
    """
    shape, told = analysed(series, around_s=around_s, beside=beside)
    return [*regime_outcomes(shape, told), *stall_outcomes(shape, told), *periodic_outcomes(shape, told)]


def analysed(
    series: JobSeries, *, around_s: float | None = None, beside: Sequence[JobSeries] = ()
) -> tuple[SeriesShape, Told]:
    """The shape of a series, and what else its log tells. A rate becomes the time of its typical amount of work."""
    values = series.values.astype(np.float64)
    good = (values > LEAST_TIME) & (values < MOST_TIME)
    times, scale, quantum = values, 1.0, rounding_of(values[good])
    if series.kind is SeriesKind.RATE:
        typical = float(np.median(values[good])) if good.any() else 1.0
        # One typical unit takes the time 1; what is told is turned back by the same scale.
        scale = typical
        times = np.full_like(values, np.nan)
        times[good] = typical / values[good]
        good &= (times > LEAST_TIME) & (times < MOST_TIME)
        quantum = quantum / typical
    shape = shape_of(series.steps, times, utc_s=series.utc_s, quantum=quantum)
    told = Told(
        what=series.name,
        kind=series.kind,
        unit=series.unit,
        rate_scale=scale,
        source=series.path or series.source,
        zone_known=series.zone_known,
        printed_by=series.printed_by,
        steps_per_value=series.steps_per_value,
        around_s=around_s,
        rate_ratios=_rate_ratios(shape, series, beside),
        parts={name: part[good] for name, part in series.splits.items() if part.shape == good.shape},
    )
    return shape, told


def primary_series(series: Iterable[JobSeries]) -> tuple[JobSeries, ...]:
    """One series for each file: a log that tells step time and throughput gives one finding, not two.

    Step times rather than rates (they need no unit of work), single values rather than means, training rather than
    validation, and of those left the longest.
    """
    by_path: dict[str, list[JobSeries]] = {}
    for each in series:
        by_path.setdefault(each.path, []).append(each)
    return tuple(max(group, key=_worth) for group in by_path.values())


def _worth(series: JobSeries) -> tuple[bool, bool, bool, bool, int]:
    name = series.name.lower()
    values = series.values
    num = int((np.isfinite(values) & (values > 0)).sum())
    return (
        num > 0,
        not any(word in name for word in _OTHER_WORK),
        not any(word in name for word in _AVERAGES),
        series.kind is SeriesKind.TIME,
        num,
    )


def one_line(shape: SeriesShape, told: Told) -> str:
    """In plain words what the series shows: its findings, the worst first, or that it is flat."""
    if shape.too_few:
        return f"{told.what}: {shape.num_judged} values are too few to judge"
    outcomes = [*regime_outcomes(shape, told), *stall_outcomes(shape, told), *periodic_outcomes(shape, told)]
    found = [each for each in outcomes if isinstance(each, Found)]
    usual = value_words(float(np.median(shape.times[shape.num_warm_up :])), told)
    if not found:
        start = f"; {warmup_words(shape)}" if shape.num_warm_up else ""
        return f"{told.what}: flat at {usual} over {shape.num_judged} values{start}"
    order = ["critical", "warning", "info"]
    found.sort(key=lambda each: order.index(each.severity.value))
    return f"{told.what}: " + "; ".join(each.title for each in found)


def _rate_ratios(shape: SeriesShape, series: JobSeries, beside: Sequence[JobSeries]) -> dict[int, float]:
    """How a throughput of the same run changed at each change of a step time."""
    rates = [each for each in beside if each.kind is SeriesKind.RATE and each is not series]
    if series.kind is not SeriesKind.TIME or not rates or shape.too_few:
        return {}
    rate = max(rates, key=_worth)
    found = {}
    for at, change in enumerate(shape.changes):
        before, after = shape.levels[at], shape.levels[at + 1]
        was = _median_between(rate, shape.steps[before.start], shape.steps[before.end - 1])
        now = _median_between(rate, shape.steps[after.start], shape.steps[after.end - 1])
        if not math.isnan(was) and not math.isnan(now):
            found[change.index] = now / was
    return found


def _median_between(rate: JobSeries, first: int, last: int) -> float:
    values: Values = rate.values[(rate.steps >= first) & (rate.steps <= last)]
    values = values[np.isfinite(values) & (values > 0)]
    return float(np.median(values)) if len(values) >= _MIN_BESIDE else math.nan

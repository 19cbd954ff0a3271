"""What least-and-most timers show: how far ranks are apart, how often, and whether always the same one is last."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.report.assemble import clip_title
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.analysis.ranks.gates import MIN_SHARE_OF_STEP
from distdoctor.straggler.checks.base import Found, Outcome, Passed, StragglerCheck, not_seen
from distdoctor.straggler.facts.series import Extremes, JobSeries, SeriesKind
from distdoctor.straggler.words import ms, percent

# Least and most of many healthy ranks are apart by some standard deviations: with 1 % spread and hundreds of ranks by
# 6 %. Our own threshold.
MIN_APART = 0.10

# Who is the worst must be the same in this share of so many reports before a rank is named.
MIN_SAME = 0.8
MIN_REPORTS = 20

# Units of times and rates of work. Temperatures and clocks differ among healthy GPUs by more than times do.
_OF_SPEED = frozenset(("ms", "s", "us", "TF", "TFLOP/s"))

_MS = {"ms": 1.0, "s": 1e3, "us": 1e-3}

# Timers of what is no part of each iteration, by parts of their names.
_OUTSIDE = ("checkpoint", "setup", "eval")

# Timers of a rank's own work, by parts of their names, and of what holds waiting. A timer around the whole schedule
# (Megatron-LM's forward-backward) holds the waiting for other stages and for collectives, so it is equal on all ranks.
_OWN_TIMERS = ("forward", "backward", "round trip", "rtt", "throughput", "etpt", "elapsed")
_COMMUNICATION = ("send", "recv", "reduce", "gather", "sync", "barrier", "loader")

# Least and most within this are one: no rank is slower. The floor of the rank analysis.
CLOSE = 0.03

# Ranks are close, or far apart, when they are so in this share of the reports: single ones hold a checkpoint or an
# evaluation. Our own choice.
NEARLY_ALL = 0.95

# Fewer reports in which ranks are far apart may be such single ones. Our own choice.
MIN_FAR = 3

# Compilation, allocation and caches make the first reports uneven; of few reports at most a quarter is left out.
WARM_UP = 2

# Beyond this a ratio says less than the two times: "19900 % more". Our own choice.
MAX_RATIO = 3.0

_WORD = re.compile(r"[a-z]+")

_ALL = "Megatron-LM: `--timing-log-level 2 --timing-log-option all` prints every rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    """Least and most at the reports that have both, without the first ones; arrays of shape (reports,)."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]
    apart: NDArray[np.float64]
    """The most over the least, less 1; infinite where the least is 0."""
    is_heavy: NDArray[np.bool_]
    """The difference is a share of the step that counts."""
    steps: NDArray[np.int64]
    worst: NDArray[np.int32] | None
    """The rank that was the worst; -1: not told."""

    @property
    def is_far(self) -> NDArray[np.bool_]:
        """Reports in which ranks are far apart, and it matters."""
        return (self.apart >= MIN_APART) & self.is_heavy


def check_extremes(facts: Analysed) -> Sequence[Outcome]:
    """A finding where ranks are far apart; a rank only if the reports name the same one again and again."""
    extremes = [each for each in facts.reading.extremes if len(each.steps) and each.unit in _OF_SPEED]
    if not extremes:
        return [not_seen("no timers of the least and the most of all ranks")]
    longest = _longest_ms(extremes, facts.reading.series)
    return [_outcome(each, longest.get(each.path)) for each in extremes]


def _outcome(extremes: Extremes, longest_ms: float | None) -> Outcome:
    spread = _spread(extremes, longest_ms)
    if spread is None:
        return not_seen(f"{extremes.name}: no two values to compare")
    far = spread.is_far
    num, num_far = len(far), int(np.sum(far))
    always = num_far >= NEARLY_ALL * num
    if not (always or (num_far >= MIN_FAR and num_far > (1 - NEARLY_ALL) * num)):
        return Passed(detail=f"{extremes.name}: {_close_words(spread, extremes, longest_ms)}")
    return _found(extremes, spread, always=always)


def _close_words(spread: _Spread, extremes: Extremes, longest_ms: float | None) -> str:
    counted = _counted(len(spread.apart))
    apart = _quantile(spread.apart, 0.5)
    gap_ms = _quantile(spread.high - spread.low, 0.5) * _MS.get(extremes.unit, math.nan)
    if apart >= MIN_APART and longest_ms:
        share = f"{percent(gap_ms / longest_ms)} of the longest time in the log ({ms(longest_ms)})"
        return f"least and most are {ms(gap_ms)} apart, {share}, in {counted}"
    num_far = int(np.sum(spread.is_far))
    but = f", farther in {num_far} of them" if num_far else ""
    return f"least and most are {percent(apart)} apart in {counted}{but}"


def _found(extremes: Extremes, spread: _Spread, *, always: bool) -> Found:
    far = spread.is_far
    num, num_far = len(far), int(np.sum(far))
    worst = _worst(spread.worst[far]) if spread.worst is not None else None
    named = worst is not None and worst[1] >= MIN_SAME and num_far >= MIN_REPORTS
    who = f"rank {worst[0]}" if worst is not None and named else "some rank"
    apart = _quantile(spread.apart[far], 0.5)
    low, high = _quantile(spread.low[far], 0.5), _quantile(spread.high[far], 0.5)
    if apart <= MAX_RATIO:
        much = f"{_much(extremes, apart)}{' than the fastest one' if always else ''}"
        text = f"the least and the most of all ranks are {percent(apart)} apart"
    else:
        much = _both(extremes, low, high)
        text = f"the least and the most of all ranks are {_value(low, extremes)} and {_value(high, extremes)}"
    part = "" if always else f" in {num_far} of {_counted(num)}"
    evidence = [
        Evidence(
            text=f"{extremes.name}: {text}, median of {_counted(num) if always else 'these reports'}",
            value=round(100 * apart, 2) if math.isfinite(apart) else None,
            unit="%" if math.isfinite(apart) else None,
            source=extremes.path,
        )
    ]
    if not always:
        steps = spread.steps[far]
        between = _quantile(spread.apart[~far], 0.5)
        evidence.append(
            Evidence(
                text=f"so in {num_far} of {_counted(num)}, the first at step {int(steps[0]):,}, the last at "
                f"{int(steps[-1]):,}; in the others {percent(between)} apart",
                source=extremes.path,
            )
        )
    if worst is not None:
        evidence.append(
            Evidence(
                text=f"rank {worst[0]} is the worst in {percent(worst[1])} of them", source=extremes.path
            )
        )
    return Found(
        key=extremes.name,
        title=clip_title(f"{who} {much}{part}"),
        severity=Severity.WARNING if named else Severity.INFO,
        confidence=Confidence.MEDIUM if named else Confidence.LOW,
        evidence=tuple(evidence),
        explanation="Only the least and the most are printed, so it cannot be seen how the other ranks are, nor whether "
        "the rank has a heavier pipeline stage."
        + ("" if named else " Who it is, and whether it is always the same one, is not shown."),
        actions=(Action(team=Team.JOB_OWNER, text=f"record every rank: {_ALL}"),),
        scope=Scope(ranks=(worst[0],)) if worst is not None and named else Scope(),
        cause_class="slow_rank" if named else "inconclusive",
        fault=Fault.UNKNOWN,
    )


def all_close(extremes: Sequence[Extremes]) -> float | None:
    """How far least and most are apart over the timers of own work, in nearly all reports.

    None when there is none, when one of them is not close, and when any other timer that is not of waiting (optimizer,
    input, the whole schedule) is far apart: the rank that is slow there is slow.
    """
    timers = [each for each in extremes if len(each.steps) and each.unit in _OF_SPEED]
    timers = [each for each in timers if not _waits(each.name) and not _is_outside(each.name)]
    longest = _longest_ms(timers)
    found = []
    for each in timers:
        longest_ms = longest.get(each.path)
        spread = _spread(each, longest_ms)
        if spread is None:
            continue
        is_own = _is_own(each.name) and not each.holds_waiting
        felt = _quantile(np.where(spread.is_heavy, spread.apart, 0.0), NEARLY_ALL)
        if felt >= (CLOSE if is_own else MIN_APART):
            return None
        if is_own:
            shares = (spread.high - spread.low) * _MS.get(each.unit, 0.0) / (longest_ms or 1.0)
            light = ~spread.is_heavy & (spread.apart >= CLOSE)
            found.append(_quantile(np.where(light, shares, spread.apart), NEARLY_ALL))
    return max(found, default=None)


def _waits(name: str) -> bool:
    """A timer of sends, receives or collectives."""
    return any(word in name.lower() for word in _COMMUNICATION)


def _is_own(name: str) -> bool:
    """A timer of computing. Timers of sends, receives, collectives and of the whole schedule hold waiting."""
    lowered = name.lower()
    if _waits(name) or {"forward", "backward"} <= set(_WORD.findall(lowered)):
        return False
    return any(word in lowered for word in _OWN_TIMERS)


def _is_outside(name: str) -> bool:
    """Not a part of each iteration."""
    return any(word in name.lower() for word in _OUTSIDE)


def _spread(extremes: Extremes, longest_ms: float | None) -> _Spread | None:
    """What the reports tell; None when none has two values."""
    low, high = np.asarray(extremes.low, dtype=np.float64), np.asarray(extremes.high, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        known = np.isfinite(low) & np.isfinite(high) & (low >= 0) & (high >= low) & (high > 0)
    rows = np.flatnonzero(known)
    rows = rows[min(WARM_UP, len(rows) // 4) :]
    if not len(rows):
        return None
    low, high = low[rows], high[rows]
    with np.errstate(divide="ignore"):
        apart = high / low - 1
    is_heavy = np.ones(len(rows), dtype=bool)
    if longest_ms is not None and extremes.unit in _MS:
        is_heavy = (high - low) * _MS[extremes.unit] >= MIN_SHARE_OF_STEP * longest_ms
    ranks = extremes.high_rank if extremes.more_is_worse else extremes.low_rank
    return _Spread(
        low=low,
        high=high,
        apart=apart,
        is_heavy=is_heavy,
        steps=extremes.steps[rows],
        worst=None if ranks is None else ranks[rows],
    )


def _longest_ms(extremes: Sequence[Extremes], series: Sequence[JobSeries] = ()) -> dict[str, float]:
    """By file the longest of its timers and of its step, each a median: what a difference is weighed against."""
    medians = [
        (each.path, _usual(each.high) * _MS[each.unit])
        for each in extremes
        if each.unit in _MS and not _is_outside(each.name)
    ]
    medians += [
        (each.path, _usual(each.values) * _MS[each.unit])
        for each in series
        if each.kind is SeriesKind.TIME and each.unit in _MS
    ]
    longest: dict[str, float] = {}
    for path, value in medians:
        if value > longest.get(path, 0.0):
            longest[path] = value
    return longest


def _usual(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return _quantile(known, 0.5) if len(known) else 0.0


def _quantile(values: NDArray[np.float64], share: float) -> float:
    """The value that `share` of all do not exceed; one of them, so that infinities do no harm."""
    ordered = np.sort(values)
    return float(ordered[max(math.ceil(share * len(ordered)) - 1, 0)])


def _counted(num: int) -> str:
    return f"{num:,} report{'s' if num != 1 else ''}"


def _much(extremes: Extremes, apart: float) -> str:
    """ "takes 20 % more forward-compute", "has 17 % less estimated throughput"."""
    if extremes.more_is_worse:
        return f"takes {percent(apart)} more {extremes.name}"
    return f"has {percent(1 - 1 / (1 + apart))} less {extremes.name}"


def _both(extremes: Extremes, low: float, high: float) -> str:
    """ "takes 40 ms get_batch where the fastest takes 0.2 ms"."""
    verb, worst, best = ("takes", high, low) if extremes.more_is_worse else ("has", low, high)
    return (
        f"{verb} {_value(worst, extremes)} {extremes.name} where the fastest {verb} {_value(best, extremes)}"
    )


def _value(value: float, extremes: Extremes) -> str:
    return ms(value * _MS[extremes.unit]) if extremes.unit in _MS else f"{value:.3g} {extremes.unit}"


def _worst(ranks: NDArray[np.int32]) -> tuple[int, float] | None:
    """The rank that was the worst most often, and in what share of the reports."""
    values, counts = np.unique(ranks[ranks >= 0], return_counts=True)
    if not len(values):
        return None
    best = int(np.argmax(counts))
    return int(values[best]), float(counts[best]) / len(ranks)


CHECK = StragglerCheck(
    id="straggler-extremes", title="least and most of all ranks, as timers print them", run=check_extremes
)

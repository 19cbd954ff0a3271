"""What least-and-most timers show: how far ranks are apart, and whether always the same one is last."""

from __future__ import annotations

import re
from collections.abc import Sequence

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

_WORD = re.compile(r"[a-z]+")

_ALL = "Megatron-LM: `--timing-log-level 2 --timing-log-option all` prints every rank"


def check_extremes(facts: Analysed) -> Sequence[Outcome]:
    """A finding where ranks are far apart; a rank only if the reports name the same one again and again."""
    extremes = [each for each in facts.reading.extremes if len(each.steps) and each.unit in _OF_SPEED]
    if not extremes:
        return [not_seen("no timers of the least and the most of all ranks")]
    longest = _longest_ms(extremes, facts.reading.series)
    return [_outcome(each, longest.get(each.path)) for each in extremes]


def _outcome(extremes: Extremes, longest_ms: float | None) -> Outcome:
    apart = _apart(extremes)
    if apart is None:
        return not_seen(f"{extremes.name}: no two values to compare")
    reports = len(extremes.steps)
    counted = f"{reports} report{'s' if reports != 1 else ''}"
    if apart < MIN_APART:
        return Passed(detail=f"{extremes.name}: least and most are {percent(apart)} apart in {counted}")
    light = _light(extremes, longest_ms)
    if light is not None:
        return Passed(detail=f"{extremes.name}: least and most are {light} in {counted}")
    worst = _worst(extremes)
    named = worst is not None and worst[1] >= MIN_SAME and reports >= MIN_REPORTS
    who = f"rank {worst[0]}" if worst is not None and named else "some rank"
    text = f"{extremes.name}: the least and the most of all ranks are {percent(apart)} apart, median of {counted}"
    evidence = [Evidence(text=text, value=round(100 * apart, 2), unit="%", source=extremes.path)]
    if worst is not None:
        evidence.append(
            Evidence(
                text=f"rank {worst[0]} is the worst in {percent(worst[1])} of them", source=extremes.path
            )
        )
    return Found(
        key=extremes.name,
        title=clip_title(f"{who} {_much(extremes, apart)} than the fastest one"),
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
    """How far least and most are apart at most over the timers of own work; None when there is none or it is much."""
    own = [each for each in extremes if len(each.steps) and each.unit in _OF_SPEED and _is_own(each.name)]
    apart = [each for each in map(_apart, own) if each is not None]
    return max(apart) if apart and max(apart) < CLOSE else None


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
    return float(np.median(known)) if len(known) else 0.0


def _is_outside(name: str) -> bool:
    """Not a part of each iteration."""
    return any(word in name.lower() for word in _OUTSIDE)


def _light(extremes: Extremes, longest_ms: float | None) -> str | None:
    """ "0.1 ms apart, 0.01 % of the longest time in the log (1000 ms)"; None where the difference has weight."""
    if longest_ms is None or extremes.unit not in _MS:
        return None
    gap_ms = _usual(np.asarray(extremes.high) - np.asarray(extremes.low)) * _MS[extremes.unit]
    if gap_ms >= MIN_SHARE_OF_STEP * longest_ms:
        return None
    return f"{ms(gap_ms)} apart, {percent(gap_ms / longest_ms)} of the longest time in the log ({ms(longest_ms)}),"


def _is_own(name: str) -> bool:
    """A timer of computing. Timers of sends, receives, collectives and of the whole schedule hold waiting."""
    lowered = name.lower()
    if any(word in lowered for word in _COMMUNICATION) or {"forward", "backward"} <= set(
        _WORD.findall(lowered)
    ):
        return False
    return any(word in lowered for word in _OWN_TIMERS)


def _apart(extremes: Extremes) -> float | None:
    low, high = np.asarray(extremes.low), np.asarray(extremes.high)
    known = np.isfinite(low) & np.isfinite(high) & (low > 0) & (high >= low)
    return float(np.median(high[known] / low[known])) - 1 if known.any() else None


def _much(extremes: Extremes, apart: float) -> str:
    """ "takes 20 % more forward-compute", "has 17 % less estimated throughput"."""
    if extremes.more_is_worse:
        return f"takes {percent(apart)} more {extremes.name}"
    return f"has {percent(1 - 1 / (1 + apart))} less {extremes.name}"


def _worst(extremes: Extremes) -> tuple[int, float] | None:
    """The rank that was the worst most often, and in what share of all reports."""
    ranks = extremes.high_rank if extremes.more_is_worse else extremes.low_rank
    if ranks is None:
        return None
    values, counts = np.unique(ranks[ranks >= 0], return_counts=True)
    if not len(values):
        return None
    best = int(np.argmax(counts))
    return int(values[best]), float(counts[best]) / len(ranks)


CHECK = StragglerCheck(
    id="straggler-extremes", title="least and most of all ranks, as timers print them", run=check_extremes
)

"""What the findings about a series say besides its shape: names, units, times of day, parts; and how they say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone

import numpy as np

from distdoctor.report.checking import NotSeen, Unread
from distdoctor.report.model import Action, Evidence, SkipCause, Team
from distdoctor.straggler.analysis.series.regimes import SeriesShape
from distdoctor.straggler.analysis.series.running import Values
from distdoctor.straggler.facts.series import SeriesKind

MAX_TITLE = 80

# From a log of one rank to the rank that is slow.
RECORD = "torchrun … -m distdoctor straggler record -- train.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is known of a series besides its values."""

    what: str = "step time"
    """As the log calls it."""
    kind: SeriesKind = SeriesKind.TIME
    """RATE: the times of the shape are `rate_scale` over the values of the log."""
    unit: str = "ms"
    """Of the log's values."""
    rate_scale: float = 1.0
    source: str = ""
    """File or kind of evidence."""
    zone_known: bool = True
    """False: the shape's `utc_s` is the log's own clock."""
    one_rank: bool = True
    """The series is what one rank printed, so that it names nobody; False: it was taken over all ranks."""
    printed_by: str | None = None
    steps_per_value: int | None = None
    around_s: float | None = None
    """The time at which somebody noticed it, seconds since 1970 UTC."""
    rate_ratios: Mapping[int, float] = field(default_factory=dict)
    """By index of a change: how a throughput of the same run changed there, after over before."""
    parts: Mapping[str, Values] = field(default_factory=dict)
    """Times of parts of each value, shape (values of the shape,), in `unit`; NaN: not told."""


def too_few(shape: SeriesShape, what: str) -> NotSeen:
    """The outcome for a series that is too short."""
    judged = shape.times[shape.num_warm_up :]
    within = (
        f", within {percent(float(judged.max() / judged.min()))} % of one another" if len(judged) > 1 else ""
    )
    start = f" ({warmup_words(shape)})" if shape.num_warm_up else ""
    values = (
        f"{len(judged)} value{'s' * (not len(judged))}"
        if len(judged) < 2
        else f"{len(judged)} values{within}"
    )
    unread = Unread(
        cause=SkipCause.NOT_IN_EVIDENCE,
        reason=f"only {values}: too few to judge{start}",
        how="give a longer part of the log",
    )
    return NotSeen(unread=unread, what=what)


def warmup_words(shape: SeriesShape) -> str:
    """`the first 2 values are a slow start, up to 1.4 times the later ones, and left out`."""
    num = shape.num_warm_up
    values = "value is" if num == 1 else f"{num} values are"
    return f"the first {values} a slow start, up to {times_words(shape.warmup_ratio)} the later ones, and left out"


def times_words(ratio: float) -> str:
    """`1.17 times`, `2.6 times`, `12 times`."""
    if ratio < 10:
        return f"{ratio:.3g} times" if ratio < 1.5 else f"{ratio:.2g} times"
    return f"{ratio:,.0f} times"


def longer_words(ratio: float) -> str:
    """How much longer than usual a step took: `8 % longer than`, `9.7 times as long as`."""
    return f"{percent(ratio)} % longer than" if ratio < 1.5 else f"{times_words(ratio)} as long as"


def share_words(share: float) -> str:
    """A share of the time: `29 %`, `1.1 %`, `0.06 %`."""
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def value_words(time: float, told: Told) -> str:
    """A time of the shape as the log would print it: `412 ms`, `7.16 s`, `7430 samples/s`."""
    if told.kind is SeriesKind.RATE:
        return f"{_short(told.rate_scale / time)} {told.unit}"
    if told.unit == "ms" and time >= 1000:
        return f"{_short(time / 1000)} s"
    return f"{_short(time)} {told.unit}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def change_words(ratio: float, told: Told) -> str:
    """A ratio of times: `17 % slower`, or of a throughput `15 % lower`; `faster` and `higher` below 1."""
    if told.kind is SeriesKind.RATE:
        return f"{percent(1 / ratio)} % {'lower' if ratio >= 1 else 'higher'}"
    return f"{percent(ratio)} % {'slower' if ratio >= 1 else 'faster'}"


def percent(ratio: float) -> str:
    """How far a ratio is from one, in per cent, as people say it: `17`, `3.2`."""
    off = abs(ratio - 1) * 100
    return f"{off:.0f}" if off >= 9.5 else f"{off:.1f}".removesuffix(".0")


def subject_words(told: Told) -> str:
    """What is slower: `the whole job`, or the throughput of it."""
    return "the whole job" if told.kind is SeriesKind.TIME else "throughput"


def step_words(shape: SeriesShape, index: int) -> str:
    """`step 14,200`."""
    return f"step {int(shape.steps[index]):,}"


def when_words(shape: SeriesShape, index: int, told: Told) -> str:
    """`2026-11-30 12:20 UTC`, or `2026-11-30 12:20 by the log's clock`; empty where the time of day is not known."""
    return "" if shape.utc_s is None else clock_words(float(shape.utc_s[index]), zone_known=told.zone_known)


def clock_words(utc_s: float, *, zone_known: bool) -> str:
    """Date and minute of a time; empty for NaN and what lies beyond the calendar."""
    try:
        moment = datetime.fromtimestamp(utc_s, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return ""
    return f"{moment:%Y-%m-%d %H:%M} {'UTC' if zone_known else 'by the log'}"


def with_time(title: str, when: str) -> str:
    """The title with the time of day in brackets where both fit."""
    longer = f"{title} ({when})"
    return longer if when and len(longer) <= MAX_TITLE else title[:MAX_TITLE]


def names_nobody(told: Told) -> str:
    """A sentence for explanations: what such a series cannot show. Empty for a series taken over all ranks."""
    if not told.one_rank:
        return ""
    who = told.printed_by or "one rank"
    return f" {who[:1].upper()}{who[1:]} prints for all, and all wait for the slowest: this log cannot show who it is."


def find_who(told: Told) -> tuple[Action, ...]:
    """The command that records all ranks; nothing where all are seen already."""
    if not told.one_rank:
        return ()
    return (
        Action(
            team=Team.JOB_OWNER, text="Record every rank for some hundred steps to find who", command=RECORD
        ),
    )


def evidence(text: str, told: Told, **more: object) -> Evidence:
    """One line of evidence from the series' source."""
    return Evidence(text=text, source=told.source or None, **more)  # type: ignore[arg-type]


def level_time(shape: SeriesShape, start: int, end: int) -> float:
    """What a value from `start` to `end` usually takes."""
    return float(np.median(shape.times[start:end]))

"""Ranks over time, own work against waiting, and the time around the onset: the pictures of a report."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from distdoctor.report.model import Series
from distdoctor.straggler.analysed import Analysed, Judged, ShapedSeries
from distdoctor.straggler.analysis.ranks.judgement import Pattern, Suspect
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.words import TIME_NAMES

# Bars of the picture of own work against waiting; more ranks are chosen evenly beside the accused.
MAX_BARS = 40

# Points of a line. More would not be seen.
MAX_POINTS = 160

# Steps on each side of an onset that its picture shows, at least; a tenth of the run where that is more.
AROUND = 40


def straggler_series(facts: Analysed) -> tuple[Series, ...]:
    """All pictures."""
    pictures: list[Series] = []
    for number, judged in enumerate(facts.judged):
        about = f", {judged.label}" if judged.label else ""
        name = "" if number == 0 else f"-{number + 1}"
        pictures += [
            each
            for each in (_around(judged, about, name), _bars(judged, about, name), _heat(judged, about, name))
            if each is not None
        ]
    for number, shaped in enumerate(facts.series):
        picture = _job(shaped, "" if number == 0 else f"-{number + 1}")
        pictures += [picture] if picture is not None else []
    return tuple(pictures)


def _accused_rows(judged: Judged) -> list[int]:
    rows = [each.row for each in judged.judgement.suspects if each.is_accused]
    return list(dict.fromkeys([*rows, *(row for host in judged.judgement.hosts for row in host.rows)]))


def _heat(judged: Judged, about: str, name: str) -> Series | None:
    judgement = judged.judgement
    if judgement.heat is None or judgement.heat.shape[1] < 2 or judgement.heat.shape[0] < 2:
        return None
    accused = set(_accused_rows(judged))
    labels = tuple(
        f"{int(judgement.steps[start])}"
        if end - start == 1
        else f"{int(judgement.steps[start])}-{int(judgement.steps[end - 1])}"
        for start, end in pairwise(judgement.heat_edges)
    )
    return Series(
        name=f"straggler-heat{name}",
        title=f"{TIME_NAMES[judged.judgement.basis]} over that of the peers, %, by rank and {judged.unit}{about}",
        kind="heat",
        x_label=judged.unit,
        y_label="rank",
        x=labels,
        names=tuple(_rank_name(judged.timings.places[row]) for row in judgement.heat_rows),
        values=tuple(tuple(_value(100 * value) for value in row) for row in judgement.heat),
        hot=tuple(index for index, row in enumerate(judgement.heat_rows) if row in accused),
    )


def _bars(judged: Judged, about: str, name: str) -> Series | None:
    judgement = judged.judgement
    if judgement.own_ms is None or judgement.wait_ms is None:
        return None
    accused = _accused_rows(judged)
    rows = _chosen(judged.timings.num_ranks, accused)
    return Series(
        name=f"straggler-own-and-wait{name}",
        title=f"{TIME_NAMES[judged.judgement.basis]} and waiting by rank{_slow_steps(judged)}: who waits least is waited for{about}",
        kind="stacked",
        x_label="rank",
        y_label="ms",
        x=tuple(str(judged.timings.places[row].rank) for row in rows),
        names=(TIME_NAMES[judged.judgement.basis].lower(), "waiting"),
        values=tuple(
            tuple(_value(float(times[row])) for row in rows)
            for times in (judgement.own_ms, judgement.wait_ms)
        ),
        hot=tuple(index for index, row in enumerate(rows) if row in set(accused)),
    )


def _slow_steps(judged: Judged) -> str:
    spans = [each.stretch for each in judged.judgement.accused]
    if not spans or min(each.start for each in spans) == 0:
        return f", median {judged.unit}"
    first = int(judged.judgement.steps[min(each.start for each in spans)])
    return f", median from {judged.unit} {first:,} on"


def _chosen(num_ranks: int, accused: list[int]) -> list[int]:
    if num_ranks <= MAX_BARS:
        return list(range(num_ranks))
    kept = accused[: MAX_BARS // 2]
    others = np.linspace(0, num_ranks - 1, MAX_BARS - len(kept)).astype(int)
    return sorted({*kept, *(int(row) for row in others)})


def _around(judged: Judged, about: str, name: str) -> Series | None:
    """Own time of the worst accused rank and of its peers, around its onset or over the run."""
    judgement = judged.judgement
    suspect = next((each for each in judgement.suspects if each.row in judgement.curves), None)
    if suspect is None or judgement.num_steps < 4:
        return None
    start, end = _window(suspect, judgement.num_steps)
    columns = _thinned(start, end, suspect)
    own = judgement.curves[suspect.row]
    peers = judgement.peer_ms[judgement.peers.group_of[suspect.row]]
    where = "around the onset" if suspect.pattern is not Pattern.PERSISTENT else "over the run"
    return Series(
        name=f"straggler-onset{name}",
        title=f"{TIME_NAMES[judgement.basis]} of rank {suspect.rank} and of its peers {where}{about}",
        kind="lines",
        x_label=judged.unit,
        y_label="ms",
        x=tuple(int(judgement.steps[column]) for column in columns),
        names=(f"rank {suspect.rank}", "median of its peers"),
        values=tuple(tuple(_value(float(times[column])) for column in columns) for times in (own, peers)),
    )


def _window(suspect: Suspect, num_steps: int) -> tuple[int, int]:
    edges = [edge for edge in (suspect.stretch.start, suspect.stretch.end) if 0 < edge < num_steps]
    if not edges:
        return 0, num_steps
    reach = max(AROUND, num_steps // 10)
    return max(0, edges[0] - reach), min(num_steps, edges[-1] + reach)


def _thinned(start: int, end: int, suspect: Suspect) -> NDArray[np.intp]:
    """Columns evenly chosen; bursts are kept, or they would be lost between the others."""
    columns = np.unique(np.linspace(start, end - 1, min(end - start, MAX_POINTS)).astype(np.intp))
    bursts = np.array(suspect.burst_columns[:MAX_POINTS], dtype=np.intp)
    return np.unique(np.concatenate([columns, bursts[(bursts >= start) & (bursts < end)]]))


def _job(shaped: ShapedSeries, number: str) -> Series | None:
    """The whole job's step times over steps; of neighbours the longest is shown, so that stalls stay."""
    values, steps = shaped.series.values, shaped.series.steps
    if len(values) < 4:
        return None
    groups = np.array_split(np.arange(len(values)), min(len(values), MAX_POINTS))
    pick = np.nanargmax if shaped.series.kind.value == "time" else np.nanargmin
    chosen = [
        int(group[pick(values[group])]) for group in groups if len(group) and np.isfinite(values[group]).any()
    ]
    joined = len(values) > MAX_POINTS
    worst = "longest" if shaped.series.kind.value == "time" else "lowest"
    return Series(
        name=f"straggler-job-{shaped.series.name.replace(' ', '-')}{number}",
        title=f"{shaped.series.name}{f', of neighbours the {worst}' if joined else ''}, {shaped.series.source}",
        kind="lines",
        x_label="step",
        y_label=shaped.series.unit,
        x=tuple(int(steps[index]) for index in chosen),
        names=(shaped.series.name,),
        values=(tuple(_value(float(values[index])) for index in chosen),),
    )


def _rank_name(place: Place) -> str:
    return f"{place.rank}" if place.host is None else f"{place.rank} {place.host}"


def _value(number: float) -> float | None:
    if not np.isfinite(number):
        return None
    return round(float(number), 1 if abs(number) >= 100 else 2 if abs(number) >= 1 else 3)

"""What people look at as rows: ranks with their own time and waiting, what the evidence can show, inputs by kind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distdoctor.report.model import Column, Scalar, Table
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.judgement import Judgement, Pattern
from distdoctor.straggler.arrival_table import arrival_table
from distdoctor.straggler.facts.reading import NoteKind
from distdoctor.straggler.words import TIME_NAMES

# Rows of the table that stands first; the accused are always in it.
NUM_MAIN_ROWS = 8

# Rows of the table of all ranks. Our own bound: a table of 16,384 rows helps nobody, programs read the recording.
MAX_ROWS = 512


def straggler_tables(facts: Analysed) -> tuple[Table, ...]:
    """All tables."""
    tables: list[Table] = []
    for number, judged in enumerate(facts.judged):
        tables.append(_main_table(judged, number))
        if judged.timings.num_ranks > NUM_MAIN_ROWS:
            tables.append(_rank_table(judged, number))
    for collectives in facts.collectives:
        table = arrival_table(collectives.arrivals)
        if table is not None:
            tables.append(table)
    limits = _limits(facts)
    if limits is not None:
        tables.append(limits)
    return tuple(tables)


def _unit_of_effect(judged: Judged) -> str:
    if judged.judgement.scale_ms is None:
        return "%"
    return "% of the step" if judged.judgement.step_ms else "% of the time in collectives"


def _columns(judged: Judged) -> tuple[Column, ...]:
    return (
        Column(name="rank", align="right"),
        Column(name="host"),
        Column(name=TIME_NAMES[judged.judgement.basis].lower(), unit="ms", align="right"),
        Column(name="peers", unit="ms", align="right"),
        Column(name="longer", unit=_unit_of_effect(judged), align="right"),
        Column(name="waits", unit="ms", align="right"),
        Column(name="noise", unit="%", align="right"),
        Column(name="verdict"),
    )


def _main_table(judged: Judged, number: int) -> Table:
    order = _by_effect(judged)
    shown = order[:NUM_MAIN_ROWS]
    rest = len(order) - len(shown)
    words = f"medians over {judged.units}"
    return Table(
        name="ranks-first" if number == 0 else f"ranks-first-{number + 1}",
        title=f"Ranks, the slowest first ({words}{_of_run(judged)})",
        columns=_columns(judged),
        rows=tuple(_row(judged, row) for row in shown),
        note=_note(judged, rest),
        place="first" if number == 0 else "body",
    )


def _of_run(judged: Judged) -> str:
    return f"; {judged.label}" if judged.label else ""


def _note(judged: Judged, rest: int) -> str | None:
    parts = [f"and {rest} more ranks that are no slower"] if rest > 0 else []
    if any(
        each.pattern not in (Pattern.PERSISTENT, Pattern.INTERMITTENT) for each in judged.judgement.accused
    ):
        parts.append("of a rank that is slow since a step, the times from there on")
    return "; ".join(parts) or None


def _rank_table(judged: Judged, number: int) -> Table:
    order = sorted(_by_effect(judged)[:MAX_ROWS])
    rest = judged.timings.num_ranks - len(order)
    return Table(
        name="ranks" if number == 0 else f"ranks-{number + 1}",
        title=f"All ranks (medians over {judged.units})"
        if rest <= 0
        else f"The {MAX_ROWS} ranks that take longest (medians over {judged.units})",
        columns=_columns(judged),
        rows=tuple(_row(judged, row) for row in order),
        note=f"{rest} others are not listed" if rest > 0 else None,
    )


def _by_effect(judged: Judged) -> list[int]:
    """Accused rows first, then by effect."""
    accused = [each.row for each in judged.judgement.suspects if each.is_accused]
    of_hosts = [row for host in judged.judgement.hosts for row in host.rows]
    first = list(dict.fromkeys([*accused, *of_hosts]))
    effect = np.nan_to_num(judged.judgement.effects.effect, nan=-np.inf)
    rest = [int(row) for row in np.argsort(-effect, kind="stable") if int(row) not in set(first)]
    return [*first, *rest]


def _row(judged: Judged, row: int) -> tuple[Scalar, ...]:
    judgement = judged.judgement
    place = judged.timings.places[row]
    own, peer, effect = _times(judged, row)
    return (
        place.rank,
        place.host,
        _rounded(own),
        _rounded(peer),
        _rounded(None if effect is None else 100 * effect),
        _number(judgement.wait_ms, row),
        _rounded(100 * float(judgement.effects.noise[row])),
        _verdict(judged, row),
    )


def _times(judged: Judged, row: int) -> tuple[float | None, float | None, float | None]:
    """Own time and the peers' in ms, and the effect: of an accused rank in the steps in which it is slow."""
    judgement = judged.judgement
    suspect = next((each for each in judgement.suspects if each.row == row), None)
    if suspect is not None and suspect.pattern not in (Pattern.PERSISTENT, Pattern.INTERMITTENT):
        columns = slice(suspect.stretch.start, suspect.stretch.end)
        times = judgement.peer_ms[judgement.peers.group_of[row], columns]
        known = times[np.isfinite(times)]
        peer = float(np.median(known)) if len(known) else None
        return (None if peer is None else peer + suspect.excess_ms), peer, suspect.effect
    own = _number(judgement.own_ms, row)
    effect = float(judgement.effects.effect[row])
    return own, _peer(judgement, own, effect), effect


def _peer(judgement: Judgement, own: float | None, effect: float) -> float | None:
    """What the peers without the rank took, by its own time and effect."""
    if own is None or not np.isfinite(effect):
        return None
    if judgement.scale_ms is not None:
        return own - effect * judgement.scale_ms
    return own / (1 + effect)


def _verdict(judged: Judged, row: int) -> str:
    judgement = judged.judgement
    host = next((each for each in judgement.hosts if row in each.rows), None)
    if host is not None:
        return "slow host"
    suspect = next((each for each in judgement.suspects if each.row == row), None)
    if suspect is None:
        return ""
    if suspect.is_accused:
        return f"slow, {suspect.pattern.value}"
    return f"not accused: {suspect.failed[0].value}"


def _limits(facts: Analysed) -> Table | None:
    rows: list[tuple[Scalar, ...]] = [
        (note.text, note.how) for note in dict.fromkeys(facts.reading.notes) if note.kind is NoteKind.LIMITED
    ]
    if not rows:
        return None
    return Table(
        name="limits",
        title="What this evidence cannot show",
        columns=(Column(name="what"), Column(name="what would")),
        rows=tuple(rows[:MAX_ROWS]),
    )


def _number(
    values: Sequence[float] | np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None, row: int
) -> float | None:
    return None if values is None or not np.isfinite(values[row]) else _rounded(float(values[row]))


def _rounded(value: float | None) -> float | None:
    """To three significant digits or a hundredth."""
    if value is None or not np.isfinite(value):
        return None
    return round(value, 1) if abs(value) >= 100 else round(value, 2)

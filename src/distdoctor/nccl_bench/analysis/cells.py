"""The times of one cell (a collective at one size in one group) over all its repeats, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distdoctor.nccl_bench.facts.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Repeats of one thing, in µs: those of a row, or equal rows of several tables in one file."""

    row: Row
    times_us: tuple[float, ...]


def cells_of(rows: Iterable[Row]) -> tuple[Cell, ...]:
    """All cells with at least one time, in order of appearance."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.size_bytes <= 0 or row.time_us <= 0:
            continue
        key = (
            row.collective,
            row.group.kind,
            row.group.label,
            row.size_bytes,
            row.dtype,
            row.op,
            row.in_place,
            row.style,
            row.concurrent,
            row.num_ranks,
        )
        found.setdefault(key, []).append(row)
    return tuple(
        Cell(row=same[0], times_us=tuple(time for row in same for time in row.repeats_us or (row.time_us,)))
        for same in found.values()
    )

"""Which rows belong to one curve: a collective in one group, from the smallest size to the largest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from distdoctor.nccl_bench.facts.rows import Group, Row, Style


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Rows that differ in size only (and in place or not), by size."""

    collective: str
    group: Group
    style: Style
    concurrent: bool
    dtype: str
    op: str | None
    num_ranks: int | None
    rows: tuple[Row, ...]
    """By size; at most a few of each: in place, out of place, or several tables of one file."""

    @property
    def fastest(self) -> tuple[Row, ...]:
        """One row for each size: the faster half, for noise only makes slower."""
        best: dict[int, Row] = {}
        for row in self.rows:
            known = best.get(row.size_bytes)
            if known is None or row.time_us < known.time_us:
                best[row.size_bytes] = row
        return tuple(best[size] for size in sorted(best))

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        """(size in bytes, time in µs) of the faster halves: what analysis.fit takes."""
        return tuple((row.size_bytes, row.time_us) for row in self.fastest)

    @property
    def label(self) -> str:
        """ "all_reduce", "all_reduce in rail 3": the group only where it is not the whole job or table."""
        whole = self.group.label in ("job", "table", "")
        return self.collective if whole else f"{self.collective} in {self.group.label}"


def curves_of(rows: Iterable[Row], *, style: Style | None = Style.STREAMING) -> tuple[Curve, ...]:
    """The curves of `rows` in order of appearance, without empty messages; `style` None: of every style."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.size_bytes <= 0 or row.time_us <= 0 or (style is not None and row.style is not style):
            continue
        key = (
            row.collective,
            row.group.kind,
            row.group.label,
            row.style,
            row.concurrent,
            row.dtype,
            row.op,
            row.num_ranks,
        )
        found.setdefault(key, []).append(row)
    return tuple(_curve(sorted(each, key=lambda row: row.size_bytes)) for each in found.values())


def _curve(rows: list[Row]) -> Curve:
    first = rows[0]
    return Curve(
        collective=first.collective,
        group=first.group,
        style=first.style,
        concurrent=first.concurrent,
        dtype=first.dtype,
        op=first.op,
        num_ranks=first.num_ranks,
        rows=tuple(rows),
    )


def source_of(label: str, row: Row) -> str:
    """Where a row stands: "table.txt:17", or the label alone for what was measured."""
    return f"{label}:{row.source_line}" if row.source_line is not None else label

"""Bandwidth over size, and who reaches whom how fast: the pictures of a run."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.matrix import Matrix
from distdoctor.nccl_bench.facts.rows import GroupKind, Style
from distdoctor.nccl_bench.tables import rounded
from distdoctor.report.model import Series
from distdoctor.units import format_bytes


def bench_series(facts: BenchFacts, *, label: str = "", accused: Sequence[int] = ()) -> tuple[Series, ...]:
    """Bandwidth by size, and the matrix; `accused`: ranks whose rows of the matrix stand out."""
    about = f", {label}" if label else ""
    series = [each for each in (_curves(facts, about),) if each is not None]
    if facts.matrix is not None and facts.matrix.pairs:
        series.append(_heat(facts, facts.matrix, about, accused))
    return tuple(series)


def _curves(facts: BenchFacts, about: str) -> Series | None:
    curves: dict[str, dict[int, float]] = {}
    for row in facts.rows:
        if row.busbw_gbps is None or row.group.kind not in (GroupKind.JOB, GroupKind.TABLE):
            continue
        if row.style is not Style.STREAMING:
            continue
        place = {None: "", True: "", False: " out of place"}[row.in_place]
        both = any(
            other.collective == row.collective and other.in_place is not row.in_place for other in facts.rows
        )
        name = f"{row.collective}{(place or ' in place') if both and row.in_place is not None else ''}"
        curves.setdefault(name, {})[row.size_bytes] = row.busbw_gbps
    sizes = sorted({size for curve in curves.values() for size in curve})
    if len(sizes) < 2:
        return None
    return Series(
        name="bench-curves",
        title=f"Bus bandwidth by size{about}",
        kind="lines",
        x_label="size (bytes)",
        y_label="GB/s",
        x=tuple(sizes),
        names=tuple(curves),
        values=tuple(tuple(curve.get(size) for size in sizes) for curve in curves.values()),
    )


def _heat(facts: BenchFacts, matrix: Matrix, about: str, accused: Sequence[int]) -> Series:
    times = {(pair.source, pair.target): pair.best_us for pair in matrix.pairs}
    names = tuple(_rank_name(facts, rank) for rank in matrix.ranks)
    return Series(
        name="bench-matrix",
        title=f"Point-to-point bandwidth, GB/s, from row to column, {format_bytes(matrix.size_bytes)}{about}",
        kind="heat",
        x_label="to",
        y_label="from",
        x=names,
        names=names,
        values=tuple(
            tuple(_gbps(matrix.size_bytes, times.get((source, target))) for target in matrix.ranks)
            for source in matrix.ranks
        ),
        hot=tuple(index for index, rank in enumerate(matrix.ranks) if rank in accused),
    )


def _rank_name(facts: BenchFacts, rank: int) -> str:
    place = facts.place_of(rank)
    return f"{rank}" if place is None or (facts.num_hosts or 1) < 2 else f"{rank} {place.host}"


def _gbps(size_bytes: int, time_us: float | None) -> float | None:
    return None if time_us is None else rounded(size_bytes / time_us / 1e3)

"""Is one row far off its neighbours and its other half? Something disturbed it once; the link is not that slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed, not_seen
from distdoctor.nccl_bench.definitions import BY_NAME
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import Row
from distdoctor.report.model import Action, Confidence, Evidence, Severity, Team
from distdoctor.units import MIB, format_bytes

# Below this, latency decides and jitters; complete public tables differ by up to a third there.
MIN_BYTES = 8 * MIB

# A row is off when it has less than this share of its other half and of both neighbours. Our own threshold: in public
# tables of sound machines halves and neighbours at these sizes agree within a tenth.
SHARE = 0.8

# So many outliers are no accident but an unsteady path.
MANY = 3
MAX_SPELLED = 5


def check_outlier(facts: BenchFacts) -> Sequence[Outcome]:
    """Info for one or two rows that something disturbed, a warning when there are more; silent on smooth curves."""
    series = _series(facts.rows)
    judged = sum(len(rows) for rows in series.values())
    if not facts.rows:
        return [not_seen(facts, f"{facts.label} holds no measured rows", what="rows that are far off")]
    if not any(row.in_place is not None for row in facts.rows):
        return [NotApplicable(detail="rows were not measured both in place and out of place")]
    others = {(key[:-1], key[-1], row.size_bytes): row for key, rows in series.items() for row in rows}
    found = []
    for key, rows in series.items():
        twins = [others.get((key[:-1], not key[-1], row.size_bytes)) for row in rows]
        found += [(row, twin, near) for row, twin, near in _off(rows, twins)]
    if found:
        return [_found(facts, found)]
    if not judged:
        reason = f"no rows of {format_bytes(MIN_BYTES)} or more with both halves"
        return [not_seen(facts, reason, what="rows that are far off")]
    return [Passed(detail=f"{judged} rows of {format_bytes(MIN_BYTES)} and more lie on their curves")]


_Key = tuple[str, str, str, str | None, int | None, bool]


def _series(rows: Iterable[Row]) -> dict[_Key, list[Row]]:
    """Rows of one curve by size: a collective, group, type, operation and half. Repeated sizes are no curve."""
    found: dict[_Key, list[Row]] = {}
    for row in rows:
        if row.in_place is None or row.size_bytes < MIN_BYTES or not row.algbw_gbps:
            continue
        key = (row.collective, row.group.label, row.dtype, row.op, row.num_ranks, row.in_place)
        found.setdefault(key, []).append(row)
    ordered = {key: sorted(each, key=lambda row: row.size_bytes) for key, each in found.items()}
    return {key: each for key, each in ordered.items() if len({row.size_bytes for row in each}) == len(each)}


def _off(rows: Sequence[Row], twins: Sequence[Row | None]) -> Iterable[tuple[Row, Row, list[Row]]]:
    """Rows below their other half and every neighbour, where the other half itself follows its curve."""
    for index, (row, twin) in enumerate(zip(rows, twins, strict=True)):
        if index == 0 or twin is None or _speed(row) >= SHARE * _speed(twin):
            continue
        near = [rows[index - 1], *rows[index + 1 : index + 2]]
        before = twins[index - 1]
        twin_is_smooth = before is None or _speed(twin) >= SHARE * _speed(before)
        if twin_is_smooth and all(_speed(row) < SHARE * _speed(other) for other in near):
            yield row, twin, near


def _speed(row: Row) -> float:
    return row.algbw_gbps or 0.0


def _found(facts: BenchFacts, found: Sequence[tuple[Row, Row, list[Row]]]) -> Found:
    row, twin, _ = found[0]
    many = len(found) >= MANY
    half = "in place" if row.in_place else "out of place"
    title = (
        f"{len(found)} rows are far below their neighbours: the path is unsteady"
        if many
        else f"one row was disturbed: {format_bytes(row.size_bytes)} {half}, {_shown(row)} instead of {_shown(twin)} GB/s"
    )
    return Found(
        title=title if len(title) <= 80 else f"one row was disturbed: {format_bytes(row.size_bytes)} {half}",
        severity=Severity.WARNING if many else Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=tuple(_evidence(facts, *each) for each in found[:MAX_SPELLED]),
        explanation=(
            "The sizes before and after it and its own other half are faster, so the link can do more than this row "
            "says. Means over 20 iterations hide whether one iteration stalled or all were slow; the slowest "
            "iteration would tell. Other traffic, a clock that fell, or a retransmission are usual causes."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Repeat this size, with the slowest iteration shown",
                command=_command(row),
            ),
        ),
        cause_class="transient",
    )


def _evidence(facts: BenchFacts, row: Row, twin: Row, near: Sequence[Row]) -> Evidence:
    half = "in place" if row.in_place else "out of place"
    other = "out of place" if row.in_place else "in place"
    sides = " and ".join(f"{_shown(each)} at {format_bytes(each.size_bytes)}" for each in near)
    slowest = (
        f"; its slowest iteration took {row.max_us:.0f} us of {row.time_us:.0f} us on average"
        if row.max_us
        else ""
    )
    line = f", line {row.source_line}" if row.source_line else ""
    return Evidence(
        text=f"{row.collective} {half} at {format_bytes(row.size_bytes)}: {_shown(row)} GB/s{slowest}",
        value=round(_value(row), 2),
        unit="GB/s",
        expected=f"{_shown(twin)} GB/s {other}; {sides}",
        expected_source="the same table",
        source=f"{facts.label}{line}",
    )


def _value(row: Row) -> float:
    return row.busbw_gbps or row.algbw_gbps or 0.0


def _shown(row: Row) -> str:
    value = _value(row)
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _command(row: Row) -> str:
    definition = BY_NAME.get(row.collective)
    binary = (definition.nccl_tests_name if definition is not None else None) or "all_reduce"
    return f"{binary}_perf -b {row.size_bytes} -e {row.size_bytes} -n 100 -I   # -I: from nccl-tests 2.19"


CHECK = BenchCheck(id="bench-outlier", title="rows far off their neighbours", run=check_outlier)

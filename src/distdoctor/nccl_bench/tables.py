"""Tables of a run: the rows that matter, all rows, fits, arrivals; and the same numbers for programs."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.curves import curves_of
from distdoctor.nccl_bench.analysis.expectation import Expectation, expectation_of
from distdoctor.nccl_bench.analysis.fit import fit_curve
from distdoctor.nccl_bench.analysis.transport_words import transport_words
from distdoctor.nccl_bench.definitions import BARRIER, BY_NAME
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import GroupKind, Row, Style
from distdoctor.report.model import Column, Scalar, Table
from distdoctor.report.names import scalar_text
from distdoctor.units import fold_ints, format_bytes

# Rows that the first screen has room for.
NUM_MAIN_ROWS = 5

MEASUREMENTS = "bench-measurements"
"""Name of the table that programs read, `readers/own_report.py` among them."""

MEASUREMENT_COLUMNS = (
    "collective", "kind", "group", "set", "ranks", "num_ranks", "size_bytes", "dtype", "op", "in_place", "style",
    "concurrent", "iters", "time_us", "repeats_us", "min_us", "max_us", "p95_us", "p99_us", "mean_us",
    "fastest_rank_us", "algbw_gbps", "busbw_gbps", "validated", "wrong_elements", "wrong_ranks", "algorithm",
    "protocol", "channels",
)  # fmt: skip


def bench_tables(facts: BenchFacts, *, label: str = "") -> tuple[Table, ...]:
    """All tables of one run or file; `label` tells several apart."""
    about = f", {label}" if label else ""
    tables: list[Table] = []
    if moving_rows(facts.rows):
        tables.append(_main_table(facts, about))
    if facts.rows:
        tables.append(_row_table(facts, about))
        tables += _fit_tables(facts, about)
        tables.append(_definition_table(facts.rows))
        tables.append(_measurement_table(facts, about))
    tables += _computing_tables(facts, about)
    tables += _arrival_tables(facts, about)
    if facts.set_up is not None:
        tables += _set_up_table(facts)
    if facts.not_measured:
        rows = tuple((each.what, each.why) for each in facts.not_measured)
        columns = (Column(name="what"), Column(name="why"))
        tables.append(Table(name="not-measured", title=f"Not measured{about}", columns=columns, rows=rows))
    return tuple(tables)


# --- the rows that matter -----------------------------------------------------------------------------------


def main_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Five rows: of many collectives each one's largest size, of few also smaller ones; of the widest group."""
    moving = moving_rows(rows)
    widest = [row for row in moving if row.group.kind in (GroupKind.JOB, GroupKind.TABLE)] or moving
    moving = [row for row in widest if row.style is Style.STREAMING] or widest
    by_collective: dict[str, list[Row]] = {}
    for row in moving:
        by_collective.setdefault(row.collective, []).append(row)
    each = max(1, NUM_MAIN_ROWS // max(1, len(by_collective)))
    chosen: list[Row] = []
    for group in by_collective.values():
        ordered = sorted(group, key=lambda row: (row.size_bytes, row.in_place is True))
        chosen += _spread(ordered, each)
    return tuple(chosen[:NUM_MAIN_ROWS])


def moving_rows(rows: Sequence[Row]) -> list[Row]:
    """Rows of collectives that move data."""
    return [row for row in rows if row.collective != BARRIER]


def _spread(ordered: Sequence[Row], count: int) -> list[Row]:
    """`count` of them, the last always, the others evenly from the first."""
    if len(ordered) <= count:
        return list(ordered)
    if count == 1:
        return [ordered[-1]]
    step = (len(ordered) - 1) / (count - 1)
    return [ordered[round(index * step)] for index in range(count)]


def _main_table(facts: BenchFacts, about: str) -> Table:
    columns = (
        Column(name="collective"),
        Column(name="size", align="right"),
        Column(name="time", unit="us", align="right"),
        Column(name="busbw", unit="GB/s", align="right"),
        Column(name="expected", unit="GB/s", align="right"),
    )
    rows = tuple(
        (
            row.collective,
            format_bytes(row.size_bytes),
            rounded(row.time_us),
            rounded(row.busbw_gbps) if row.busbw_gbps is not None else "n/a",
            _expected(facts, row),
        )
        for row in main_rows(facts.rows)
    )
    ranks = f"{facts.num_ranks} ranks" if facts.num_ranks and facts.num_ranks > 1 else "1 rank"
    title = f"Bandwidth, {ranks if facts.num_ranks else 'ranks not told'}{_left_out(facts.rows)}{about}"
    note = transport_words(facts.nccl_log) if facts.nccl_log is not None else None
    return Table(name="bench-main", title=title, columns=columns, rows=rows, place="first", note=note or None)


def _left_out(rows: Sequence[Row]) -> str:
    """Of more collectives than the first screen has room for, how many stand there."""
    count = len({row.collective for row in moving_rows(rows)})
    return f", {NUM_MAIN_ROWS} of {count} collectives" if count > NUM_MAIN_ROWS else ""


def _expected(facts: BenchFacts, row: Row) -> str:
    answer = expectation_of(facts, row)
    if not isinstance(answer, Expectation):
        return "not known"
    if row.size_bytes < answer.from_bytes:
        return f"from {format_bytes(answer.from_bytes)} on"
    return f"{rounded(answer.low_gbps)}-{rounded(answer.high_gbps)}"


# --- all rows -----------------------------------------------------------------------------------------------


def _row_table(facts: BenchFacts, about: str) -> Table:
    with_algorithm = any(row.algorithm for row in facts.rows)
    several_groups = len({row.group.label for row in facts.rows}) > 1
    columns = [Column(name="collective"), Column(name="size", align="right")]
    if several_groups:
        columns.insert(1, Column(name="group"))
    columns += [
        Column(name="form"),
        Column(name="time", unit="us", align="right"),
        Column(name="p99", unit="us", align="right"),
        Column(name="algbw", unit="GB/s", align="right"),
        Column(name="busbw", unit="GB/s", align="right"),
        Column(name="data"),
    ]
    if with_algorithm:
        columns.append(Column(name="NCCL chose"))
    rows = []
    for row in facts.rows:
        cells: list[Scalar] = [row.collective, format_bytes(row.size_bytes)]
        if several_groups:
            cells.insert(1, row.group.label + (", at once" if row.concurrent else ""))
        cells += [
            _form(row),
            rounded(row.time_us),
            rounded(row.p99_us),
            rounded(row.algbw_gbps),
            rounded(row.busbw_gbps) if row.busbw_gbps is not None else "n/a",
            _data(row),
        ]
        if with_algorithm:
            cells.append(" ".join(word for word in (row.algorithm, row.protocol) if word) or None)
        rows.append(tuple(cells))
    note = (
        "GB/s of 10^9 bytes; time: the slowest rank's, median of iterations and repeats"
        if facts.is_live
        else None
    )
    return Table(
        name="bench-rows", title=f"All rows{about}", columns=tuple(columns), rows=tuple(rows), note=note
    )


def _form(row: Row) -> str:
    place = {None: "", True: "in place", False: "out of place"}[row.in_place]
    style = "" if row.style is Style.STREAMING else row.style.value
    return ", ".join(word for word in (place, style) if word) or row.style.value


def _data(row: Row) -> str:
    if row.wrong is not None:
        return f"{row.wrong.elements} WRONG"
    return "right" if row.validated else "not checked"


def _fit_tables(facts: BenchFacts, about: str) -> list[Table]:
    """What each curve amounts to: time = latency + size / bandwidth."""
    rows: list[tuple[Scalar, ...]] = []
    for curve in curves_of(facts.rows):
        if curve.num_ranks == 1:
            continue  # a copy, or nothing at all: it has neither a wire nor a bandwidth
        fit = fit_curve(curve.points)
        definition = BY_NAME.get(curve.collective)
        if fit is None or definition is None:
            continue
        factor = definition.factor.of(curve.num_ranks) if curve.num_ranks else None
        largest = curve.points[-1][0]
        reached = "" if fit.plateau_reached else "at least "
        rows.append(
            (
                curve.label + (", at once" if curve.concurrent else ""),
                rounded(fit.alpha_us),
                f"{reached}{fit.plateau_gbps * factor:.4g}" if factor else None,
                format_bytes(fit.n_half_bytes) if fit.n_half_bytes <= largest else "not reached",
                format_bytes(fit.size_at_90_pct) if fit.size_at_90_pct is not None else "not reached",
            )
        )
    columns = (
        Column(name="curve"),
        Column(name="latency", unit="us", align="right"),
        Column(name="busbw plateau", unit="GB/s", align="right"),
        Column(name="half speed from", align="right"),
        Column(name="90 % from", align="right"),
    )
    title = f"Latency and plateau of each curve{about}"
    note = "latency and half speed by time = latency + size / bandwidth, fitted; plateau and 90 % as measured"
    return (
        [Table(name="bench-fits", title=title, columns=columns, rows=tuple(rows), note=note)] if rows else []
    )


def _definition_table(rows: Sequence[Row]) -> Table:
    names = dict.fromkeys(row.collective for row in rows)
    definitions = [BY_NAME[name] for name in names if name in BY_NAME]
    return Table(
        name="bench-definitions",
        title="What size and busbw mean, as in nccl-tests: algbw = size / time, busbw = algbw x factor",
        columns=(Column(name="collective"), Column(name="size is"), Column(name="factor")),
        rows=tuple((each.name, each.size_meaning.value, each.factor.value) for each in definitions),
        note="n: number of ranks; K, M, G in sizes are powers of 1024",
    )


def _measurement_table(facts: BenchFacts, about: str) -> Table:
    return Table(
        name=MEASUREMENTS,
        title=f"Measurements{about}",
        columns=tuple(Column(name=name) for name in MEASUREMENT_COLUMNS),
        rows=tuple(_measurement(row) for row in facts.rows),
        note=facts.backend,
        place="data",
    )


def _measurement(row: Row) -> tuple[Scalar, ...]:
    wrong = row.wrong
    return (
        row.collective, row.group.kind.value, row.group.label, row.group.set_label, fold_ints(row.group.ranks),
        row.num_ranks, row.size_bytes, row.dtype, row.op, row.in_place, row.style.value, row.concurrent, row.iters,
        row.time_us, " ".join(f"{each:.3f}" for each in row.repeats_us), row.min_us, row.max_us, row.p95_us,
        row.p99_us, row.mean_us, row.fastest_rank_us, row.algbw_gbps, row.busbw_gbps, row.validated,
        None if wrong is None else wrong.elements, None if wrong is None else fold_ints(wrong.ranks),
        row.algorithm, row.protocol, row.channels,
    )  # fmt: skip


# --- arrivals, set-up ---------------------------------------------------------------------------------------


def _computing_tables(facts: BenchFacts, about: str) -> list[Table]:
    alone = {
        (row.collective, row.size_bytes): row.busbw_gbps
        for row in facts.rows
        if row.group.kind is GroupKind.JOB and row.style is Style.STREAMING
    }
    rows = tuple(
        (
            row.collective,
            format_bytes(row.size_bytes),
            rounded(before := alone.get((row.collective, row.size_bytes))),
            rounded(row.busbw_gbps),
            round(100 * row.busbw_gbps / before) if before and row.busbw_gbps is not None else None,
        )
        for row in facts.computing_rows
    )
    columns = (
        Column(name="collective"),
        Column(name="size", align="right"),
        Column(name="alone", unit="GB/s", align="right"),
        Column(name="computing", unit="GB/s", align="right"),
        Column(name="left", unit="%", align="right"),
    )
    title = f"Bus bandwidth while the devices multiply matrices{about}"
    return [Table(name="bench-computing", title=title, columns=columns, rows=rows)] if rows else []


def _arrival_tables(facts: BenchFacts, about: str) -> list[Table]:
    if not facts.arrivals:
        return []
    told = facts.arrivals[-1]
    hosts = {place.rank: place.host for place in facts.places}
    columns = (
        Column(name="rank", align="right"),
        Column(name="host"),
        Column(name="own time", unit="us", align="right"),
        Column(name="waits", unit="us", align="right"),
        Column(name="last to arrive", unit="%", align="right"),
    )
    rows = tuple(
        (
            each.rank,
            hosts.get(each.rank),
            rounded(each.own_us),
            rounded(each.wait_us),
            round(100 * each.last_share),
        )
        for each in told.arrivals
    )
    size = f" of {format_bytes(told.size_bytes)}" if told.size_bytes else ""
    return [
        Table(
            name="bench-arrivals",
            title=f"Who arrives late, {told.collective}{size}{about}",
            columns=columns,
            rows=rows,
            note=f"the last to arrive waits least; the transfer itself takes {scalar_text(rounded(told.transfer_us))} us",
        )
    ]


def _set_up_table(facts: BenchFacts) -> list[Table]:
    set_up = facts.set_up
    if set_up is None:
        return []
    named = (
        ("import torch", set_up.import_torch_s),
        ("process group", set_up.process_group_s),
        ("first collective", set_up.first_collective_s),
        ("further groups", set_up.communicators_s),
    )
    rows = tuple((name, round(seconds, 3)) for name, seconds in named if seconds is not None)
    columns = (Column(name="step"), Column(name="slowest rank", unit="s", align="right"))
    return [Table(name="bench-set-up", title="Set-up, timed apart", columns=columns, rows=rows)]


def rounded(value: float | None) -> float | None:
    """Four significant digits: more than any repeat agrees on."""
    return None if value is None else float(f"{value:.4g}")

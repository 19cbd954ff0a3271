"""Rows back from a report of this command: what `--save-baseline` keeps, and what a ticket's JSON holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdoctor.nccl_bench.definitions import BARRIER, BY_NAME
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.places import HostHardware, Versions
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Row, Style, WrongData
from distdoctor.nccl_bench.tables import MEASUREMENTS
from distdoctor.report.model import Report, Scalar, Table

_MAX_ROWS = 100_000
_MAX_RANKS = 1 << 20


def facts_of_report(report: Report, label: str) -> BenchFacts | None:
    """The rows and the subject of a report; None when it holds no measurements."""
    rows = tuple(row for table in report.tables if table.name == MEASUREMENTS for row in _rows(table))
    if not rows:
        return None
    subject = report.subject
    return BenchFacts(
        origin=Origin.REPORT,
        label=label,
        backend=_backend(report),
        num_ranks=subject.world_size,
        num_hosts=len(subject.hosts) or None,
        hardware=_hardware(report),
        versions=Versions(torch=subject.torch, nccl=subject.nccl, cuda=subject.cuda, driver=subject.driver),
        rows=rows,
    )


def _rows(table: Table) -> list[Row]:
    names = [column.name for column in table.columns]
    found = []
    for cells in table.rows[:_MAX_ROWS]:
        row = _row(dict(zip(names, cells, strict=False)))
        if row is not None:
            found.append(row)
    return found


def _row(cells: Mapping[str, Scalar]) -> Row | None:
    """None for a row that this version cannot understand."""
    collective, size, time_us = (
        cells.get("collective"),
        _whole(cells.get("size_bytes")),
        _number(cells.get("time_us")),
    )
    if not isinstance(collective, str) or (collective not in BY_NAME and collective != BARRIER):
        return None
    if size is None or time_us is None or time_us <= 0:
        return None
    elements = _whole(cells.get("wrong_elements"))
    return Row(
        collective=collective,
        group=Group(
            kind=_kind(cells.get("kind")),
            label=_text(cells.get("group")) or "job",
            ranks=_ranks(cells.get("ranks")),
            set_label=_text(cells.get("set")) or "",
        ),
        num_ranks=_whole(cells.get("num_ranks")),
        size_bytes=size,
        dtype=_text(cells.get("dtype")) or "float32",
        op=_text(cells.get("op")),
        in_place=_flag(cells.get("in_place")),
        style=Style.ISOLATED if cells.get("style") == Style.ISOLATED.value else Style.STREAMING,
        concurrent=cells.get("concurrent") is True,
        iters=_whole(cells.get("iters")),
        time_us=time_us,
        repeats_us=_times(cells.get("repeats_us")),
        min_us=_number(cells.get("min_us")),
        max_us=_number(cells.get("max_us")),
        p95_us=_number(cells.get("p95_us")),
        p99_us=_number(cells.get("p99_us")),
        mean_us=_number(cells.get("mean_us")),
        fastest_rank_us=_number(cells.get("fastest_rank_us")),
        algbw_gbps=_number(cells.get("algbw_gbps")),
        busbw_gbps=_number(cells.get("busbw_gbps")),
        validated=cells.get("validated") is True,
        wrong=WrongData(ranks=_ranks(cells.get("wrong_ranks")), elements=elements) if elements else None,
        algorithm=_text(cells.get("algorithm")),
        protocol=_text(cells.get("protocol")),
    )


def _kind(value: Scalar) -> GroupKind:
    known = {each.value: each for each in GroupKind}
    return known.get(value, GroupKind.TABLE) if isinstance(value, str) else GroupKind.TABLE


def _text(value: Scalar) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _flag(value: Scalar) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(value: Scalar) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Scalar) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e15 else None


def _times(value: Scalar) -> tuple[float, ...]:
    words = value.split()[:100] if isinstance(value, str) else []
    try:
        times = tuple(float(word) for word in words)
    except ValueError:
        return ()
    return times if all(0 < each < 1e15 for each in times) else ()


def _ranks(value: Scalar) -> tuple[int, ...]:
    """Back from `0-3,8`."""
    ranks: list[int] = []
    for part in str(value or "").split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            continue
        low, high = int(first), int(last) if dash else int(first)
        if high < _MAX_RANKS and low <= high:
            ranks += range(low, high + 1)
    return tuple(ranks)


def _backend(report: Report) -> str | None:
    for table in report.tables:
        if table.name == MEASUREMENTS:
            return table.note
    return None


def _hardware(report: Report) -> tuple[HostHardware, ...]:
    models: Sequence[str] = report.subject.gpu_models
    hosts = report.subject.hosts
    if len(models) != 1 or not hosts or not report.subject.num_gpus:
        return ()
    each = report.subject.num_gpus // len(hosts)
    return tuple(HostHardware(host=host, gpu_models=tuple(models) * each) for host in hosts)

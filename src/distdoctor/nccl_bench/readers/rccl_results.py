"""What rccl-tests writes with `-Z csv` or `-Z json` and `-x FILE`: one record for each row and half → facts.

Source: class Reporter in src/common.cu of ROCm/rccl-tests. Two traps are its own: the CSV header names fewer
columns than the records have, and `size` is what each rank receives, which is a part of nccl-tests' size for
reduce_scatter and scatter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from distdoctor.nccl_bench.definitions import (
    BY_NAME,
    algbw_gbps,
    busbw_gbps,
    canonical_name,
    ranks_from_ratio,
)
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin, TableNotes
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Row, WrongData
from distdoctor.nccl_bench.readers.data_types import torch_name
from distdoctor.nccl_bench.readers.draft import MAX_ROWS
from distdoctor.nccl_bench.readers.json_text import members, number, parse_json, whole, word

_CSV_HEADER = re.compile(
    r"(?:num\w*cycle,\s*)?collective,.*\binplace,\s*time,\s*algbw,\s*busbw,\s*#?wrong", re.IGNORECASE
)
_TAIL = ("size", "type", "redop", "inPlace", "time", "algBw", "busBw", "wrong")
_KEYS = frozenset({"size", "time", "algBw", "busBw"})

# A record's line is some 300 characters long; longer ones are no records.
_MAX_RECORD_CHARACTERS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row's half as written."""

    name: str
    size: int
    data_type: str
    op: str | None
    in_place: bool | None
    time_us: float
    algbw: float | None
    busbw: float | None
    wrong: int | None
    ranks: tuple[int, ...]
    """Numbers of ranks that the counts in the record allow."""
    line: int


def read_rccl_results(text: str, label: str) -> tuple[BenchFacts, ...]:
    """One BenchFacts for each collective in the file; empty when `text` is no such file."""
    found = list(_records(text))
    names = list(dict.fromkeys(record.name for record in found))
    several = len(names) > 1
    return tuple(
        _facts(
            [record for record in found if record.name == name],
            name,
            f"{label}, {name}" if several else label,
            left_out=len(found) >= MAX_ROWS,
        )
        for name in names
    )


def _records(text: str) -> Iterator[Record]:
    source = _csv(text) if _CSV_HEADER.search(text[:_MAX_RECORD_CHARACTERS]) else _json(text)
    count = 0
    for line, cells, ranks in source:
        record = _record(line, cells, ranks)
        if record is not None:
            yield record
            count += 1
        if count >= MAX_ROWS:
            return


def _csv(text: str) -> Iterator[tuple[int, dict[str, object], tuple[int, ...]]]:
    for line, row in enumerate(text.split("\n"), start=1):
        cells = [cell.strip() for cell in row[:_MAX_RECORD_CHARACTERS].split(",")]
        if len(cells) <= len(_TAIL) or not cells[-len(_TAIL)].isdigit():
            continue
        head = cells[: -len(_TAIL)]
        name = next((cell for cell in head if cell and not cell.isdigit()), None)
        values: dict[str, object] = dict(zip(_TAIL, cells[-len(_TAIL) :], strict=True))
        yield (
            line,
            {**values, "name": name},
            _ranks([int(cell) for cell in head if cell.isdigit() and len(cell) < 8]),
        )


def _json(text: str) -> Iterator[tuple[int, dict[str, object], tuple[int, ...]]]:
    for line, entry in _objects(text):
        if entry.keys() >= _KEYS:
            counts = [whole(entry.get(key)) for key in ("ranks", "ranksPerNode", "gpusPerRank")]
            known = [count for count in counts if count is not None]
            if not known:
                known = [count for count in [whole(entry.get("gpus"))] if count is not None]
            yield line, entry, _ranks(known)


def _objects(text: str) -> Iterator[tuple[int, dict[str, object]]]:
    """An object a line, or one list of them."""
    if text.lstrip("\ufeff \t\r\n")[:1] == "[":
        value, _ = parse_json(text)
        if isinstance(value, list):
            yield from ((0, members(each)) for each in value)
            return
    for line, row in enumerate(text.split("\n"), start=1):
        start = row.strip().rstrip(",")
        if start[:1] != "{" or len(start) > _MAX_RECORD_CHARACTERS:
            continue
        try:
            yield line, members(json.loads(start))
        except (ValueError, RecursionError):
            continue


def _ranks(counts: Sequence[int]) -> tuple[int, ...]:
    """[gpus], or [(nodes,) processes, processes of the group or node, GPUs of each]: the ranks that may be meant."""
    if len(counts) == 1:
        return tuple(counts)
    if len(counts) < 3:
        return ()
    processes, per_group, gpus = counts[-3:]
    return tuple(dict.fromkeys((processes * gpus, per_group * gpus)))


def _record(line: int, cells: dict[str, object], ranks: tuple[int, ...]) -> Record | None:
    size, time_us = whole(cells.get("size")), number(cells.get("time"))
    name = canonical_name(word(cells.get("name")) or "")
    if not size or not time_us or name not in BY_NAME:
        return None
    op = word(cells.get("redop"))
    in_place = whole(cells.get("inPlace"))
    return Record(
        name=name,
        size=size,
        data_type=word(cells.get("type")) or "float",
        op=None if op in (None, "none") else op,
        in_place=None if in_place is None else bool(in_place),
        time_us=time_us,
        algbw=number(cells.get("algBw")),
        busbw=number(cells.get("busBw")),
        wrong=whole(cells.get("wrong")),
        ranks=ranks,
        line=line,
    )


def _facts(records: Sequence[Record], name: str, label: str, *, left_out: bool) -> BenchFacts:
    num_ranks = _num_ranks(name, records)
    group = Group(kind=GroupKind.TABLE, label="table", ranks=())
    rows = tuple(_row(record, group, num_ranks) for record in records)
    return BenchFacts(
        origin=Origin.TABLE,
        label=label,
        backend="rccl",
        num_ranks=num_ranks,
        rows=rows,
        table=TableNotes(
            tool="rccl-tests",
            excerpt=True,  # the file has no summary: whether the run ended cannot be seen in it
            validated=any(row.validated for row in rows),
            collective_from="the records' names",
            left_out_rows=1 if left_out else 0,
            last_line=records[-1].line or None,
        ),
    )


def _num_ranks(name: str, records: Iterable[Record]) -> int | None:
    """What busbw/algbw says, where it says something; else the record's count when only one is possible."""
    ratios = []
    written: set[int] = set()
    for record in records:
        written.update(record.ranks)
        # Six decimals are printed; below this they are too few.
        if record.algbw and record.busbw is not None and record.algbw > 1e-2:
            ratios.append(record.busbw / record.algbw)
    if ratios:
        ratio = median(ratios)
        if ratio == 0:
            return 1
        found = ranks_from_ratio(name, ratio)
        if found is not None and (not written or found in written):
            return found
    return written.pop() if len(written) == 1 else None


def _row(record: Record, group: Group, num_ranks: int | None) -> Row:
    size = _whole_size(record, num_ranks)
    busbw = record.busbw or (busbw_gbps(record.name, size, record.time_us, num_ranks) if num_ranks else None)
    return Row(
        collective=record.name,
        group=group,
        num_ranks=num_ranks,
        size_bytes=size,
        dtype=torch_name(record.data_type),
        op=record.op,
        in_place=record.in_place,
        time_us=record.time_us,
        mean_us=record.time_us,
        algbw_gbps=record.algbw or algbw_gbps(size, record.time_us),
        busbw_gbps=None if num_ranks == 1 else busbw,
        wrong=WrongData(ranks=(), elements=record.wrong) if record.wrong else None,
        validated=record.wrong is not None,
        source_line=record.line or None,
    )


def _whole_size(record: Record, num_ranks: int | None) -> int:
    """nccl-tests' size: algbw times time tells when the record holds a rank's part of it."""
    if (
        num_ranks is None
        or num_ranks < 2
        or not record.algbw
        or record.name not in ("reduce_scatter", "scatter")
    ):
        return record.size
    share = record.algbw * record.time_us * 1e3 / record.size
    return record.size * num_ranks if abs(share / num_ranks - 1) < abs(share - 1) else record.size

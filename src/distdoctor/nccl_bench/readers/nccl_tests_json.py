"""What nccl-tests writes with `-J FILE` (versions 1 to 3 of its format) → facts.

Its `env` is the whole environment of the run, secrets included: only NCCL_… and RCCL_… are taken from it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from distdoctor.nccl_bench.definitions import algbw_gbps, busbw_gbps
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin, TableNotes
from distdoctor.nccl_bench.facts.places import Versions
from distdoctor.nccl_bench.facts.rows import Group, NotMeasured, Row, WrongData
from distdoctor.nccl_bench.readers.columns import Half, TableRow
from distdoctor.nccl_bench.readers.commands import Command, merged, parse_command
from distdoctor.nccl_bench.readers.data_types import torch_name
from distdoctor.nccl_bench.readers.draft import MAX_DEVICES, MAX_FAILURE_CHARACTERS, MAX_FAILURES, MAX_ROWS
from distdoctor.nccl_bench.readers.head import (
    MAX_NAME_CHARACTERS,
    MAX_RANK,
    DeviceLine,
    pci_address,
    version_of_code,
)
from distdoctor.nccl_bench.readers.inference import (
    Collective,
    infer_collective,
    is_possible,
    ranks_of_table,
)
from distdoctor.nccl_bench.readers.json_text import items, members, number, parse_json, truth, whole, word
from distdoctor.nccl_bench.readers.numbers import Printed
from distdoctor.nccl_bench.readers.ranks_of_table import (
    by_rank,
    group_of,
    hardware_of,
    is_complete,
    places_of,
    share_gpus,
)

# Beyond these an environment or a command line is no such thing.
MAX_ARGUMENTS = 1000
MAX_VARIABLES = 10_000

_NCCL_VARIABLE = re.compile(r"((?:NCCL|RCCL)_[A-Z0-9_]{1,80})=(.*)", re.DOTALL)
# Numbers are written with six decimals.
_HALF_UNIT = 0.5e-6
_HALVES = (("out_of_place", False), ("in_place", True))
_KEYS = frozenset({"args", "config", "results", "out_of_bounds", "average_bus_bandwidth", "nccl_version"})

# So many of its keys make a JSON file one of nccl-tests.
MIN_KEYS = 2


def read_nccl_tests_json(text: str, label: str) -> tuple[BenchFacts, ...]:
    """The facts of one file; empty when `text` is no such file. A file that was cut gives what is whole of it."""
    value, is_whole = parse_json(text)
    report = members(value)
    if len(_KEYS & report.keys()) < MIN_KEYS:
        return ()
    config = members(report.get("config"))
    devices = by_rank(_devices(config))
    group, concurrent = group_of(devices)
    command = _command(report)
    results = [members(each) for each in items(report.get("results"), MAX_ROWS)]
    table = [row for result in results for row in _table_row(result)]
    listed = _listed(devices, group, config, concurrent=concurrent)
    collective = _collective(command, table, listed, label)
    num_ranks = ranks_of_table(collective.name, table)
    if listed is not None and is_possible(collective.name, listed, table):
        num_ranks = listed
    # Of each process the file names the first GPU only; then places and hosts are a part of them.
    all_named = is_complete(devices) and (concurrent or len(devices) == num_ranks)
    if not all_named:
        group = replace(group, ranks=())
    run = _Run(
        collective=collective.name,
        group=group,
        concurrent=concurrent,
        num_ranks=num_ranks,
        iters=whole(config.get("iterations")),
        validation=whole(config.get("validation")),
    )
    rows = tuple(row for result in results for row in _rows(result, run)) if collective.name else ()
    return (
        BenchFacts(
            origin=Origin.TABLE,
            label=label,
            backend="rccl" if any("AMD" in (device.model or "") for device in devices) else "nccl",
            num_ranks=len(devices) if all_named else num_ranks,
            num_hosts=len({device.host for device in devices}) if all_named else None,
            places=places_of(devices) if all_named else (),
            hardware=hardware_of(devices) if all_named else (),
            versions=Versions(nccl=version_of_code(whole(report.get("nccl_version")))),
            rows=rows,
            not_measured=_not_measured(collective),
            table=_notes(report, rows, collective, is_whole=is_whole),
            overrides=merged((*_variables(report), *command.overrides)),
            shares_gpus=share_gpus(devices),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """What all rows of a file share."""

    collective: str
    group: Group
    concurrent: bool
    num_ranks: int | None
    iters: int | None
    validation: int | None


def _listed(
    devices: Sequence[DeviceLine], group: Group, config: dict[str, object], *, concurrent: bool
) -> int | None:
    """Ranks by the list of devices, which holds one line a process, and the GPUs of each process."""
    if concurrent:
        return len(group.ranks) or None
    if not devices:
        return None
    each = (whole(config.get("nthreads"), least=1) or 1) * (whole(config.get("ngpus"), least=1) or 1)
    return devices[-1].rank + 1 if is_complete(devices) and len(devices) > 1 else devices[-1].rank + each


def _collective(command: Command, table: Sequence[TableRow], listed: int | None, label: str) -> Collective:
    if command.collective is not None:
        return Collective(name=command.collective, known=True, source="its command line")
    return infer_collective(table, None, listed, label)


def _table_row(result: dict[str, object]) -> list[TableRow]:
    """The row as a table would print it, for inference."""
    size, count = whole(result.get("size")), whole(result.get("count"))
    if not size or count is None:
        return []
    halves = []
    for name, in_place in _HALVES:
        half = members(result.get(name))
        time_us, algbw, busbw = (number(half.get(key)) for key in ("time", "alg_bw", "bus_bw"))
        if algbw is not None and busbw is not None:
            wrong = whole_of(half.get("nwrong"))
            halves.append(
                Half(
                    in_place=in_place,
                    time=Printed(time_us or 0.0, _HALF_UNIT),
                    algbw=Printed(algbw, _HALF_UNIT),
                    busbw=Printed(busbw, _HALF_UNIT),
                    check="N/A" if wrong is None else str(wrong),
                )
            )
    op = word(result.get("redop"))
    return [
        TableRow(
            line=0,
            size=size,
            count=count,
            data_type=(word(result.get("type")) or "float").lower(),
            op=None if op in (None, "none") else op,
            root=whole(result.get("root"), least=-1),
            halves=tuple(halves),
            num_expected=len(_HALVES),
        )
    ]


def _command(report: dict[str, object]) -> Command:
    arguments = [word(each) or "" for each in items(report.get("args"), MAX_ARGUMENTS)]
    return parse_command(" ".join(arguments)) if arguments else Command()


def _variables(report: dict[str, object]) -> list[tuple[str, str]]:
    found = []
    for entry in items(report.get("env"), MAX_VARIABLES):
        match = _NCCL_VARIABLE.fullmatch(entry) if isinstance(entry, str) else None
        if match is not None:
            found.append((match[1], match[2]))
    return found


def _devices(config: dict[str, object]) -> list[DeviceLine]:
    found = []
    for entry in items(config.get("devices"), MAX_DEVICES):
        device = members(entry)
        rank, index = whole(device.get("rank")), whole(device.get("device"))
        host = word(device.get("hostname"), MAX_NAME_CHARACTERS)
        if rank is None or rank > MAX_RANK or host is None:
            continue
        found.append(
            DeviceLine(
                rank=rank,
                group=whole(device.get("group")),
                pid=whole(device.get("pid")),
                host=host,
                device=index or 0,
                pci=pci_address(word(device.get("device_hex")) or ""),
                model=word(device.get("device_info"), MAX_NAME_CHARACTERS),
            )
        )
    return found


def _rows(result: dict[str, object], run: _Run) -> list[Row]:
    size = whole(result.get("size"))
    if not size:
        return []
    redop = word(result.get("redop"))
    iterations = whole(result.get("actual_iterations")) or run.iters
    rows = []
    for name, in_place in _HALVES:
        half = members(result.get(name))
        algbw = number(half.get("alg_bw"))
        time_us = number(half.get("time"))
        if time_us is None and algbw:
            time_us = size / algbw / 1e3  # -C: the CPU's time stands there instead
        if not time_us:
            continue
        each = members(result.get(f"{name}_per_iter"))
        wrong = whole_of(half.get("nwrong"))
        rows.append(
            Row(
                collective=run.collective,
                group=run.group,
                num_ranks=run.num_ranks,
                size_bytes=size,
                dtype=torch_name(word(result.get("type")) or "float"),
                op=None if redop in (None, "none") else redop,
                in_place=in_place,
                concurrent=run.concurrent,
                iters=iterations,
                time_us=time_us,
                min_us=number(each.get("min_us")),
                max_us=number(each.get("max_us")),
                p95_us=number(each.get("p95_us")),
                p99_us=number(each.get("p99_us")),
                mean_us=time_us,
                algbw_gbps=algbw or algbw_gbps(size, time_us),
                busbw_gbps=_busbw(half, run, size, time_us),
                wrong=WrongData(ranks=(), elements=wrong) if wrong else None,
                validated=wrong is not None and run.validation != 0,
            )
        )
    return rows


def whole_of(value: object) -> int | None:
    """A count that is written as `96.000000`; None where it is null."""
    found = number(value)
    return int(found) if found is not None else None


def _busbw(half: dict[str, object], run: _Run, size: int, time_us: float) -> float | None:
    if run.num_ranks is not None and run.num_ranks < 2:
        return None
    printed = number(half.get("bus_bw"))
    if printed or run.num_ranks is None:
        return printed or None
    return busbw_gbps(run.collective, size, time_us, run.num_ranks)


def _not_measured(collective: Collective) -> tuple[NotMeasured, ...]:
    if collective.name:
        return ()
    why = "this benchmark is of no collective that distdoctor compares"
    return (NotMeasured(what="rows of hypercube_perf", why=why, refused=False),)


def _notes(
    report: dict[str, object], rows: tuple[Row, ...], collective: Collective, *, is_whole: bool
) -> TableNotes:
    bounds, average = members(report.get("out_of_bounds")), members(report.get("average_bus_bandwidth"))
    ended = is_whole and bool(bounds or "end_time" in report)
    largest = max((row.size_bytes for row in rows), default=None)
    planned = whole(members(report.get("config")).get("maximum_bytes"))
    sizes = [whole(members(each).get("size")) for each in items(report.get("results"), MAX_ROWS)]
    num_results = len(items(report.get("results"), 10 * MAX_ROWS))
    count = whole(bounds.get("count"))
    cut = "the file ends before its summary" + (f", after the row of {largest} bytes" if largest else "")
    return TableNotes(
        tool="nccl-tests",
        ended=ended,
        cut=None if ended else cut,
        out_of_bounds=count,
        out_of_bounds_ok=count == 0 if count is not None else truth(bounds.get("okay")),
        average_busbw_gbps=number(average.get("bandwidth")),
        validated=any(row.validated for row in rows) if rows else None,
        errors=tuple(
            text[:MAX_FAILURE_CHARACTERS]
            for each in items(report.get("errors"), MAX_FAILURES)
            for text in [word(each, MAX_FAILURE_CHARACTERS)]
            if text
        ),
        skipped_rows=sum(size == 0 for size in sizes),
        collective_known=collective.known,
        collective_from=collective.source,
        planned_max_bytes=planned,
        left_out_rows=num_results - len(sizes),
    )

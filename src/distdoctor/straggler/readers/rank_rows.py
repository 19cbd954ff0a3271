"""One table file as rows of ranks: steps, times of day, and milliseconds by what a column says it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import Times
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.clock_values import epoch_unit, utc_seconds, utc_seconds_of_texts
from distdoctor.straggler.readers.column_names import Said
from distdoctor.straggler.readers.column_plan import Key, Plan, make_plan
from distdoctor.straggler.readers.columns import MAX_RANKS, MS_IN, Role, rank_in_path
from distdoctor.straggler.readers.raw_table import RawTable
from distdoctor.straggler.readers.row_places import moved_ranks, places_of
from distdoctor.units import format_seconds

# No part of a training step takes longer than 30 days.
MAX_MS = 30 * 86_400_000.0

# Steps are counted up to here: what is exact in a double.
MAX_STEP = 2**53

# Of step and parts in one row: so much apart they are in different units. Our own threshold, between the factor
# of 1000 of a wrong unit and what parts that are measured beside each other can differ by.
UNIT_FACTOR = 100.0

# So many steps, each longer than the one before, are no step times but a running total. Our own threshold: by chance
# that happens in one of 20! tables.
MIN_TOTAL_ROWS = 20

# A rank has several rows a step when so many of its rows, and this share of them, repeat the step of the row before with
# other times. With two rows a step it is half of them. Our own thresholds.
MIN_ROWS_WITHIN = 5
ROWS_WITHIN_SHARE = 0.3

# Steps that are shorter or longer in median leave doubt of the unit that was given. Our own thresholds.
LEAST_STEP_MS = 1.0
MOST_STEP_MS = 1e6

_MAIN_PARTS = (Section.FORWARD, Section.BACKWARD, Section.COMPUTE, Section.BACKWARD_WALL)


@dataclass(slots=True, kw_only=True)
class RankRows:
    """Rows of one rank from one file, in the order of attempts, then as they stand there; arrays of shape (rows,)."""

    path: str
    rank: int
    attempt: int = 0
    steps: NDArray[np.int64]
    values: dict[Key, Times]
    started_s: NDArray[np.float64] | None = None


@dataclass(slots=True, kw_only=True)
class FileRows:
    """All of one file."""

    path: str
    ranks: list[RankRows] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    world_sizes: list[int] = field(default_factory=list)
    units: dict[Section, str] = field(default_factory=dict)
    columns: dict[Key, str] = field(default_factory=dict)
    """How the file calls what it holds."""
    unused: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    """What was left out, in words, and how many values."""
    no_zone: bool = False
    no_step_numbers: bool = False
    doubts: list[str] = field(default_factory=list)
    """What looks wrong, in sentences, and was read nonetheless."""
    moved: list[int] = field(default_factory=list)
    """Ranks whose rows name several hosts."""
    has_no_rank: bool = False
    """Neither a column nor the file's name tells the rank: `ranks` holds one entry, of rank 0, that stands for nobody."""


def rows_of_table(
    table: RawTable, options: ReadOptions, defaults: dict[str, object] | None = None
) -> FileRows:
    """The rows of a table whose columns are all there; `defaults` are values that hold for the whole file.

    Raises InputError with one line when the table cannot be understood: no times, no unit, units that cannot be.
    """
    plan = make_plan(table, options.unit)
    file = FileRows(path=table.path, unused=[*plan.unused, *table.unknown])
    steps, is_kept = _steps(table, plan, options, file)
    values = _values(table, plan, options, file)
    started = _started(table, plan, file)
    ranks = _ranks(table, plan, file, defaults)
    attempts = table.numbers(plan.places[Role.ATTEMPT].name) if Role.ATTEMPT in plan.places else None
    if ranks is not None:
        is_kept &= np.isfinite(ranks) & (ranks >= 0) & (ranks < MAX_RANKS)
    for rank in {rank for rank, _ in values if rank is not None}:
        file.ranks.append(
            _wide_rows(file.path, rank, steps=steps, is_kept=is_kept, values=values, started=started)
        )
    long_values = {key: array for (rank, key), array in values.items() if rank is None}
    if long_values and not file.ranks:
        _add_long_rows(
            file,
            ranks=ranks,
            attempts=attempts,
            steps=steps,
            is_kept=is_kept,
            values=long_values,
            started=started,
        )
    if not file.has_no_rank:
        _add_world_sizes(table, plan, file, defaults or {})
        if ranks is not None:
            file.places += places_of(table, plan, ranks, is_kept, defaults or {})
            file.moved = moved_ranks(table, plan, ranks, is_kept)
    _doubt_the_given_unit(file, plan, options)
    _refuse_rows_within_steps(file)
    _drop_running_totals(file)
    _refuse_wrong_units(file)
    return file


def _steps(
    table: RawTable, plan: Plan, options: ReadOptions, file: FileRows
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    if plan.step is None:
        file.no_step_numbers = True
        return np.arange(table.num_rows, dtype=np.int64), np.ones(table.num_rows, dtype=bool)
    numbers = table.numbers(plan.step.name)
    with np.errstate(invalid="ignore"):
        is_kept = (numbers >= 0) & (numbers < MAX_STEP) & (numbers == np.floor(numbers))
    if not np.all(is_kept):
        file.dropped["rows without a step number"] += int(np.count_nonzero(~is_kept))
    steps = np.where(is_kept, numbers, 0).astype(np.int64)
    return steps, is_kept & options.wants_each(steps)


def _values(
    table: RawTable, plan: Plan, options: ReadOptions, file: FileRows
) -> dict[tuple[int | None, Key], Times]:
    values: dict[tuple[int | None, Key], Times] = {}
    for (rank, key), columns in plan.times.items():
        total: Times | None = None
        for column in columns:
            unit = plan.unit_of(column, options.unit)
            with np.errstate(over="ignore", invalid="ignore"):
                part = _milliseconds(table.short_numbers(column.name), unit)
            total = part if total is None else _sum(total, part)
            num_text, _, _ = table.not_numbers(column.name)
            file.dropped[f"values of `{column.name}` that are no numbers"] += num_text
            file.units.setdefault(key[0], unit)
            table.forget(column.name)
        if total is not None:
            values[rank, key] = _bounded(total, columns[0].name, file)
            file.columns.setdefault(key, " + ".join(column.name for column in columns[:3]))
    return values


def _milliseconds(values: Times, unit: str) -> Times:
    """Divided by whole numbers rather than multiplied by fractions: 3000 us are 3 ms, and not 3.0000002."""
    scale = MS_IN[unit]
    converted: Times = values * np.float32(scale) if scale >= 1 else values / np.float32(round(1 / scale))
    return converted


def _sum(one: Times, other: Times) -> Times:
    """What only one of them has counts as it is."""
    total: Times = np.where(np.isnan(one), other, np.where(np.isnan(other), one, one + other))
    return total


def _bounded(values: Times, name: str, file: FileRows) -> Times:
    with np.errstate(invalid="ignore"):
        is_bad = ~np.isnan(values) & ~((values >= 0) & (values <= MAX_MS))
    if np.any(is_bad):
        file.dropped[f"values of `{name}` below zero or without bounds"] += int(np.count_nonzero(is_bad))
        values = np.where(is_bad, np.float32(np.nan), values)
    return values


def _started(table: RawTable, plan: Plan, file: FileRows) -> NDArray[np.float64] | None:
    if plan.clock is None:
        return None
    name = plan.clock.name
    words = table.words(name)
    if words is not None:
        codes, texts = words
        seconds, has_zone = utc_seconds_of_texts(texts)
        file.no_zone = not has_zone
        return np.append(seconds, np.nan)[codes]
    numbers = table.numbers(name)
    unit = epoch_unit(numbers, plan.clock.unit)
    return utc_seconds(numbers, unit) if unit else None


def _ranks(
    table: RawTable, plan: Plan, file: FileRows, defaults: dict[str, object] | None
) -> NDArray[np.float64] | None:
    """Of each row; None when every rank has its own columns. Says in `file` when nothing tells the rank."""
    if all(rank is not None for rank, _ in plan.times):
        return None
    if Role.RANK in plan.places:
        ranks = table.numbers(plan.places[Role.RANK].name)
        is_none = np.isnan(ranks)
        if not np.all(is_none):
            if np.any(is_none):
                file.dropped["rows without a rank"] += int(np.count_nonzero(is_none))
            return ranks
    told = (defaults or {}).get("rank")
    if not (isinstance(told, int) and 0 <= told < MAX_RANKS):
        told = rank_in_path(table.path)
    file.has_no_rank = told is None
    return np.full(table.num_rows, float(told or 0))


def _wide_rows(
    path: str,
    rank: int,
    *,
    steps: NDArray[np.int64],
    is_kept: NDArray[np.bool_],
    values: dict[tuple[int | None, Key], Times],
    started: NDArray[np.float64] | None,
) -> RankRows:
    """Rows of one rank in a table in which every rank has its own columns."""
    own = {key: array for (whose, key), array in values.items() if whose == rank}
    is_there = is_kept & np.any([~np.isnan(array) for array in own.values()], axis=0)
    return RankRows(
        path=path,
        rank=rank,
        steps=steps[is_there],
        values={key: array[is_there] for key, array in own.items()},
        started_s=None if started is None else started[is_there],
    )


def _add_long_rows(
    file: FileRows,
    *,
    ranks: NDArray[np.float64] | None,
    attempts: NDArray[np.float64] | None,
    steps: NDArray[np.int64],
    is_kept: NDArray[np.bool_],
    values: dict[Key, Times],
    started: NDArray[np.float64] | None,
) -> None:
    """Rows of a table with a column of ranks, sorted by rank, then by attempt, and cut at each rank."""
    rows = np.flatnonzero(is_kept)
    if not len(rows):
        return
    rank_numbers = np.zeros(len(rows), np.int64) if ranks is None else ranks[rows].astype(np.int64)
    tries = np.zeros(len(rows), np.int64)
    if attempts is not None:
        tries = np.nan_to_num(attempts[rows], nan=0.0, posinf=0.0, neginf=0.0).astype(np.int64)
    if np.any(np.diff(rank_numbers) < 0) or np.any(tries != tries[0]):
        order = np.lexsort((tries, rank_numbers))
        rows, rank_numbers, tries = rows[order], rank_numbers[order], tries[order]
    sorted_steps = steps[rows]
    # One at a time, so that not all of them are there twice.
    sorted_values = {key: values.pop(key)[rows] for key in list(values)}
    sorted_started = None if started is None else started[rows]
    cuts = np.flatnonzero((np.diff(rank_numbers) != 0) | (np.diff(tries) != 0)) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
        numbers = sorted_steps[start:end]
        file.ranks.append(
            RankRows(
                path=file.path,
                rank=int(rank_numbers[start]),
                attempt=int(tries[start]),
                # Without numbers of steps, the rows of each rank are counted by themselves.
                steps=np.arange(end - start, dtype=np.int64) if file.no_step_numbers else numbers,
                values={key: array[start:end] for key, array in sorted_values.items()},
                started_s=None if sorted_started is None else sorted_started[start:end],
            )
        )


def _add_world_sizes(table: RawTable, plan: Plan, file: FileRows, defaults: dict[str, object]) -> None:
    size = defaults.get("world_size")
    file.world_sizes = [size] if isinstance(size, int) and 0 < size <= MAX_RANKS else []
    if Role.WORLD_SIZE in plan.places:
        told = table.numbers(plan.places[Role.WORLD_SIZE].name)
        known = np.unique(told[np.isfinite(told)])[:64]
        file.world_sizes += [int(size) for size in known if 0 < size <= MAX_RANKS]


def _doubt_the_given_unit(file: FileRows, plan: Plan, options: ReadOptions) -> None:
    """Tells when times are absurd in the unit that the command line gives for columns without one."""
    if options.unit is None:
        return
    middles = []
    for (_, key), columns in plan.times.items():
        told = [rows.values[key] for rows in file.ranks[:64] if key in rows.values]
        if told and any(column.unit is None for column in columns):
            known = np.concatenate(told)
            known = known[known > 0]
            middles += [float(np.median(known))] if len(known) else []
    longest_ms = max(middles, default=1.0)
    if longest_ms < LEAST_STEP_MS or longest_ms > MOST_STEP_MS:
        shown = f"{longest_ms:.2g} ms" if longest_ms < LEAST_STEP_MS else format_seconds(longest_ms / 1e3)
        file.doubts.append(
            f"by `--unit {options.unit}`, the longest times without a unit in their names are around {shown}; "
            "steps of training hardly take that: the unit may be wrong"
        )


def _refuse_rows_within_steps(file: FileRows) -> None:
    """Raises InputError where a rank has one row after the other of the same step, with other times in each.

    A restart repeats steps too, but goes back and comes again.
    """
    if file.has_no_rank or file.no_step_numbers:
        return
    for rows in file.ranks:
        again = np.flatnonzero(np.diff(rows.steps) == 0)
        if len(again) < MIN_ROWS_WITHIN or len(again) < ROWS_WITHIN_SHARE * len(rows.steps):
            continue
        other = np.zeros(len(again), dtype=bool)
        for values in rows.values.values():
            other |= (values[again] != values[again + 1]) & ~(
                np.isnan(values[again]) & np.isnan(values[again + 1])
            )
        if np.count_nonzero(other) < ROWS_WITHIN_SHARE * len(rows.steps):
            continue
        step = int(rows.steps[again[np.argmax(other)]])
        raise InputError(
            f"rank {rows.rank} has several rows for one step, such as {np.count_nonzero(rows.steps == step)} for step {step}",
            hint="add up micro-batches and parts of a step, and give the rows of one job alone",
        )


def _drop_running_totals(file: FileRows) -> None:
    """Leaves out a "step" that grows with every row: time since the start. Raises InputError when nothing remains."""
    key = (Section.STEP, Said.EXACTLY)
    long = [rows for rows in file.ranks[:64] if key in rows.values and len(rows.steps) >= MIN_TOTAL_ROWS]
    if not long or not all(
        _only_grows(rows.values[key][np.argsort(rows.steps, kind="stable")]) for rows in long
    ):
        return
    name = file.columns.pop(key, "step")
    for rows in file.ranks:
        rows.values.pop(key, None)
    if not any(rows.values for rows in file.ranks):
        raise InputError(
            f"column `{name}` grows with every step: time since the start, not the time of a step"
        )
    file.unused.append(f"{name} (grows with every step)")


def _only_grows(values: Times) -> bool:
    known = values[~np.isnan(values)]
    return (
        len(known) >= MIN_TOTAL_ROWS and bool(np.all(np.diff(known) > 0)) and bool(known[-1] > 2 * known[0])
    )


def _refuse_wrong_units(file: FileRows) -> None:
    """Raises InputError when step and parts of the same rows lie a factor of about a thousand apart."""
    ratios: list[NDArray[np.float32]] = []
    has_main = False
    for rows in file.ranks[:64]:
        step = rows.values.get((Section.STEP, Said.EXACTLY))
        parts = [
            array
            for (section, _), array in rows.values.items()
            if section not in (Section.STEP, Section.GC, Section.IDLE, Section.CHECKPOINT)
        ]
        has_main = has_main or any(section in _MAIN_PARTS for section, _ in rows.values)
        if step is None or not parts:
            continue
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios.append(
                np.nanmax(np.stack([np.nan_to_num(part, nan=0.0) for part in parts]), axis=0) / step
            )
    if not ratios:
        return
    together = np.concatenate(ratios)
    together = together[np.isfinite(together) & (together > 0)]
    if not len(together):
        return
    middle = float(np.median(together))
    if middle > UNIT_FACTOR or (has_main and middle < 1 / UNIT_FACTOR):
        times = middle if middle > 1 else 1 / middle
        which = "longest part" if middle > 1 else "step"
        step_name = file.columns.get((Section.STEP, Said.EXACTLY), "step")
        raise InputError(
            f"in most rows the {which} is {times:,.0f} times the {'step' if middle > 1 else 'longest part'}: "
            f"the unit of `{step_name}` or of the parts is wrong"
        )

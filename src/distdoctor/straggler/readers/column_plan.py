"""Which columns of a table give the step, the rank, the place and the times? Decided from names, units and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.clock_values import epoch_unit
from distdoctor.straggler.readers.column_names import Said
from distdoctor.straggler.readers.columns import Column, Role
from distdoctor.straggler.readers.raw_table import RawTable

Key = tuple[Section, Said]
"""What a time is, and how much its name says of waiting inside."""

# A column of times in which so many of the values are text is refused; fewer are left out and counted.
MAX_TEXT_SHARE = 0.2

# Longest times of a step or its parts that leave little doubt of their unit: steps take some 10 ms to 1,000 s. What lies
# between is not guessed. Our own choice.
_LOOKS_LIKE = {"s": (1e-4, 3.0), "ms": (20.0, 1e4), "us": (1e5, 1e7), "ns": (1e8, 1e12)}
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

# Columns that a refusal names.
_MAX_SHOWN = 8


@dataclass(slots=True, kw_only=True)
class Plan:
    """The columns of one table by what they give."""

    step: Column | None = None
    clock: Column | None = None
    places: dict[Role, Column] = field(default_factory=dict)
    """Rank, host, world size … by role."""
    coords: list[Column] = field(default_factory=list)
    times: dict[tuple[int | None, Key], list[Column]] = field(default_factory=dict)
    """By (rank where each rank has its own columns, else None; what it is): the columns that add up to it."""
    unused: list[str] = field(default_factory=list)
    """Columns that are understood and not used: a second one of the same kind, one without a unit."""

    def unit_of(self, column: Column, given: str | None) -> str:
        """The unit of a column that is in the plan: its own, or the one that was given."""
        unit = column.unit or given
        if unit is None:  # make_plan refuses these
            raise InputError(no_unit([column.name]))
        return unit


def no_unit(names: Sequence[str]) -> str:
    """How columns without a unit are refused."""
    shown = ", ".join(f"`{name}`" for name in names[:_MAX_SHOWN]) + (" …" if len(names) > _MAX_SHOWN else "")
    if len(names) == 1:
        return f"column {shown} has no unit: name it {names[0]}_ms or give `--unit ms`"
    return f"columns {shown} have no unit: name them {names[0]}_ms … or give `--unit ms`"


def _guess(table: RawTable, columns: Sequence[Column]) -> str | None:
    """Which unit the values look like; a hint for people, by which nothing is converted."""
    middles = []
    for column in columns:
        values = table.short_numbers(column.name)
        known = values[np.isfinite(values) & (values > 0)]
        middles += [float(np.median(known))] if len(known) else []
    if not middles:
        return None
    middle = max(middles)
    unit = next((unit for unit, (low, high) in _LOOKS_LIKE.items() if low <= middle < high), None)
    if unit is None:
        return f"values around {middle:.3g}: their size does not tell the unit"
    return f"values around {middle:.3g}: {_UNIT_NAMES[unit]}? then `--unit {unit}`; that is a guess by their size"


def make_plan(table: RawTable, unit: str | None) -> Plan:
    """The plan for `table`; `unit` is that of columns whose names have none.

    Raises InputError for a time without a unit, for one that holds text, and for a table without times.
    """
    plan = Plan()
    columns = table.columns
    times = [column for column in columns if column.role is Role.TIME]
    times += _numbers_or_times(table, [c for c in columns if c.role is Role.STEP_NUMBER], plan)
    times += _clocks_or_times(table, [c for c in columns if c.role is Role.CLOCK], times, plan)
    for column in columns:
        if column.role is Role.COORD:
            if all(column.coord != other.coord for other in plan.coords):
                plan.coords.append(column)
        elif column.role not in (Role.TIME, Role.STEP_NUMBER, Role.CLOCK):
            plan.places.setdefault(column.role, column)
    _keep_times(table, times, unit, plan)
    if not plan.times and not table.num_rows:
        raise InputError("no rows in it, or none as wide as its header")
    if not plan.times:
        raise InputError(
            f"no column names a time of a step or of a part of it{_shown(table)}",
            hint="known names: step, rank, step_ms, data_ms, forward_ms, backward_local_ms, wait_ms, optimizer_ms …, or "
            "rows of step, rank, metric, value_ms",
        )
    return plan


def _shown(table: RawTable) -> str:
    names = [f"`{name[:40]}`" for name in table.seen]
    more = " …" if len(names) > _MAX_SHOWN else ""
    return f"; its columns: {', '.join(names[:_MAX_SHOWN])}{more}" if names else ""


def _numbers_or_times(table: RawTable, candidates: list[Column], plan: Plan) -> list[Column]:
    """Chooses the number of the step; returns columns such as `step` that hold times instead."""
    times: list[Column] = []
    for column in sorted(candidates, key=lambda each: each.order):
        others = [other for other in candidates if other is not column]
        if column.section is not None and _holds_times(table.numbers(column.name), bool(others)):
            times.append(_as_time(column))
        elif plan.step is None:
            plan.step = column
        else:
            plan.unused.append(column.name)
    return times


def _holds_times(values: NDArray[np.float64], has_other: bool) -> bool:
    """Whether a column called `step` holds durations: fractions, or whole numbers that do not count steps."""
    known = values[np.isfinite(values)]
    if not len(known):
        return False
    if np.count_nonzero(known != np.floor(known)) > len(known) / 2:
        return True
    if not has_other:
        return False
    distinct = np.unique(known)
    # Numbers of steps are evenly spaced; times in whole microseconds are not.
    spacing = np.unique(np.diff(distinct))
    return len(distinct) > 3 and len(spacing) > max(3, len(distinct) // 10)


def _clocks_or_times(
    table: RawTable, candidates: list[Column], times: list[Column], plan: Plan
) -> list[Column]:
    """Chooses the time of day; returns `time_ms` where it is no time of day and nothing else tells the step."""
    found: list[Column] = []
    for column in sorted(candidates, key=lambda each: each.order):
        is_clock = table.words(column.name) is not None or (
            epoch_unit(table.numbers(column.name), column.unit) is not None
        )
        if is_clock and plan.clock is None:
            plan.clock = column
        elif not is_clock and column.section and column.unit and not _tells_step([*times, *found]):
            found.append(_as_time(column))
        else:
            plan.unused.append(column.name)
    return found


def _tells_step(times: list[Column]) -> bool:
    return any(column.section is Section.STEP and column.rank is None for column in times)


def _as_time(column: Column) -> Column:
    return Column(
        name=column.name, role=Role.TIME, section=column.section, unit=column.unit, order=column.order
    )


def _keep_times(table: RawTable, times: Sequence[Column], unit: str | None, plan: Plan) -> None:
    some_have_units = any(column.unit for column in times)
    groups: dict[tuple[int | None, Key], list[Column]] = {}
    without = [column for column in times if column.section is not None and column.unit is None]
    if unit is None:
        refused = [column for column in without if not (column.is_weak and some_have_units)]
        for column in refused:
            _refuse_text(table, column)
        if refused:
            raise InputError(no_unit([column.name for column in refused]), hint=_guess(table, refused))
    for column in times:
        if column.section is None:
            continue
        if column.unit is None and unit is None:
            plan.unused.append(column.name)
            continue
        groups.setdefault((column.rank, (column.section, column.said)), []).append(column)
    for key, group in groups.items():
        whole = sorted((column for column in group if not column.is_part), key=lambda each: each.order)
        kept = whole[:1] or group
        plan.unused += [column.name for column in group if column not in kept]
        for column in kept:
            _refuse_text(table, column)
        plan.times[key] = kept


def _refuse_text(table: RawTable, column: Column) -> None:
    num_text, num_values, example = table.not_numbers(column.name)
    if num_text <= MAX_TEXT_SHARE * num_values or example is None:
        return
    if "," in example and example.replace(",", "").replace(".", "").lstrip("-").isdigit():
        raise InputError(
            f"column `{column.name}` has decimal commas, such as `{example}`", hint="write 12.5, not 12,5"
        )
    raise InputError(f"column `{column.name}` holds text, such as `{example}`, where plain numbers belong")

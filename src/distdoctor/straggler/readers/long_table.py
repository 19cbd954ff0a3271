"""Tables with a row for each time: step, rank, the name of what was timed, and its value.

    step,rank,metric,value_ms          {"step": 3, "rank": 5, "section": "forward", "value": 0.78, "unit": "s"}
    3,5,forward,781.0

They are turned so that each name is a column, and are then read by the same rules as any table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.straggler.readers.columns import (
    MS_IN,
    UNIT_WORDS,
    Column,
    Role,
    column_of,
    words_and_unit,
)
from distdoctor.straggler.readers.raw_table import RawTable, as_numbers

# What people call the columns, the likeliest first.
_NAMES = ("metric", "metric_name", "section", "phase", "timer", "region", "key", "event", "name")
_VALUES = ("value", "val", "metric_value", "duration", "dur", "elapsed", "latency", "time")
_UNITS = ("unit", "units")

# Different names that are kept of one table; more are no sections of a step. Our own bound.
_MAX_NAMES = 256

# Values of the table that comes out: 1.6 GB.
_MAX_VALUES = 200_000_000


@dataclass(frozen=True, slots=True)
class LongForm:
    """Which columns hold the name, its value, and the unit of the value."""

    name: str
    value: str
    unit: str | None
    """Of all values, by the name of their column."""
    unit_column: str | None


def long_form(columns: Iterable[str]) -> LongForm | None:
    """The form of a table with these columns; None when each time has a column of its own, or nothing numbers steps."""
    names = list(columns)
    by_words = {words_and_unit(name)[0]: name for name in reversed(names)}
    name = next((by_words[word] for word in _NAMES if word in by_words), None)
    value = next((by_words[word] for word in _VALUES if word in by_words), None)
    if value is None:
        value = next((each for each in names if each.lower() in UNIT_WORDS), None)
    known = [column for each in names if (column := column_of(each)) is not None]
    has_step = any(column.role is Role.STEP_NUMBER for column in known)
    other_times = [column for column in known if column.role is Role.TIME and column.name != value]
    if name is None or value is None or not has_step or other_times:
        return None
    unit = UNIT_WORDS.get(value.lower()) or words_and_unit(value)[1]
    return LongForm(name, value, unit, next((by_words[word] for word in _UNITS if word in by_words), None))


def tells_times(form: LongForm, names: Iterable[object]) -> bool:
    """Whether the first names are those of parts of a step, so that `name` is not that of the job, say."""
    told = {str(name) for name in names if name not in (None, "")}
    return words_and_unit(form.value)[0] in _VALUES[:3] or any(_time_of(name) is not None for name in told)


class LongTable:
    """Rows of one file as they come; `turned` gives them as a table with a column for each name."""

    def __init__(self, path: str, form: LongForm) -> None:
        self._path = path
        self._form = form
        self._others = RawTable(path)
        self._codes: dict[tuple[str, str | None], int] = {}
        self._chunks: list[tuple[NDArray[np.int32], NDArray[np.float64]]] = []
        self._num_text = 0
        self._example: str | None = None

    def add(self, num_rows: int, batch: Mapping[str, Sequence[object]]) -> None:
        """`num_rows` further rows. Raises InputError when they are too many."""
        form = self._form
        nothing: Sequence[object] = [None] * num_rows
        units = batch.get(form.unit_column, nothing) if form.unit_column else nothing
        codes = np.fromiter(
            (self._code(name, unit) for name, unit in zip(batch.get(form.name, nothing), units, strict=True)),
            np.int32,
            num_rows,
        )
        values, num_text, example = as_numbers(batch.get(form.value, nothing))
        self._num_text += num_text
        self._example = self._example or example
        self._chunks.append((codes, values))
        own = (form.name, form.value, form.unit_column)
        self._others.add(num_rows, {name: values for name, values in batch.items() if name not in own})

    def _code(self, name: object, unit: object) -> int:
        key = (str(name).strip()[:200], None if unit in (None, "") else str(unit).strip()[:32])
        if len(self._codes) >= _MAX_NAMES:
            return self._codes.get(key, -1)
        return self._codes.setdefault(key, len(self._codes))

    def turned(self) -> RawTable:
        """A row for each rank and step, in the order in which they begin. Raises InputError for units that cannot be."""
        if self._num_text > sum(len(values) for _, values in self._chunks) // 5:
            raise InputError(f"column `{self._form.value}` holds text, such as `{self._example}`")
        table = RawTable(self._path)
        if not self._others.num_rows:
            return table
        codes = np.concatenate([chunk for chunk, _ in self._chunks])
        values = np.concatenate([chunk for _, chunk in self._chunks])
        row_of, first_of = self._rows(codes)
        num_times = sum(_time_of(name) is not None for name, _ in self._codes)
        if num_times * len(first_of) > _MAX_VALUES:
            raise InputError(f"{len(first_of):,} rows × {num_times} names do not fit into memory")
        columns: dict[str, NDArray[np.generic] | Sequence[object]] = {}
        for column in self._others.columns:
            words = self._others.words(column.name)
            if words is None:
                columns[column.name] = self._others.numbers(column.name)[first_of]
            else:
                texts: list[str | None] = [*words[1], None]
                columns[column.name] = [texts[code] for code in words[0][first_of]]
        for (name, unit), code in self._codes.items():
            if _time_of(name) is None:
                table.unknown.setdefault(name)
                continue
            column_name, scale = self._column(name, unit)
            told = np.flatnonzero(codes == code)
            known = columns.get(column_name)
            array = known if isinstance(known, np.ndarray) else np.full(len(first_of), np.nan)
            array[row_of[told]] = values[told] * scale
            columns[column_name] = array
        table.seen.update(dict.fromkeys([*self._others.seen, self._form.name, self._form.value]))
        table.add(len(first_of), columns)
        table.unknown.update(self._others.unknown)
        return table

    def _rows(self, codes: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(the row each value goes to, the first value of each row); what is told again begins another row."""
        keys = [codes.astype(np.float64), *self._keys()]
        order = np.lexsort(keys)
        is_new = np.zeros(len(order), dtype=bool)
        is_new[0] = True
        for key in keys:
            is_new[1:] |= np.diff(key[order]) != 0
        starts = np.flatnonzero(is_new)
        again = np.empty(len(order), dtype=np.float64)
        again[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
        keys = [again, *keys[1:]]
        order = np.lexsort(keys)
        is_new[1:] = False
        for key in keys:
            is_new[1:] |= np.diff(key[order]) != 0
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.cumsum(is_new) - 1
        firsts = order[is_new]  # sorting is stable: the first value of each row
        by_place = np.argsort(firsts, kind="stable")
        place_of = np.empty(len(firsts), dtype=np.int64)
        place_of[by_place] = np.arange(len(firsts))
        return place_of[group], firsts[by_place]

    def _keys(self) -> list[NDArray[np.float64]]:
        """What tells rows apart: the rank, the step and the attempt, -1 where there is none."""
        columns = [
            column
            for column in self._others.columns
            if column.role in (Role.RANK, Role.STEP_NUMBER, Role.ATTEMPT)
        ]
        return [np.nan_to_num(self._others.numbers(column.name), nan=-1.0) for column in columns]

    def _column(self, name: str, unit: str | None) -> tuple[str, float]:
        """(the column that a name becomes, by what its values are multiplied)."""
        told = self._form.unit
        if unit is not None:
            told = UNIT_WORDS.get(unit.lower())
            if told is None:
                raise InputError(f"`{unit}` in column `{self._form.unit_column}` is no unit of time")
        time = _time_of(name)
        own = time.unit if time is not None else None
        if told is None:
            # `step` without a unit is a time here, and no number of one.
            return (name if own else f"{name}_time"), 1.0
        if own is None:
            return f"{name}_ms", MS_IN[told]
        if own != told:
            raise InputError(f"`{name}` is told in `{told}`: its name and its value disagree")
        return name, 1.0


def _time_of(name: str) -> Column | None:
    """The time that a name stands for: `forward`, `fwd_ms`, `data loading`; None when it is none."""
    column = column_of(name)
    if column is not None and column.unit is not None:
        return column if column.role is Role.TIME and column.rank is None else None
    # With a unit behind it, `step` is a time and no number of one.
    with_unit = column_of(f"{name}_ms")
    if with_unit is None or with_unit.role is not Role.TIME or with_unit.rank is not None:
        return None
    return Column(name=name, role=Role.TIME, section=with_unit.section, said=with_unit.said)

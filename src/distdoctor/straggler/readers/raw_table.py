"""Columns of one table file as they come, batch by batch: numbers as arrays, words as codes of a vocabulary."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.straggler.readers.columns import MS_IN, UNIT_WORDS, Column, Role, column_of

# Different words of one column (hosts, times of day as text), and different names of columns. Our own bounds.
MAX_WORDS = 5_000_000
MAX_COLUMNS = 20_000

# Names that are kept to be shown. Our own bound.
MAX_SEEN = 64

# What people write for "not measured".
NOTHING = frozenset({"", "nan", "none", "null", "na", "n/a", "-", "--", "nil"})

# Rows of one file that are kept; 50 million rows of six columns are 2 GB.
MAX_ROWS = 50_000_000

# `61.7ms`, `0.06 s`.
_WITH_UNIT = re.compile(
    rf"\s{{0,20}}(-?\d{{1,15}}(?:\.\d{{0,18}})?(?:[eE][-+]?\d{{1,3}})?)\s{{0,4}}({'|'.join(sorted(UNIT_WORDS, key=len, reverse=True))})"
    r"\s{0,20}$"
)

_WORDS = frozenset({Role.HOST, Role.POD, Role.GPU, Role.GPU_UUID, Role.GPU_PCI, Role.GPU_MODEL})
# Large numbers whose last digits matter.
_WIDE = frozenset({Role.CLOCK, Role.STEP_NUMBER})


@dataclass(slots=True)
class _Numbers:
    chunks: list[tuple[int, NDArray[np.float64] | NDArray[np.float32]]] = field(default_factory=list)
    num_not_numbers: int = 0
    example: str | None = None
    num_values: int = 0
    num_with_unit: int = 0


@dataclass(slots=True)
class _Words:
    chunks: list[tuple[int, NDArray[np.int32]]] = field(default_factory=list)
    codes: dict[str, int] = field(default_factory=dict)


class RawTable:
    """The columns of one file whose names mean something; of the others only the names of those with numbers.

    Columns may appear late, and a row may lack some: what is not there is NaN, or no word.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.num_rows = 0
        self.unknown: dict[str, None] = {}
        """Names of columns with numbers that mean nothing here."""
        self.seen: dict[str, None] = {}
        """Names of the first columns, whatever they hold."""
        self._numbers: dict[str, _Numbers] = {}
        self._words: dict[str, _Words] = {}

    @property
    def columns(self) -> list[Column]:
        """What is understood, in the order of appearance."""
        known = {**self._numbers, **self._words}
        found = [column for name in known if (column := column_of(name)) is not None]
        return [
            replace(column, unit="ms", is_weak=False)
            if column.unit is None and self.has_units(column.name)
            else column
            for column in found
        ]

    def add(self, num_rows: int, batch: Mapping[str, Sequence[object] | NDArray[np.generic]]) -> None:
        """`num_rows` further rows. Raises InputError when they are too many, or no numbers where numbers belong."""
        if self.num_rows + num_rows > MAX_ROWS:
            raise InputError(
                f"more than {MAX_ROWS:,} rows", hint="give a range of steps, or split the file by ranks"
            )
        for name, values in batch.items():
            if len(self.seen) < MAX_SEEN:
                self.seen[name] = None
            column = column_of(name)
            if column is None:
                if len(self.unknown) < MAX_COLUMNS and name not in self.unknown and _has_numbers(values):
                    self.unknown[name] = None
            elif column.role in _WORDS or (column.role is Role.CLOCK and _is_text(values)):
                self._add_words(name, values)
            else:
                self._add_numbers(column, values)
        self.num_rows += num_rows

    def add_codes(self, name: str, codes: NDArray[np.int32], words: Sequence[object]) -> None:
        """Words of the next batch that are already codes (a dictionary column); call it before `add`.

        Words are kept to 255 characters, without space around them, whatever reader they come from.
        """
        store = self._words.setdefault(name, _Words())
        ours = np.array(
            [
                -1 if word is None else store.codes.setdefault(word, len(store.codes))
                for word in map(_word, words)
            ]
            + [-1],
            dtype=np.int32,
        )
        if len(store.codes) > MAX_WORDS:
            raise InputError(f"column `{name}` has more than {MAX_WORDS:,} different words")
        store.chunks.append((self.num_rows, ours[codes]))

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Shape (rows,); NaN where there is none. All NaN for a column that holds words only."""
        column = np.full(self.num_rows, np.nan)
        for start, chunk in self._numbers[name].chunks if name in self._numbers else ():
            column[start : start + len(chunk)] = chunk
        return column

    def short_numbers(self, name: str) -> NDArray[np.float32]:
        """As `numbers`, in float32: of 10 million rows 40 MB."""
        column = np.full(self.num_rows, np.nan, dtype=np.float32)
        for start, chunk in self._numbers[name].chunks if name in self._numbers else ():
            column[start : start + len(chunk)] = chunk
        return column

    def words(self, name: str) -> tuple[NDArray[np.int32], list[str]] | None:
        """(a code for each row, -1 for none; what the codes stand for); None when the column has no words."""
        store = self._words.get(name)
        if store is None:
            return None
        codes = np.full(self.num_rows, -1, dtype=np.int32)
        for start, chunk in store.chunks:
            codes[start : start + len(chunk)] = chunk
        return codes, list(store.codes)

    def not_numbers(self, name: str) -> tuple[int, int, str | None]:
        """(values that are text instead of numbers, all values, one of the texts)."""
        store = self._numbers.get(name)
        return (store.num_not_numbers, store.num_values, store.example) if store else (0, 0, None)

    def has_units(self, name: str) -> bool:
        """Whether the cells of a time have units, such as `61.7ms`; they are kept in the unit of its name, else in ms.

        Raises InputError when some have and some have not.
        """
        store = self._numbers.get(name)
        if store is None or not store.num_with_unit:
            return False
        if store.num_with_unit < store.num_values - store.num_not_numbers:
            raise InputError(
                f"in column `{name}` some times have a unit and some have none",
                hint="write all with their unit",
            )
        return True

    def forget(self, name: str) -> None:
        """Frees a column that is no longer needed."""
        self._numbers.pop(name, None)
        self._words.pop(name, None)

    def _add_numbers(self, column: Column, values: Sequence[object] | NDArray[np.generic]) -> None:
        store = self._numbers.setdefault(column.name, _Numbers())
        array, num_bad, example = as_numbers(values)
        if num_bad and column.role is Role.TIME:
            array, num_units = _with_units(array, values, column.unit or "ms")
            store.num_with_unit += num_units
            num_bad -= num_units
            example = example if num_bad else None
        store.num_not_numbers += num_bad
        store.num_values += int(np.count_nonzero(~np.isnan(array))) + num_bad
        store.example = store.example or example
        if column.role not in _WIDE:
            with np.errstate(over="ignore", invalid="ignore"):
                store.chunks.append((self.num_rows, array.astype(np.float32)))
        else:
            store.chunks.append((self.num_rows, array))

    def _add_words(self, name: str, values: Sequence[object] | NDArray[np.generic]) -> None:
        vocabulary: dict[object, int] = {}
        codes = np.fromiter(
            (vocabulary.setdefault(_hashable(value), len(vocabulary)) for value in values),
            np.int32,
            len(values),
        )
        self.add_codes(name, codes, list(vocabulary))


def as_numbers(
    values: Sequence[object] | NDArray[np.generic],
) -> tuple[NDArray[np.float64], int, str | None]:
    """(numbers, NaN where there is none; how many values are text instead; one of them)."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        with np.errstate(invalid="ignore"):  # damaged bytes may be signalling NaN
            return values.astype(np.float64), 0, None
    try:
        # None becomes NaN, "1.5" becomes 1.5; anything else raises.
        array = np.asarray(values, dtype=np.float64)
        if array.ndim == 1:
            return array, 0, None
    except (TypeError, ValueError, OverflowError):
        pass
    array = np.full(len(values), np.nan)
    num_bad, example = 0, None
    for index, value in enumerate(values):
        if value is None or (isinstance(value, str) and value.strip().lower() in NOTHING):
            continue
        try:
            if isinstance(value, (bool, list, dict)):
                raise TypeError
            array[index] = float(value)
        except (TypeError, ValueError, OverflowError):
            num_bad += 1
            example = example or str(value)[:40]
    return array, num_bad, example


def _with_units(
    array: NDArray[np.float64], values: Sequence[object] | NDArray[np.generic], unit: str
) -> tuple[NDArray[np.float64], int]:
    """(numbers, and those that a unit of time follows as numbers of `unit`; how many these are)."""
    num = 0
    for index in np.flatnonzero(np.isnan(array)).tolist():
        cell = values[index]
        match = _WITH_UNIT.match(cell) if isinstance(cell, str) else None
        if match is not None:
            array[index] = float(match[1]) * (MS_IN[UNIT_WORDS[match[2]]] / MS_IN[unit])
            num += 1
    return array, num


def _has_numbers(values: Sequence[object] | NDArray[np.generic]) -> bool:
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "fiu"
    first = next((value for value in values[:100] if value not in (None, "")), None)
    if isinstance(first, (int, float)) and not isinstance(first, bool):
        return True
    return isinstance(first, str) and not as_numbers([first])[1] and first.strip().lower() not in NOTHING


def _is_text(values: Sequence[object] | NDArray[np.generic]) -> bool:
    """Whether these are words: times of day as text rather than as numbers."""
    if isinstance(values, np.ndarray):
        return False
    first = next(
        (value for value in values if isinstance(value, str) and value.strip().lower() not in NOTHING), None
    )
    return first is not None and bool(as_numbers([first])[1])


def _hashable(value: object) -> object:
    return value if value is None or isinstance(value, (str, int, float)) else str(value)[:200]


def _word(value: object) -> str | None:
    if value is None or (isinstance(value, float) and value != value):  # noqa: PLR0124 - NaN
        return None
    text = str(value).strip()[:255]
    return None if text.lower() in NOTHING else text

"""CSV of time series: a column for each series (Grafana's "Series joined by time"), or a row for each sample.

A column's header is the series: `DCGM_FI_DEV_SM_CLOCK{gpu="0",Hostname="node-1"}`. Long tables have columns time,
metric (or series), value, and either `labels` or a column for each label. What a panel's legend renames, or formats
with units, is refused: export with the query's own names, and without "Formatted data".
"""

from __future__ import annotations

import csv
import json
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from distdoctor.errors import InputError
from distdoctor.straggler.readers.clock_values import parse_iso
from distdoctor.straggler.readers.file_lines import FileLines
from distdoctor.straggler.readers.prometheus.labels import parse_labels, parse_series
from distdoctor.straggler.readers.prometheus.samples import MAX_SAMPLES, MAX_SERIES, Samples

_TIMES = ("time", "timestamp", "ts", "date", "datetime", "_time")
_METRICS = ("metric", "__name__", "name", "series", "metric_name")
_VALUES = ("value", "_value", "val")
_LABELS = ("labels", "tags", "label")

_EMPTY = ("", "null", "nan", "undefined", "none", "-", "na", "n/a")
# A line of what an exporter serves is no header.
_SAMPLE = re.compile(r"[a-zA-Z_:][\w:]*\{.*\}\s+\S+(?:\s+\d+)?\s*")

# Seconds since 1970 between 2001 and 2286; larger numbers are ms, µs or ns of the same years.
_EPOCH = ((1e9, 1e10, 1.0), (1e12, 1e13, 1e3), (1e15, 1e16, 1e6), (1e18, 1e19, 1e9))

_EXPORTER_LIST = re.compile(r"^[ \t]*DCGM_FI_\w+\s*,\s*(?:gauge|counter|label)\s*,", re.MULTILINE)


def is_exporter_list(text: str) -> bool:
    """Whether text is dcgm-exporter's list of what to export, which holds no values."""
    return _EXPORTER_LIST.search(text) is not None


def looks_like_series(text: str) -> bool:
    """Whether text begins a table of series: a header with labels in braces, or of a long table."""
    header = _header(text)
    if _SAMPLE.fullmatch(header):
        return False
    if "{" in header and ('="' in header or '=""' in header) and _delimiter(header):
        return True
    names = _plain_names(header)
    return all(any(name in wanted for name in names) for wanted in (_TIMES, _METRICS, _VALUES))


def begins_with_time(text: str) -> bool:
    """Whether text begins a table whose first column is a time, as all that Grafana exports."""
    names = _plain_names(_header(text))
    return len(names) > 1 and names[0] in _TIMES


def _header(text: str) -> str:
    return next((line for line in text.splitlines()[:5] if line.strip() and not line.startswith("sep=")), "")


def _plain_names(header: str) -> list[str]:
    return [name.strip().strip('"').lower() for name in re.split(r"[,;\t]", header)]


@dataclass(slots=True)
class _Times:
    """Times of rows, and whether any had no zone."""

    without_zone: int = 0
    num_bad: int = 0

    def parse(self, text: str) -> float:
        """Seconds since 1970; NaN for what is no time."""
        text = text.strip()
        try:
            number = float(text)
        except ValueError:
            return self._date(text)
        for low, high, factor in _EPOCH:
            if low <= number < high:
                return number / factor
        self.num_bad += 1
        return math.nan

    def _date(self, text: str) -> float:
        parsed = parse_iso(text)
        if parsed is None:
            self.num_bad += 1
            return math.nan
        seconds, has_zone = parsed
        self.without_zone += not has_zone
        return seconds


def read_csv(file: FileLines, samples: Samples) -> None:
    """Adds all series of one table. Raises InputError with one line that says why there is none."""
    rows = _rows(file)
    header = next(rows, None)
    first = next(rows, None)
    if header is None or first is None:
        raise InputError(f"`{file.path}` has no rows")
    delimiter = _delimiter(header)
    try:
        names = _split(header, delimiter, len(next(csv.reader([first], delimiter=delimiter))))
    except csv.Error as error:
        raise InputError(f"`{file.path}` is no CSV: {error}") from None
    lower = [name.strip().lower() for name in names]
    time_at = _index(lower, _TIMES)
    if time_at is None:
        raise InputError(f"`{file.path}` has no column of times (`Time`)")
    table = csv.reader(_again(first, rows), delimiter=delimiter)
    times = _Times()
    try:
        metric_at, value_at = _index(lower, _METRICS), _index(lower, _VALUES)
        if metric_at is not None and value_at is not None:
            _read_long(table, names, (time_at, metric_at, value_at), times, samples)
        else:
            _read_wide(table, names, time_at, times, samples)
    except csv.Error as error:
        samples.left_out[f"tables end early ({error})"] += 1
    if times.num_bad:
        samples.left_out["rows have a time that cannot be read"] += times.num_bad
    if times.without_zone:
        samples.left_out["times have no zone and are taken as UTC (kept)"] += times.without_zone


def _rows(file: FileLines) -> Iterator[str]:
    for raw in file.lines():
        line = raw.decode("utf-8", "replace").replace("\r", "")
        if line.strip() and not line.lower().startswith("sep="):
            yield line


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _delimiter(header: str) -> str:
    outside = re.sub(r"\{[^}]*\}|\"[^\"]*\"", "", header)
    counts = {delimiter: outside.count(delimiter) for delimiter in (",", ";", "\t")}
    return max(counts, key=lambda delimiter: counts[delimiter])


def _split(header: str, delimiter: str, num_fields: int) -> list[str]:
    """Names of columns; labels that were not quoted hold the delimiter themselves."""
    names = next(csv.reader([header], delimiter=delimiter))
    if len(names) == num_fields and all(name.count("{") == name.count("}") for name in names):
        return names
    parts = re.findall(rf"(?:\{{(?:[^\"}}]|\"[^\"]*\")*\}}|[^{re.escape(delimiter)}{{])+", header)
    return [part.strip() for part in parts]


def _index(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _number(text: str) -> float | None:
    """The value of a cell, NaN where it is empty; None when it is no plain number."""
    try:
        return float(text)
    except ValueError:
        return math.nan if text.strip().lower() in _EMPTY else None


def _read_wide(
    table: Iterator[list[str]], names: list[str], time_at: int, times: _Times, samples: Samples
) -> None:
    series = {at: parsed for at, name in enumerate(names) if at != time_at and (parsed := _named(name))}
    if not series:
        shown = " ".join(next((name for at, name in enumerate(names) if at != time_at), "").split())[:60]
        raise InputError(
            f"`{samples.path}`: no column is named by its metric and labels (`{shown}` is a legend?)",
            hint='set the legend to "Verbose", or use "Series joined by time" without transformations',
        )
    if len(series) > MAX_SERIES:
        raise InputError(f"`{samples.path}` has more than {MAX_SERIES:,} columns")
    columns = {at: array("d") for at in series}
    row_times = array("d")
    formatted: dict[int, str] = {}
    for row in table:
        if len(row_times) * len(series) >= MAX_SAMPLES:
            break
        if len(row) <= time_at:
            continue
        row_times.append(times.parse(row[time_at]))
        for at, column in columns.items():
            cell = row[at] if at < len(row) else ""
            number = _number(cell)
            if number is None:
                formatted.setdefault(at, cell)
                number = math.nan
            column.append(number)
    if formatted and all(np.isnan(np.frombuffer(columns[at])).all() for at in columns):
        raise InputError(
            f"`{samples.path}`: values are formatted (`{next(iter(formatted.values()))[:30]}`), their unit is the panel's",
            hint='export without "Formatted data"',
        )
    if formatted:
        samples.left_out["columns hold text beside numbers (kept)"] += len(formatted)
    moments = np.frombuffer(row_times) if row_times else np.zeros(0)
    known = ~np.isnan(moments)
    for at, (name, labels) in series.items():
        samples.add(
            name, labels, moments[known], np.frombuffer(columns[at])[known] if columns[at] else np.zeros(0)
        )


def _named(header: str) -> tuple[str, dict[str, str]] | None:
    parsed = parse_series(header)
    return parsed if parsed is not None and parsed[1] else None


@dataclass(slots=True)
class _Long:
    name: str
    labels: dict[str, str]
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))


def _read_long(
    table: Iterator[list[str]], names: list[str], at: tuple[int, int, int], times: _Times, samples: Samples
) -> None:
    time_at, metric_at, value_at = at
    lower = [name.strip().lower() for name in names]
    labels_at = _index(lower, _LABELS)
    others = [index for index in range(len(names)) if index not in (*at, labels_at)]
    found: dict[tuple[str, ...], _Long | None] = {}
    num_rows = num_bad = 0
    for row in table:
        num_rows += 1
        if num_rows > MAX_SAMPLES:
            break
        if len(row) < len(names):
            num_bad += 1
            continue
        key = tuple(cell for index, cell in enumerate(row[: len(names)]) if index not in (time_at, value_at))
        if key not in found:
            if len(found) >= MAX_SERIES:
                break
            found[key] = _long_series(row, names, metric_at, labels_at, others)
        series = found[key]
        number = _number(row[value_at])
        if series is None or number is None:
            num_bad += 1
            continue
        moment = times.parse(row[time_at])
        if not math.isnan(moment):
            series.times.append(moment)
            series.values.append(number)
    if num_bad:
        samples.left_out["rows are no samples"] += num_bad
    for series in found.values():
        if series is not None and series.times:
            samples.add(series.name, series.labels, np.frombuffer(series.times), np.frombuffer(series.values))


def _long_series(
    row: list[str], names: list[str], metric_at: int, labels_at: int | None, others: list[int]
) -> _Long | None:
    parsed = parse_series(row[metric_at])
    if parsed is None:
        return None
    name, labels = parsed
    labels.update({names[index].strip(): row[index] for index in others if row[index]})
    if labels_at is not None:
        labels.update(_labels(row[labels_at]))
    return _Long(name=name, labels=labels)


def _labels(text: str) -> dict[str, str]:
    """`{gpu="0"}`, `gpu="0"`, `gpu=0,host=a` or JSON."""
    text = text.strip()
    try:
        entries = json.loads(text) if text.startswith('{"') else None
    except (ValueError, RecursionError):
        entries = None
    if isinstance(entries, dict):
        return {str(key): str(value) for key, value in entries.items()}
    text = text.removeprefix("{").removesuffix("}")
    quoted = parse_labels(text)
    if quoted is not None:
        return quoted
    pairs = (pair.partition("=") for pair in text.split(","))
    return {key.strip(): value.strip() for key, _, value in pairs if value}

"""Answers of Prometheus' HTTP API, whole or cut down with jq, and VictoriaMetrics' export (one series a line).

https://prometheus.io/docs/prometheus/latest/querying/api/: times are seconds, values are strings.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from distdoctor.errors import InputError
from distdoctor.straggler.readers.file_text import FileText
from distdoctor.straggler.readers.prometheus.samples import Samples
from distdoctor.units import MIB

# An answer is held in memory as a whole. 1,000 GPUs × 10 metrics × 1,000 samples are 300 MB; our own limit.
MAX_JSON_BYTES = 512 * MIB

_NO_NAME = "has no metric name (`__name__`), as after a function or an aggregation: query the plain metric"

_RAW = msgspec.Raw()


class _Answer(msgspec.Struct):
    status: str | None = None
    errorType: str | None = None  # noqa: N815 - Prometheus' spelling
    error: str | None = None
    data: msgspec.Raw = _RAW
    resultType: str | None = None  # noqa: N815
    result: msgspec.Raw = _RAW
    metric: dict[str, str] | None = None
    results: msgspec.Raw = _RAW


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str | float | None]] = []
    value: tuple[float, str | float | None] | None = None


class _Line(msgspec.Struct):
    metric: dict[str, str]
    values: list[float | str | None]
    timestamps: list[float]


_BAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_json(file: FileText, samples: Samples) -> None:
    """Adds all series of one file. Raises InputError with one line that says why there is none."""
    data = file.whole()
    start = data.lstrip()[:1]
    if start == b"[":
        _add_result(data, samples, file.path)
        return
    try:
        answers = [msgspec.json.decode(data, type=_Answer)]
    except _BAD:
        answers = []
    if not answers or answers[0].metric is not None:
        _add_lines(data, samples, file.path)
        return
    _add_answer(answers[0], samples, file.path)


def _add_lines(data: bytes, samples: Samples, path: str) -> None:
    """Several documents, one a line: answers of the API, or series of VictoriaMetrics."""
    num_bad = 0
    reasons: list[str] = []
    for text in data.split(b"\n"):
        if not text.strip() or samples.is_full:
            continue
        try:
            answer = msgspec.json.decode(text, type=_Answer)
            if answer.metric is not None:
                line = msgspec.json.decode(text, type=_Line)
                times = np.array(line.timestamps, dtype=np.float64) / 1e3
                values = np.array([_number(value) for value in line.values], dtype=np.float64)
                if len(times) != len(values):
                    raise msgspec.ValidationError("lengths differ")
                _add(answer.metric, times, values, samples, reasons)
            else:
                _add_answer(answer, samples, path)
        except _BAD:
            num_bad += 1
        except InputError as error:
            reasons.append(error.message)
    if num_bad:
        samples.left_out["lines are no JSON of a series"] += num_bad
    if not samples.num_series:
        raise InputError(reasons[0] if reasons else f"`{path}` is no JSON that Prometheus writes")


def _add_answer(answer: _Answer, samples: Samples, path: str) -> None:
    if answer.status is not None and answer.status != "success":
        words = ": ".join(word for word in (answer.errorType, answer.error) if word)
        raise InputError(f"`{path}` is an error that Prometheus answered: {' '.join(words.split())[:200]}")
    if bytes(answer.results):
        raise InputError(
            f"`{path}` is Grafana's own JSON (data frames)", hint="export CSV, or query Prometheus itself"
        )
    kind, result = answer.resultType, answer.result
    if bytes(answer.data):
        try:
            inner = msgspec.json.decode(answer.data, type=_Answer)
        except _BAD:
            raise InputError(f"`{path}` is no answer to a query: its `data` holds no series") from None
        kind, result = inner.resultType, inner.result
    if kind not in ("matrix", "vector", None):
        raise InputError(f"`{path}` holds a {kind[:40]}, not series of GPUs")
    _add_result(bytes(result), samples, path)


def _add_result(data: bytes, samples: Samples, path: str) -> None:
    try:
        entries = msgspec.json.decode(data or b"[]", type=list[msgspec.Raw])
    except _BAD:
        raise InputError(f"`{path}` is no JSON that Prometheus writes, or it is cut") from None
    if not entries:
        raise InputError(f"`{path}` has no series: the query matched nothing")
    reasons: list[str] = []
    before = samples.num_series
    for entry in entries:
        if samples.is_full:
            break
        try:
            series = msgspec.json.decode(entry, type=_Series)
        except _BAD:
            samples.left_out["series are no numbers by time"] += 1
            continue
        pairs = series.values or ([series.value] if series.value is not None else [])
        times = np.array([time for time, _ in pairs], dtype=np.float64)
        values = np.array([_number(value) for _, value in pairs], dtype=np.float64)
        _add(series.metric, times, values, samples, reasons)
    if samples.num_series == before:
        raise InputError(f"`{path}` {reasons[0] if reasons else 'holds no series of numbers'}")


def _add(
    metric: dict[str, str],
    times: np.ndarray[tuple[int], np.dtype[np.float64]],
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    samples: Samples,
    reasons: list[str],
) -> None:
    name = metric.get("__name__")
    if not name:
        reasons.append(_NO_NAME)
        samples.left_out["series have no metric name"] += 1
        return
    samples.add(name, metric, times, values)


def _number(value: str | float | None) -> float:
    """ "NaN", "+Inf" and text that is no number included: NaN for what is none."""
    try:
        return math.nan if value is None else float(value)
    except ValueError:
        return math.nan

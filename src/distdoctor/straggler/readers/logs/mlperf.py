"""Tracked statistics of MLPerf training logs: throughput and step time, each a series of its own.

    :::MLLOG {"namespace": "", "time_ms": 1746161740087, "event_type": "POINT_IN_TIME", "key": "tracked_stats",
        "value": {"train_step_time": 9.84, "reduced_train_loss": 7.76}, "metadata": {"lineno": 512, "step": 1280.0}}

Benchmarks count differently: `step`, `step_num`, `samples_count`, `epoch_num`, and a number called step may count
samples. Which one it is, the log itself tells: between two records, count ÷ (time × throughput) is 1 for samples and
1 ÷ batch size for iterations. Steps of a series are iterations where that can be told.

`train_step_time` is in seconds (mlperf_common). `time` and `data` of the detection benchmarks are taken as seconds
only where batch size ÷ `time` is the throughput of the same record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import numpy as np

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.drafts import MAX_VALUES, DraftSet, Row
from distdoctor.straggler.readers.logs.formats import RECORD, Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import NAN, Line

_COUNTS = ("step", "step_num", "iteration", "samples_count", "epoch_num")

# A log pauses for evaluation, so the middle of all ratios decides, and it must be nearer to one meaning than to the
# other; with a batch of fewer samples the two are too near.
_LEAST_BATCH = 4

# Batch size over time may differ so much from the throughput printed beside it (means over other windows).
_UNIT_TOLERANCE = 0.25

_TIMES = {"train_step_time": "train step time", "time": "step time"}
_RATES = {"throughput": "throughput", "validation_throughput": "validation throughput"}


@dataclass(slots=True)
class _Record:
    count: float
    time_s: float
    values: dict[str, float]


@dataclass(slots=True)
class _Run:
    """Records of one run. A log may hold several runs."""

    records: list[_Record] = field(default_factory=list)
    batch: float = NAN


class MlPerf(LogFormat):
    """All tracked statistics of one file."""

    name = "MLPerf log"
    triggers = (b'"tracked_stats"', b'"global_batch_size"')

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._run = _Run()
        self._num_left_out = 0
        self._num_broken = 0

    def feed(self, line: Line) -> None:
        """One record."""
        at = line.text.find(":::MLL")
        brace = line.text.find("{", at)
        if at < 0 or brace < 0:
            return
        try:
            record = msgspec.json.decode(line.text[brace:].rstrip().encode())
        except (msgspec.DecodeError, RecursionError, ValueError):
            self._num_broken += 1
            return
        if not isinstance(record, dict):
            return
        value = record.get("value")
        if record.get("key") == "global_batch_size":
            self._run.batch = _float(value)
            return
        metadata = record.get("metadata")
        if (
            record.get("key") != "tracked_stats"
            or not isinstance(value, dict)
            or not isinstance(metadata, dict)
        ):
            return
        wanted = {name: _float(value[name]) for name in (*_RATES, *_TIMES, "data") if name in value}
        if not wanted:
            return
        if len(self._run.records) >= MAX_VALUES:
            self._num_left_out += 1
            return
        count = next((_float(metadata[name]) for name in _COUNTS if name in metadata), NAN)
        self._run.records.append(_Record(count, _float(record.get("time_ms")) / 1000, wanted))

    def finish(self, options: ReadOptions) -> FileFacts:
        """A series for each statistic."""
        what = f"MLPerf log `{self.context.path}`"
        records, batch = self._run.records, self._run.batch
        per_step = _count_per_step(records, batch)
        seconds = _time_is_seconds(records, batch)
        drafts = DraftSet()
        fallback = 0
        last: dict[str, int] = {}
        each_step = any(_tells_one_step(record) for record in records)
        for record in records:
            for name, value in record.values.items():
                if name == "data" or (name == "time" and not seconds):
                    continue
                if name == "train_step_time" and each_step and not _tells_one_step(record):
                    continue  # a mean over the steps that are told one by one
                if math.isfinite(record.count) and 0 <= record.count < 1e15:
                    step = round(record.count / per_step)
                else:
                    fallback += 1
                    step = last.get(name, 0) + 1
                last[name] = step
                is_time = name in _TIMES
                draft = drafts.draft(
                    _TIMES[name] if is_time else _RATES[name],
                    SeriesKind.TIME if is_time else SeriesKind.RATE,
                    "ms" if is_time else "samples/s",
                    (None, None, None),
                )
                draft.zone_known = True
                data = record.values.get("data")
                splits = {"data": data * 1000} if name == "time" and data is not None else None
                draft.add(
                    Row(step=step, value=value * (1000 if is_time else 1), utc_s=record.time_s, splits=splits)
                )
        series, notes = drafts.build(
            options, source=self.name, path=self.context.path, what=what, printed_by="one logging rank"
        )
        notes += self._own_notes(what, seconds=seconds, fallback=fallback)
        return FileFacts(series=series, notes=notes, how=RECORD if series else None)

    def _own_notes(self, what: str, *, seconds: bool, fallback: int) -> tuple[Note, ...]:
        notes = []
        if any("time" in record.values for record in self._run.records) and not seconds:
            notes.append(
                Note(
                    kind=NoteKind.MIXED_UNITS,
                    text=f"{what}: `time` has no unit, and batch size and throughput beside it do not tell it; left out",
                )
            )
        if fallback:
            notes.append(
                Note(
                    kind=NoteKind.LIMITED,
                    text=f"{what}: {fallback} value{'s have' if fallback > 1 else ' has'} no step, and is numbered as it comes",
                )
            )
        if self._num_broken:
            notes.append(
                Note(
                    kind=NoteKind.DROPPED_VALUES,
                    text=f"{what}: {self._num_broken} records are cut or no JSON, and were left out",
                )
            )
        if self._num_left_out:
            notes.append(
                Note(
                    kind=NoteKind.CUT_SHORT,
                    text=f"{what}: more than {MAX_VALUES:,} records; the last {self._num_left_out:,} were left out",
                )
            )
        return tuple(notes)


def _count_per_step(records: list[_Record], batch: float) -> float:
    """How much the log's count grows in an iteration: the batch size when it counts samples, else 1."""
    if not _LEAST_BATCH <= batch < math.inf:
        return 1.0
    shares = []
    training = [
        record for record in records if "throughput" in record.values or "train_step_time" in record.values
    ]
    for before, after in pairwise(training):
        counted, passed = after.count - before.count, after.time_s - before.time_s
        rate = after.values.get("throughput", NAN)
        if math.isnan(rate):
            time_s = after.values.get("train_step_time", NAN)
            rate = batch / time_s if time_s else NAN
        samples = passed * rate
        if counted > 0 and 0 < samples < math.inf and 0 < counted / samples < math.inf:
            shares.append(math.log(counted / samples))
    if not shares:
        return 1.0
    middle = float(np.median(shares))
    return batch if abs(middle) < abs(middle + math.log(batch)) else 1.0


def _tells_one_step(record: _Record) -> bool:
    """A step time that stands beside no throughput is that of one step; beside one it is the interval's mean."""
    return "train_step_time" in record.values and "throughput" not in record.values


def _time_is_seconds(records: list[_Record], batch: float) -> bool:
    ratios = [
        batch / (record.values["time"] * record.values["throughput"])
        for record in records
        if record.values.get("time", 0) * record.values.get("throughput", 0) > 0
    ]
    return bool(ratios) and abs(float(np.median(ratios)) - 1) < _UNIT_TOLERANCE


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NAN
    try:
        return float(value)
    except OverflowError:
        return NAN

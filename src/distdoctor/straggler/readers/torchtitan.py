"""TorchTitan's structured logs: one JSON line when a span begins and one when it ends, a file for each rank.

`structured_logs/<source>.global_rank_<rank>.<time>-<random>.jsonl` since TorchTitan 0.3, and the four-column lines
(`{"int": {…}, "normal": {…}, "double": {…}}`) of `system_logs/` in development versions before it. Spans are timed on
the host: `fwd_bwd` holds forward and backward with all collectives inside, and `optim` the all-reduce of the gradient
norm, so both are wall times; `fetching_batch` and `gc_collect` wait for nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from distdoctor.errors import InputError
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading, join
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import Times
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.column_names import Said
from distdoctor.straggler.readers.column_plan import Key
from distdoctor.straggler.readers.columns import MAX_RANKS, rank_in_path
from distdoctor.straggler.readers.file_blocks import FileBlocks
from distdoctor.straggler.readers.file_text import text_start
from distdoctor.straggler.readers.rank_rows import MAX_MS, MAX_STEP, FileRows, RankRows
from distdoctor.straggler.readers.reading_files import finish
from distdoctor.units import fold_ints

SOURCE = "TorchTitan structured logs"

# What spans are; of two that give the same section the first one that is there counts.
_SECTIONS = {
    "step": Section.STEP,
    "fetching_batch": Section.DATA,
    "gc_collect": Section.GC,
    "model_forward": Section.FORWARD_WALL,
    "model_backward": Section.BACKWARD_WALL,
    "fwd_bwd": Section.BACKWARD_WALL,
    "forward_backward": Section.BACKWARD_WALL,
}

# Spans of every step that hold collectives besides own work, with no section for that: named, not used.
_MIXED = ("optim", "optim_step", "grad_clip", "collect_dist_metrics", "checkpoint_save", "save_checkpoint")

LIMITS = (
    "TorchTitan times spans on the host: `fwd_bwd` holds forward, backward and their collectives, and is shown as "
    "backward_wall; own times are only fetching_batch and gc_collect"
)

# Steps of one rank, and names of spans: what is more is no log. Our own bounds.
_MAX_STEPS = 5_000_000
_MAX_NAMES = 10_000


class _Line(msgspec.Struct):
    """What is read of a line; both layouts."""

    log_type_name: str | None = None
    rank: int | None = None
    step: int | None = None
    value: float | None = None
    time_us: int | None = None
    source: str | None = None
    host_name: str | None = None
    local_rank: int | None = None
    step_tags: list[str] | None = None
    # Any: checked where it is used.
    int_: Any = msgspec.field(default=None, name="int")
    normal: Any = None
    double: Any = None
    normvector: Any = None


_decode = msgspec.json.Decoder(_Line).decode


def sniff(_path: str, head: bytes) -> float:
    """Lines with the names of TorchTitan's logger."""
    if text_start(head)[:1] != b"{":
        return 0.0
    has_name = b'"log_type_name"' in head
    return 0.95 if has_name and (b'"time_us"' in head or b'"time_ms"' in head) else 0.0


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All files; ranks of different sources (trainer, generator) are different ranks and are kept apart."""
    by_source: dict[str, list[FileRows]] = {}
    inputs: list[InputFile] = []
    notes: list[Note] = []
    spans: Counter[str] = Counter()
    for path in paths:
        file = FileBlocks(path)
        try:
            log = _read_file(file, options)
        except InputError as error:
            inputs.append(file.input_file(SOURCE, error.in_one_line))
            continue
        spans.update(log.unused)
        notes += log.notes()
        if file.note is not None:
            notes.append(Note(kind=NoteKind.CUT_SHORT, text=f"`{path}`: {file.note}"))
        if log.rows.ranks:
            by_source.setdefault(log.source, []).append(log.rows)
            inputs.append(file.input_file(SOURCE))
        else:
            inputs.append(file.input_file(SOURCE, "no step of it has a span that ended"))
    readings = []
    for source, files in sorted(by_source.items()):
        name = SOURCE if len(by_source) == 1 else f"{SOURCE} ({source})"
        readings.append(finish(files, [], [], name))
    if by_source:
        notes.append(
            Note(kind=NoteKind.LIMITED, text=LIMITS, how="`distdoctor straggler record`, or Kineto traces")
        )
    mixed = [name for name in _MIXED if spans[name]]
    if mixed:
        notes.append(
            Note(
                kind=NoteKind.DROPPED_VALUES,
                text=f"spans {', '.join(mixed)} hold collectives beside own work and are not used",
            )
        )
    return join([*readings, Reading(inputs=tuple(inputs), notes=tuple(dict.fromkeys(notes)))])


@dataclass(slots=True)
class _Log:
    """One file as it is read."""

    path: str
    rows: FileRows
    source: str = "training"
    rank: int | None = None
    host: str | None = None
    local_rank: int | None = None
    num_bad: int = 0
    durations: dict[str, dict[int, float]] = field(default_factory=dict)
    """By span, then by step: milliseconds, those of several micro-batches added up."""
    started_us: dict[int, int] = field(default_factory=dict)
    unused: dict[str, int] = field(default_factory=dict)
    tags: dict[str, set[int]] = field(default_factory=dict)

    def notes(self) -> list[Note]:
        found = []
        if self.num_bad:
            found.append(
                Note(
                    kind=NoteKind.DROPPED_VALUES,
                    text=f"{self.num_bad:,} broken lines of `{self.path}` were left out",
                )
            )
        for tag, steps in self.tags.items():
            if tag in ("eval", "checkpoint_save") and len(steps) <= 10_000:
                shown = fold_ints(sorted(steps)[:20]) + ("…" if len(steps) > 20 else "")
                found.append(
                    Note(kind=NoteKind.LIMITED, text=f"steps tagged {tag} do more than others: {shown}")
                )
        return found


def _read_file(file: FileBlocks, options: ReadOptions) -> _Log:
    """Raises InputError with one line."""
    log = _Log(path=file.path, rows=FileRows(path=file.path))
    num_lines = 0
    for block in file.blocks():
        for line in block.split(b"\n"):
            # Only what begins or ends a span; `metric_value` and markers are most of some logs.
            if b'_end"' not in line and b'_start"' not in line:
                continue
            num_lines += 1
            try:
                found = _decode(line)
            except (msgspec.DecodeError, RecursionError, ValueError):
                log.num_bad += 1
                continue
            _take(log, found, options)
    if not num_lines:
        raise InputError("it holds no spans")
    if log.rank is None:
        log.rank = rank_in_path(file.path)
    if log.rank is None:
        raise InputError("neither its lines nor its name tell the rank")
    _finish(log)
    return log


def _take(log: _Log, line: _Line, options: ReadOptions) -> None:
    if line.normal is not None:
        line = _flat(line)
    if log.rank is None and line.rank is not None and 0 <= line.rank < MAX_RANKS:
        log.rank = line.rank
        log.source = (line.source or log.source)[:64]
        log.host = (line.host_name or "")[:255] or None
        log.local_rank = (
            line.local_rank if line.local_rank is not None and 0 <= line.local_rank < MAX_RANKS else None
        )
    step, name = line.step, line.log_type_name
    if name is None or step is None or not 0 <= step < MAX_STEP or not options.wants(step):
        return
    for tag in (line.step_tags or ())[:8]:
        if len(log.tags) < 64:
            log.tags.setdefault(tag[:64], set()).add(step)
    if name.endswith("_start"):
        if line.time_us is not None and (name == "step_start" or step not in log.started_us):
            log.started_us[step] = line.time_us
    elif name.endswith("_end") and line.value is not None:
        span = name[:-4]
        if span in _SECTIONS:
            of_span = log.durations.setdefault(span, {})
            of_span[step] = of_span.get(step, 0.0) + line.value
            if len(of_span) > _MAX_STEPS:
                raise InputError(f"it has more than {_MAX_STEPS:,} steps")
        elif span in log.unused or len(log.unused) < _MAX_NAMES:
            log.unused[span] = log.unused.get(span, 0) + 1


def _flat(line: _Line) -> _Line:
    """The four-column layout as the flat one; what is not as it should be is left out."""
    whole = line.int_ if isinstance(line.int_, dict) else {}
    texts = line.normal if isinstance(line.normal, dict) else {}
    floats = line.double if isinstance(line.double, dict) else {}
    tags = line.normvector.get("step_tags") if isinstance(line.normvector, dict) else None

    def number(name: str) -> int | None:
        value = whole.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def text(name: str) -> str | None:
        value = texts.get(name)
        return value if isinstance(value, str) else None

    value = floats.get("value")
    return _Line(
        log_type_name=text("log_type_name"),
        rank=number("rank"),
        step=number("step"),
        value=float(value) if isinstance(value, (int, float)) else None,
        time_us=number("time_us"),
        source=text("source"),
        host_name=text("host_name"),
        step_tags=[str(tag) for tag in tags] if isinstance(tags, list) else None,
    )


def _finish(log: _Log) -> None:
    if log.rank is None or not log.durations:
        return
    steps = np.array(sorted(set().union(*log.durations.values())), dtype=np.int64)
    values: dict[Key, Times] = {}
    for span, section in _SECTIONS.items():
        of_span = log.durations.get(span)
        key = (section, Said.EXACTLY)
        if of_span is None or key in values:
            continue
        array = np.array([of_span.get(step, np.nan) for step in steps.tolist()], dtype=np.float64)
        with np.errstate(invalid="ignore"):
            array[(array < 0) | (array > MAX_MS)] = np.nan
        values[key] = array.astype(np.float32)
        log.rows.columns[key] = span
    started = np.array([log.started_us.get(step, np.nan) for step in steps.tolist()], dtype=np.float64) / 1e6
    log.rows.places.append(Place(rank=log.rank, host=log.host, local_rank=log.local_rank))
    log.rows.ranks.append(
        RankRows(path=log.path, rank=log.rank, steps=steps, values=values, started_s=started)
    )


TORCHTITAN_LOGS = Reader(name=SOURCE, sniff=sniff, read=read)

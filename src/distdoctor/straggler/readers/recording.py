"""Our own recordings: `rank-<rank>.timing.jsonl` and `rank-<rank>.collectives.jsonl`, as docs/straggler-recording.md tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.report.model import GpuRef, InputFile
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading, join
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import Times
from distdoctor.straggler.facts.telemetry import Telemetry
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.clock_values import parse_iso
from distdoctor.straggler.readers.column_names import Said
from distdoctor.straggler.readers.column_plan import Key
from distdoctor.straggler.readers.columns import MAX_RANKS
from distdoctor.straggler.readers.file_blocks import FileBlocks
from distdoctor.straggler.readers.file_text import text_start
from distdoctor.straggler.readers.rank_rows import MAX_MS, MAX_STEP, FileRows, RankRows
from distdoctor.straggler.readers.rank_words import named_ranks
from distdoctor.straggler.readers.reading_files import finish
from distdoctor.straggler.readers.recorded_collectives import RecordedCollectives
from distdoctor.straggler.readers.recorded_telemetry import telemetry_of
from distdoctor.straggler.recording_format import (
    COLLECTIVE_COLUMNS,
    COLLECTIVES_KEY,
    COLLECTIVES_VERSION,
    EVENT_COLLECTIVES,
    EVENT_NOTE,
    EVENT_RESTART,
    SECTION_OF_COLUMN,
    START_COLUMN,
    STEP_COLUMN,
    TIMING_KEY,
    TIMING_VERSION,
)

SOURCE = "distdoctor recordings"

# Names of columns, groups and events of one file. Our own bounds.
MAX_COLUMNS = 256
_MAX_EVENTS = 200_000

Object = dict[str, object]

_rows_of = msgspec.json.Decoder(list[list[float | None]]).decode
_any_of = msgspec.json.Decoder().decode


@dataclass(slots=True)
class Part:
    """Rows under one header: one attempt of one rank."""

    header: Object
    rows: list[NDArray[np.float64]] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)


@dataclass(slots=True)
class Parsed:
    """One file, cut at its headers."""

    parts: list[Part] = field(default_factory=list)
    num_bad: int = 0
    is_cut: bool = False


def sniff(_path: str, head: bytes) -> float:
    """A recording says so in its first key."""
    first = text_start(head).partition(b"\n")[0][:4096]
    is_ours = first[:1] == b"{" and (
        b'"%s"' % TIMING_KEY.encode() in first or b'"%s"' % COLLECTIVES_KEY.encode() in first
    )
    return 1.0 if is_ours else 0.0


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All recordings together. The last line of a file counts only when it is whole: a job may have died in it."""
    files: list[FileRows] = []
    inputs: list[InputFile] = []
    collectives = RecordedCollectives()
    telemetry: list[Telemetry] = []
    notes: list[Note] = []
    oddities = _Oddities()
    for number, path in enumerate(paths):
        if options.progress and number and number % 256 == 0:
            options.progress(f"{number:,} of {len(paths):,} recordings read")
        file = FileBlocks(path)
        try:
            parsed = parse(file)
            if COLLECTIVES_KEY in parsed.parts[0].header:
                collectives.add(
                    path, [(part.header, part.rows, part.events) for part in parsed.parts], options
                )
            else:
                files.append(_timing_rows(path, parsed, options, oddities))
                telemetry += telemetry_of(path, [(part.header, part.events) for part in parsed.parts])
        except InputError as error:
            inputs.append(file.input_file(SOURCE, error.in_one_line))
            continue
        oddities.see(parsed, file)
        inputs.append(file.input_file(SOURCE))
    notes += [*oddities.notes(), *collectives.notes]
    found = collectives.build()
    extra = Reading(collectives=(found,) if found is not None else (), telemetry=tuple(telemetry))
    return join([finish(files, inputs, notes, SOURCE), extra])


def parse(file: FileBlocks) -> Parsed:
    """Headers, rows and events of one file. Raises InputError when it does not begin with a header that is known."""
    parsed = Parsed()
    for block in file.blocks():
        lines = block.split(b"\n")
        if file.is_cut:
            # Written without its line end: half a number would look like a whole one.
            parsed.is_cut = bool(lines.pop().strip())
        rows: list[bytes] = []
        for line in lines:
            text = line.strip()
            if text[:1] == b"[":
                rows.append(text)
            elif text:
                _add_rows(parsed, rows)
                rows = []
                _add_object(parsed, text)
        _add_rows(parsed, rows)
    if not parsed.parts:
        raise InputError("it ends within its first line")
    return parsed


def _add_object(parsed: Parsed, text: bytes) -> None:
    try:
        found = _any_of(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        found = None
    if not isinstance(found, dict):
        parsed.num_bad += 1
        if not parsed.parts:
            raise InputError("its first line is no header")
        return
    if TIMING_KEY in found or COLLECTIVES_KEY in found:
        _refuse_newer(found)
        parsed.parts.append(Part(found))
    elif not parsed.parts:
        raise InputError("its first line is no header")
    elif len(parsed.parts[-1].events) < _MAX_EVENTS:
        parsed.parts[-1].events.append(found)


def _refuse_newer(header: Object) -> None:
    key, known = (
        (TIMING_KEY, TIMING_VERSION) if TIMING_KEY in header else (COLLECTIVES_KEY, COLLECTIVES_VERSION)
    )
    version = header[key]
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InputError("its header has no version")
    if version > known:
        raise InputError(
            f"it is of format {version}, and this distdoctor reads up to {known}",
            hint="install a newer distdoctor",
        )


def _add_rows(parsed: Parsed, lines: list[bytes]) -> None:
    """Lines that are arrays, decoded together; where one is broken, one by one."""
    if not lines:
        return
    if not parsed.parts:
        raise InputError("its first line is no header")
    columns = parsed.parts[-1].header.get("columns")
    width = len(columns) if isinstance(columns, list) else len(COLLECTIVE_COLUMNS)
    try:
        rows = _rows_of(b"[" + b",".join(lines) + b"]")
        array = np.array(rows, dtype=np.float64)
        if array.ndim == 2 and array.shape[1] == width:
            parsed.parts[-1].rows.append(array)
            return
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    good: list[list[float | None]] = []
    for line in lines:
        try:
            row = _rows_of(b"[" + line + b"]")
        except (msgspec.DecodeError, RecursionError, ValueError):
            row = []
        if len(row) == 1 and len(row[0]) == width:
            good.append(row[0])
        else:
            parsed.num_bad += 1
    if good:
        parsed.parts[-1].rows.append(np.array(good, dtype=np.float64))


def _timing_rows(path: str, parsed: Parsed, options: ReadOptions, oddities: _Oddities) -> FileRows:
    file = FileRows(path=path)
    for number, part in enumerate(parsed.parts):
        rank = whole(part.header.get("rank"), MAX_RANKS)
        if rank is None:
            raise InputError("its header tells no rank")
        columns = part.header.get("columns")
        if not isinstance(columns, list) or STEP_COLUMN not in columns or len(columns) > MAX_COLUMNS:
            raise InputError(f"its header names no columns, or none called `{STEP_COLUMN}`")
        names = [str(name) for name in columns]
        file.unused += [name for name in names if name not in (STEP_COLUMN, START_COLUMN, *SECTION_OF_COLUMN)]
        size = whole(part.header.get("world_size"), MAX_RANKS + 1)
        if size:
            file.world_sizes.append(size)
        file.places.append(place_of(part.header, rank))
        attempt = whole(part.header.get("attempt"), 1_000_000)
        oddities.see_events(rank, part.events)
        rows = _rows_of_part(part, names, options, file)
        if rows is not None:
            steps, values, started = rows
            file.ranks.append(
                RankRows(
                    path=path,
                    rank=rank,
                    # A file that is appended to has the later attempt behind the earlier one.
                    attempt=number if attempt is None else attempt,
                    steps=steps,
                    values=values,
                    started_s=started,
                )
            )
    return file


def _rows_of_part(
    part: Part, names: list[str], options: ReadOptions, file: FileRows
) -> tuple[NDArray[np.int64], dict[Key, Times], NDArray[np.float64] | None] | None:
    if not part.rows:
        return None
    table = np.concatenate(part.rows) if len(part.rows) > 1 else part.rows[0]
    part.rows = []
    numbers = table[:, names.index(STEP_COLUMN)]
    with np.errstate(invalid="ignore"):
        is_kept = (numbers >= 0) & (numbers < MAX_STEP) & (numbers == np.floor(numbers))
    if not np.all(is_kept):
        file.dropped["rows without a step number"] += int(np.count_nonzero(~is_kept))
    is_kept &= options.wants_each(numbers)
    if not np.any(is_kept):
        return None
    table = table if np.all(is_kept) else table[is_kept]
    values: dict[Key, Times] = {}
    for index, name in enumerate(names):
        section = SECTION_OF_COLUMN.get(name)
        if section is not None and not np.all(np.isnan(table[:, index])):
            values[section, Said.EXACTLY] = _milliseconds(table[:, index], section, file)
    started = None
    begun = parse_iso(str(part.header.get("started_utc") or ""))
    if begun is not None and START_COLUMN in names:
        started = begun[0] + table[:, names.index(START_COLUMN)] / 1e3
    return table[:, names.index(STEP_COLUMN)].astype(np.int64), values, started


def _milliseconds(microseconds: NDArray[np.float64], section: Section, file: FileRows) -> Times:
    values = microseconds / 1e3
    with np.errstate(invalid="ignore"):
        is_bad = (values < 0) | (values > MAX_MS)
    if np.any(is_bad):
        file.dropped[f"values of `{section.value}` below zero or without bounds"] += int(
            np.count_nonzero(is_bad)
        )
        values = np.where(is_bad, np.nan, values)
    return values.astype(np.float32)


def place_of(header: Mapping[str, object], rank: int) -> Place:
    """Where a rank runs, by the header of its recording; what is not as it should be is left out."""
    gpu = header.get("gpu")
    coords = header.get("coords")
    host = text_of(header.get("host"))
    return Place(
        rank=rank,
        host=host,
        local_rank=whole(header.get("local_rank"), MAX_RANKS),
        pod=text_of(header.get("pod")),
        gpu=GpuRef(
            host=host,
            index=whole(gpu.get("index"), MAX_RANKS),
            uuid=text_of(gpu.get("uuid")),
            pci=text_of(gpu.get("pci")),
            model=text_of(gpu.get("model")),
        )
        if isinstance(gpu, dict) and gpu
        else None,
        coords={
            str(name).lower()[:32]: number
            for name, value in list(coords.items())[:16]
            if (number := whole(value, MAX_RANKS)) is not None
        }
        if isinstance(coords, dict)
        else {},
    )


def whole(value: object, limit: int) -> int | None:
    """A whole number from 0 up to below `limit`, else None."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < limit else None  # type: ignore[operator, return-value]


def text_of(value: object) -> str | None:
    """A text that is not empty, cut at 255 characters, else None."""
    return value[:255] if isinstance(value, str) and value else None


class _Oddities:
    """What is odd about recordings, gathered over ranks: a thousand torn files are one note."""

    def __init__(self) -> None:
        self._cut: list[str] = []
        self._num_bad = 0
        self._not_whole: list[str] = []
        self._restarts: Counter[int] = Counter()
        self._no_collectives: list[int] = []
        self._told: dict[str, list[int]] = {}

    def see(self, parsed: Parsed, file: FileBlocks) -> None:
        self._num_bad += parsed.num_bad
        if parsed.is_cut:
            self._cut.append(file.path)
        if file.note is not None:
            self._not_whole.append(f"`{file.path}`: {file.note}")

    def see_events(self, rank: int, events: Sequence[Object]) -> None:
        for event in events:
            kind = event.get("event")
            if kind == EVENT_RESTART:
                self._restarts[rank] += 1
            elif kind == EVENT_COLLECTIVES and event.get("count") == 0:
                self._no_collectives.append(rank)
            elif kind == EVENT_NOTE and len(self._told) < 64 and (text := text_of(event.get("text"))):
                self._told.setdefault(text, []).append(rank)

    def notes(self) -> Iterator[Note]:
        if self._cut:
            yield Note(
                kind=NoteKind.CUT_SHORT,
                text=f"{len(self._cut):,} recording{'s' if len(self._cut) > 1 else ''} end{'' if len(self._cut) > 1 else 's'} within a "
                f"line, such as `{self._cut[0]}`; that line was left out",
            )
        if self._not_whole:
            others = f", and {len(self._not_whole) - 1:,} others alike" if len(self._not_whole) > 1 else ""
            yield Note(kind=NoteKind.CUT_SHORT, text=f"{self._not_whole[0]}{others}")
        if self._num_bad:
            yield Note(kind=NoteKind.DROPPED_VALUES, text=f"{self._num_bad:,} broken lines were left out")
        if self._restarts:
            yield Note(
                kind=NoteKind.RESTARTED,
                text=f"{named_ranks(self._restarts)} {'were' if len(self._restarts) > 1 else 'was'} restarted",
            )
        if self._no_collectives:
            yield Note(
                kind=NoteKind.NOT_COLLECTIVE,
                text=f"the recorder saw no collectives on {named_ranks(self._no_collectives)}",
            )
        for text, ranks in self._told.items():
            yield Note(kind=NoteKind.LIMITED, text=f"the recorder of {named_ranks(ranks)} says: {text}")


RECORDINGS = Reader(name=SOURCE, sniff=sniff, read=read)

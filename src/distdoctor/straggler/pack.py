"""Raw timing of many ranks as one Parquet file a host: a tenth of the size, and read section by section."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from distdoctor.errors import InputError, OutputError
from distdoctor.evidence import find_files, read_head
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading, join
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.packed_format import (
    METADATA_KEY,
    RANK_COLUMN,
    STARTED_COLUMN,
    STEP_COLUMN,
    PackedHead,
    encode_head,
    section_column,
)
from distdoctor.straggler.readers.all import READERS
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.packed import PACKED_FILES
from distdoctor.straggler.readers.parquet_support import import_parquet
from distdoctor.straggler.readers.rank_words import missing_ranks
from distdoctor.straggler.readers.recording import RECORDINGS
from distdoctor.straggler.readers.recording_hosts import by_host

# The most ranks in a file where the evidence names no hosts.
RANKS_A_FILE = 128

# Files whose reasons an error lists. Our own choice: a screen.
_MAX_REASONS = 8

# Enough to know any kind of file by sight.
_HEAD_BYTES = 256 * 1024

_NO_RANKS = "it tells no times of single ranks and steps"

# Rows that are compressed together; a column of them is 16 MB.
_ROWS_A_GROUP = 1 << 22

# Packed as fast as it can: levels above 1 take several times as long for some per cent.
_ZSTD_LEVEL = 1

_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PackResult:
    """What was written, and what was odd about what was read."""

    written: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    inputs: tuple[InputFile, ...] = ()


def pack(
    paths: Sequence[str],
    folder: str,
    options: ReadOptions | None = None,
    *,
    readers: Sequence[Reader] = READERS,
) -> PackResult:
    """Packs the evidence below `paths` into `folder`: `<host>.parquet`, or `ranks-0-127.parquet` without hosts.

    Whatever tells times of ranks and steps can be packed; collectives, telemetry and series of one rank are left out.

    Recordings are taken host by host, so that of 16,384 ranks only one host's are in memory. Raises InputError when
    nothing can be packed, OutputError when a file is there already or cannot be written, and InputError when pyarrow
    is missing. Nothing is overwritten, and a file appears under its name only when it is whole.
    """
    import_parquet()
    options = options or ReadOptions()
    groups, odd = _groups(find_files(paths), readers)
    written: list[str] = []
    ranks: dict[int, str] = {}
    world_size = 0
    readings: list[Reading] = [odd]
    for reader, files in groups:
        reading = reader.read(files, options)
        _refuse_several_runs(reading, reader, ranks)
        # Of one host's ranks all others are missing; who really is, is told at the end.
        notes = tuple(note for note in reading.notes if note.kind is not NoteKind.MISSING_RANKS)
        for timings in reading.steps:
            written += write_timings(timings, notes, Path(folder))
            ranks.update(dict.fromkeys(timings.ranks, reader.name))
            world_size = max(world_size, timings.world_size or 0)
            if options.progress:
                options.progress(f"{len(written):,} files packed")
        # The arrays are let go before the next host is read.
        readings.append(Reading(notes=notes, inputs=_inputs(reading)))
    every = join(readings)
    if not written:
        raise InputError(f"nothing to pack: {_reasons(every.inputs)}")
    odd_notes = [*dict.fromkeys(every.notes), *missing_ranks(ranks, world_size)]
    return PackResult(written=tuple(written), notes=tuple(odd_notes), inputs=every.inputs)


def _groups(
    files: Sequence[str], readers: Sequence[Reader]
) -> tuple[list[tuple[Reader, list[str]]], Reading]:
    """Files by reader; recordings also by host. What nobody reads is in the reading."""
    by_reader: dict[str, tuple[Reader, list[str]]] = {}
    unread: list[InputFile] = []
    for path in files:
        try:
            head = read_head(path, max_bytes=_HEAD_BYTES)
        except InputError as error:
            unread.append(InputFile(path=path, kind="unknown", read=False, why_not=error.message))
            continue
        sure, reader = max(((each.sniff(path, head), each) for each in readers), key=lambda pair: pair[0])
        if sure <= 0:
            unread.append(
                InputFile(path=path, kind="unknown", read=False, why_not="no timing that can be packed")
            )
        elif reader.name == PACKED_FILES.name:
            unread.append(InputFile(path=path, kind=reader.name, read=False, why_not="it is packed already"))
        else:
            by_reader.setdefault(reader.name, (reader, []))[1].append(path)
    groups = []
    for reader, found in by_reader.values():
        hosts = by_host(found) if reader.name == RECORDINGS.name else [found]
        groups += [(reader, each) for each in hosts]
    return groups, Reading(inputs=tuple(unread))


def _inputs(reading: Reading) -> tuple[InputFile, ...]:
    """Of a reading without times of ranks every file is one that was not packed."""
    if reading.steps:
        return reading.inputs
    return tuple(replace(each, read=False, why_not=each.why_not or _NO_RANKS) for each in reading.inputs)


def _reasons(inputs: Sequence[InputFile]) -> str:
    told = [
        each.why_not if each.path in (each.why_not or "") else f"`{each.path}`: {each.why_not or _NO_RANKS}"
        for each in inputs[:_MAX_REASONS]
    ]
    more = f"; and {len(inputs) - _MAX_REASONS} more files" if len(inputs) > _MAX_REASONS else ""
    return "; ".join(str(each) for each in told) + more if told else "no files"


def _refuse_several_runs(reading: Reading, reader: Reader, packed: Mapping[int, str]) -> None:
    told = Counter(rank for timings in reading.steps for rank in timings.ranks)
    again = any(count > 1 for count in told.values())
    if again or any(note.kind is NoteKind.MIXED_RUNS for note in reading.notes):
        raise InputError("several runs with the same ranks", hint="pack each run into a folder of its own")
    other = next((packed[rank] for rank in told if packed.get(rank, reader.name) != reader.name), None)
    if other is not None:
        raise InputError(
            f"{other} and {reader.name} tell of the same ranks",
            hint="pack each kind into a folder of its own",
        )


def write_timings(timings: StepTimings, notes: Sequence[Note], folder: Path) -> list[str]:
    """Writes one run into `folder`, a file for each host; the paths. Raises OutputError, and overwrites nothing."""
    targets = [(folder / name, rows) for name, rows in _files(timings)]
    for target, _ in targets:
        if os.path.lexists(target):
            raise OutputError(f"`{target}` is there already", hint="give an empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make `{folder}`: {error.strerror}") from None
    for target, rows in targets:
        _write_file(timings, rows, tuple(notes), target)
    return [str(target) for target, _ in targets]


def _files(timings: StepTimings) -> Iterator[tuple[str, list[int]]]:
    """(name of the file, rows of the timings that go into it)."""
    of_host: dict[str, list[int]] = {}
    without: dict[int, list[int]] = {}
    for row, place in enumerate(timings.places):
        if place.host:
            name = _NO_NAME.sub("_", place.host).strip("._")[:_MAX_NAME] or "host"
            of_host.setdefault(name, []).append(row)
        else:
            without.setdefault(place.rank // RANKS_A_FILE, []).append(row)
    for rows in without.values():
        first, last = timings.places[rows[0]].rank, timings.places[rows[-1]].rank
        of_host.setdefault(f"ranks-{first}-{last}", []).extend(rows)
    for name, rows in of_host.items():
        yield f"{name}.parquet", rows


def _write_file(timings: StepTimings, rows: list[int], notes: tuple[Note, ...], target: Path) -> None:
    pyarrow, parquet = import_parquet()
    num_ranks, num_steps = len(rows), timings.num_steps
    places = tuple(timings.places[row] for row in rows)
    head = PackedHead(
        source=timings.source, places=places, steps=timings.steps, world_size=timings.world_size, notes=notes
    )
    ranks = np.array([place.rank for place in places], dtype=np.int32)
    small = timings.steps[-1] < 2**31
    columns: dict[str, NDArray[np.generic]] = {
        RANK_COLUMN: np.repeat(ranks, num_steps),
        STEP_COLUMN: np.tile(timings.steps.astype(np.int32 if small else np.int64), num_ranks),
    }
    encodings = dict.fromkeys(columns, "DELTA_BINARY_PACKED")
    if timings.started_s is not None:
        columns[STARTED_COLUMN] = np.tile(timings.started_s, num_ranks)
    for section in timings.sections:
        columns[section_column(section)] = (
            timings.sections[section][rows].astype(np.float32, copy=False).reshape(-1)
        )
    encodings |= {name: "BYTE_STREAM_SPLIT" for name in columns if name not in encodings}
    table = pyarrow.table(columns).replace_schema_metadata({METADATA_KEY: encode_head(head)})
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        parquet.write_table(
            table,
            temporary,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=False,
            column_encoding=encodings,
            write_statistics=[RANK_COLUMN, STEP_COLUMN],
            row_group_size=_ROWS_A_GROUP,
        )
        _publish(temporary, target)
    except (OSError, pyarrow.ArrowException) as error:
        raise OutputError(f"cannot write `{target}`: {getattr(error, 'strerror', None) or error}") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def _publish(temporary: Path, target: Path) -> None:
    """Gives the whole file its name; a file that appeared there meanwhile stays."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise OutputError(f"`{target}` is there already", hint="give an empty folder") from None
    except OSError:
        # A file system without hard links.
        if os.path.lexists(target):
            raise OutputError(f"`{target}` is there already", hint="give an empty folder") from None
        temporary.rename(target)

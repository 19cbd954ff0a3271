"""Files of `straggler pack` as one array a section, read from all files only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.report.model import InputFile
from distdoctor.straggler.column_medians import column_medians
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings, Times
from distdoctor.straggler.packed_format import (
    METADATA_KEY,
    RANK_COLUMN,
    STARTED_COLUMN,
    STEP_COLUMN,
    PackedHead,
    decode_head,
    has_head,
    section_column,
)
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.file_bytes import size_of
from distdoctor.straggler.readers.parquet_support import PARQUET_MAGIC, import_parquet, open_parquet
from distdoctor.straggler.readers.rank_words import missing_ranks, named_ranks
from distdoctor.straggler.readers.rows import MAX_VALUES
from distdoctor.straggler.readers.runs import group_runs

SOURCE = "distdoctor packed recordings"

# Times of day are taken from so many files: clocks of hosts agree within milliseconds where NTP runs.
_CLOCK_FILES = 8

Rows = slice | NDArray[np.intp]


@dataclass(slots=True, kw_only=True)
class PackedFile:
    """One file, its footer read and nothing else."""

    path: str
    head: PackedHead
    footer: Any
    """pyarrow's FileMetaData; kept, so that a section is read without parsing the footer again."""
    sections: frozenset[Section]
    is_rectangle: bool
    """Every rank has every step, in order."""
    rows: Rows = field(default_factory=lambda: slice(0))
    """Where its ranks are among all ranks."""
    own_rows: NDArray[np.intp] | None = None
    """Which of its ranks count; None: all."""
    columns: Rows = field(default_factory=lambda: slice(0))
    """Where its steps are among all steps."""
    own_columns: NDArray[np.intp] | None = None
    """Which of its steps count; None: all."""

    @property
    def ranks(self) -> list[int]:
        """Global ranks, ascending."""
        return [place.rank for place in self.head.places]

    def read(self, section: Section) -> Times:
        """The section of this file, shape (its ranks, its steps). Raises InputError when the file is damaged."""
        shape = (len(self.head.places), len(self.head.steps))
        name = section_column(section)
        if section not in self.sections:
            return np.full(shape, np.nan, dtype=np.float32)
        if self.is_rectangle:
            return self._column(name, np.float32).reshape(shape)
        values, ranks, steps = (
            self._column(name, np.float32),
            self._column(RANK_COLUMN, np.int64),
            self._column(STEP_COLUMN, np.int64),
        )
        array = np.full(shape, np.nan, dtype=np.float32)
        row, is_rank = _positions(np.asarray(self.ranks, dtype=np.int64), ranks)
        column, is_step = _positions(self.head.steps, steps)
        known = is_rank & is_step
        array[row[known], column[known]] = values[known]
        return array

    def started(self) -> NDArray[np.float64] | None:
        """When its steps began, by its first rank; shape (its steps,)."""
        try:
            column = self._column(STARTED_COLUMN, np.float64)
        except InputError:
            return None
        return column[: len(self.head.steps)] if self.is_rectangle else None

    def _column(self, name: str, dtype: type[np.generic]) -> NDArray[Any]:
        pyarrow, parquet = import_parquet()
        try:
            with parquet.ParquetFile(self.path, metadata=self.footer) as file:
                column = file.read(columns=[name], use_threads=False).column(0)
            array = (
                column.to_numpy()
                if column.num_chunks != 1
                else column.chunk(0).to_numpy(zero_copy_only=False)
            )
        except (pyarrow.ArrowException, OSError, ValueError, KeyError, IndexError) as error:
            raise InputError(
                f"`{self.path}` is damaged: {(str(error).splitlines() or ['broken'])[0][:200]}"
            ) from None
        if len(array) != self.footer.num_rows:
            raise InputError(f"`{self.path}` is damaged: it has fewer rows than it says")
        found: NDArray[Any] = array.astype(dtype, copy=False)
        return found


class PackedSections(Mapping[Section, Times]):
    """Sections of many packed files; each access reads one column of all files into a new array.

    Nothing is kept: ask for a section once, use it, let it go. A file that turns out to be damaged gives NaN and is
    named in `damaged`.
    """

    def __init__(self, files: Sequence[PackedFile], *, num_ranks: int, num_steps: int) -> None:
        self.files = tuple(files)
        self.damaged: dict[str, str] = {}
        """By path: why a file could not be read after all."""
        self._shape = (num_ranks, num_steps)
        self._sections = tuple(
            section for section in Section if any(section in file.sections for file in self.files)
        )

    def __getitem__(self, section: Section) -> Times:
        if section not in self._sections:
            raise KeyError(section)
        array = np.empty(self._shape, dtype=np.float32)
        array.fill(np.nan)
        for rows, block in self.blocks(section):
            array[rows] = block
        return array

    def __iter__(self) -> Iterator[Section]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def __contains__(self, section: object) -> bool:
        return section in self._sections

    def blocks(self, section: Section) -> Iterator[tuple[Rows, Times]]:
        """File by file: (rows of the whole array, their times of shape (rows, all steps))."""
        for file in self.files:
            try:
                values = file.read(section)
            except InputError as error:
                self.damaged[file.path] = error.message
                continue
            if file.own_rows is not None:
                values = values[file.own_rows]
            if file.own_columns is not None:
                values = values[:, file.own_columns]
            if values.shape[1] != self._shape[1] or not isinstance(file.columns, slice):
                wide = np.full((values.shape[0], self._shape[1]), np.nan, dtype=np.float32)
                wide[:, file.columns] = values
                values = wide
            yield file.rows, values


def sniff(path: str, head: bytes) -> float:
    """A Parquet file with our metadata; its footer is read for it."""
    if head[:4] != PARQUET_MAGIC:
        return 0.0
    try:
        return 1.0 if has_head(open_parquet(path).schema_arrow.metadata) else 0.0
    except InputError:
        return 0.0


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """Footers of all files; times are read when a section is asked for."""
    files: list[PackedFile] = []
    inputs: list[InputFile] = []
    for path in paths:
        why = None
        try:
            files.append(open_packed(path))
        except InputError as error:
            why = error.in_one_line
        inputs.append(InputFile(path=path, kind=SOURCE, bytes=size_of(path), read=why is None, why_not=why))
    runs = group_runs((file, file.path, _span(file)) for file in files)
    steps: list[StepTimings] = []
    notes: list[Note] = []
    if len(runs) > 1:
        notes.append(
            Note(
                kind=NoteKind.MIXED_RUNS,
                text=f"{len(runs)} packed runs with the same ranks and steps, each taken by itself",
                how="give one of the folders",
            )
        )
    for run in runs:
        try:
            timings, found = timings_of(run.items, options)
        except InputError as error:
            notes.append(Note(kind=NoteKind.UNREADABLE, text=error.message, how=error.hint))
            continue
        steps += [timings] if timings is not None else []
        notes += found
    return Reading(steps=tuple(steps), notes=tuple(dict.fromkeys(notes)), inputs=tuple(inputs))


def open_packed(path: str) -> PackedFile:
    """Reads the footer of a packed file. Raises InputError with one line."""
    file = open_parquet(path)
    schema = file.schema_arrow
    if not has_head(schema.metadata):
        raise InputError("it was not written by `straggler pack`")
    head = decode_head(schema.metadata[METADATA_KEY])
    names = set(schema.names)
    missing = {RANK_COLUMN, STEP_COLUMN} - names
    if missing:
        raise InputError(f"it has no column `{min(missing)}`")
    import_parquet()
    sections = frozenset(
        section
        for section in Section
        if section_column(section) in names
        and str(schema.field(section_column(section)).type) in ("float", "double")
    )
    return PackedFile(
        path=path,
        head=head,
        footer=file.metadata,
        sections=sections,
        is_rectangle=_is_rectangle(file.metadata, schema.names, head),
    )


def timings_of(files: Sequence[PackedFile], options: ReadOptions) -> tuple[StepTimings | None, list[Note]]:
    """One run of packed files. Raises InputError when one section of it would not fit into memory."""
    notes = list(dict.fromkeys(note for file in files for note in file.head.notes))
    places: dict[int, Place] = {}
    twice: list[int] = []
    for file in files:
        taken = [place.rank in places for place in file.head.places]
        twice += [place.rank for place, is_taken in zip(file.head.places, taken, strict=True) if is_taken]
        if any(taken):
            file.own_rows = np.flatnonzero(~np.asarray(taken))
        places.update({place.rank: place for place in file.head.places if place.rank not in places})
    if twice:
        notes.append(
            Note(
                kind=NoteKind.DUPLICATE_RANKS,
                text=f"{named_ranks(twice)} in several packed files; the first one counts",
            )
        )
    ranks = np.array(sorted(places), dtype=np.int64)
    different = {file.head.steps.tobytes(): file.head.steps for file in files}
    steps = np.unique(np.concatenate(list(different.values()))) if different else np.empty(0, np.int64)
    steps = steps[options.wants_each(steps)]
    if not len(ranks) or not len(steps):
        return None, notes
    if len(ranks) * len(steps) > MAX_VALUES:
        raise InputError(
            f"{len(ranks):,} ranks × {len(steps):,} steps do not fit into memory",
            hint="give a range of steps: `--steps 1000:3000`",
        )
    for file in files:
        _place_in(file, ranks, steps, options)
    sizes = [file.head.world_size for file in files if file.head.world_size]
    notes += missing_ranks(ranks.tolist(), max(sizes, default=None))
    timings = StepTimings(
        source=files[0].head.source,
        places=tuple(places[rank] for rank in ranks.tolist()),
        steps=steps,
        sections=PackedSections(files, num_ranks=len(ranks), num_steps=len(steps)),
        started_s=_started(files, steps),
        world_size=max(sizes, default=None),
    )
    return timings, notes


def _place_in(
    file: PackedFile, ranks: NDArray[np.int64], steps: NDArray[np.int64], options: ReadOptions
) -> None:
    own_ranks = np.asarray(file.ranks, dtype=np.int64)
    if file.own_rows is not None:
        own_ranks = own_ranks[file.own_rows]
    file.rows = _as_slice(np.searchsorted(ranks, own_ranks))
    is_wanted = options.wants_each(file.head.steps)
    own_steps = file.head.steps
    if not np.all(is_wanted):
        file.own_columns = np.flatnonzero(is_wanted)
        own_steps = own_steps[is_wanted]
    file.columns = _as_slice(np.searchsorted(steps, own_steps))


def _as_slice(positions: NDArray[np.intp]) -> Rows:
    if len(positions) and positions[-1] - positions[0] == len(positions) - 1:
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions


def _is_rectangle(footer: Any, names: Sequence[str], head: PackedHead) -> bool:
    """By the number of rows, and by the least and the largest rank and step that the footer tells."""
    if footer.num_rows != len(head.places) * len(head.steps) or footer.num_row_groups == 0:
        return False
    for name, low, high in (
        (RANK_COLUMN, head.places[0].rank, head.places[-1].rank),
        (STEP_COLUMN, int(head.steps[0]), int(head.steps[-1])),
    ):
        index = list(names).index(name)
        found = [footer.row_group(number).column(index).statistics for number in range(footer.num_row_groups)]
        if any(each is None or not each.has_min_max for each in found):
            return False
        if min(each.min for each in found) != low or max(each.max for each in found) != high:
            return False
    return True


def _positions(
    known: NDArray[np.int64], wanted: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    where = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return where, known[where] == wanted


def _span(file: PackedFile) -> dict[int, tuple[int, int]]:
    span = int(file.head.steps[0]), int(file.head.steps[-1])
    return dict.fromkeys(file.ranks, span)


def _started(files: Sequence[PackedFile], steps: NDArray[np.int64]) -> NDArray[np.float64] | None:
    told = np.full((min(len(files), _CLOCK_FILES), len(steps)), np.nan)
    for row, file in enumerate(files[: len(told)]):
        started = file.started()
        if started is not None:
            told[row, file.columns] = started if file.own_columns is None else started[file.own_columns]
    return None if np.all(np.isnan(told)) else column_medians(told)


PACKED_FILES = Reader(name=SOURCE, sniff=sniff, read=read)

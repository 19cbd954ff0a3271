"""Files of rows become a reading: runs told apart, attempts in order, mixed times sorted out, oddities noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

import numpy as np

from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.series import JobSeries, SeriesKind
from distdoctor.straggler.facts.steps import StepTimings, Times
from distdoctor.straggler.readers.column_names import Said
from distdoctor.straggler.readers.column_plan import Key
from distdoctor.straggler.readers.mixed_times import Decision, Use, decide
from distdoctor.straggler.readers.rank_rows import FileRows, RankRows
from distdoctor.straggler.readers.rank_words import named_ranks
from distdoctor.straggler.readers.rows import StepRows
from distdoctor.straggler.readers.runs import Run, group_runs
from distdoctor.units import fold_ints

ONLY_STEPS = "only the wall time of whole steps is here: equal on all ranks in synchronous training; it cannot name a slow rank"

LATER = (
    "of a step that both tell the later rows count: those of the higher attempt, else of the later time of day, else of "
    "the later first step"
)

# Names listed in a note.
_MAX_LISTED = 12

_STEP: Key = (Section.STEP, Said.EXACTLY)


def reading_of_files(files: Sequence[FileRows], source: str) -> Reading:
    """All files of one kind as a reading, without `inputs`. Raises InputError when the arrays would not fit."""
    ranked = [file for file in files if not file.has_no_rank and file.ranks]
    runs = group_runs(((file, file.path, _spans(file)) for file in ranked), are_copies)
    steps: list[StepTimings] = []
    notes: list[Note] = []
    labels = _labels(runs)
    if len(runs) > 1:
        notes.append(
            Note(
                kind=NoteKind.MIXED_RUNS,
                text=f"{len(runs)} runs with the same ranks and steps, each taken by itself: "
                + ", ".join(f"`{label}`" for label in labels[:4])
                + (" …" if len(labels) > 4 else ""),
                how="give one of them alone",
            )
        )
    for run, label in zip(runs, labels, strict=True):
        timings, run_notes = _one_run(run, f"{source} of {label}" if len(runs) > 1 else source)
        steps += [timings] if timings is not None else []
        notes += run_notes
    series, series_notes = _series(files, source)
    notes += [*series_notes, *_file_notes(files)]
    return Reading(steps=tuple(steps), series=tuple(series), notes=tuple(dict.fromkeys(notes)))


def _labels(runs: Sequence[Run[FileRows]]) -> list[str]:
    """What tells runs apart: their folders, else their files, else the paths of these."""
    firsts = [PurePath(run.items[0].path) for run in runs]
    for labels in ([path.parent.name for path in firsts], [path.name for path in firsts]):
        if len(set(labels)) == len(labels) and all(labels):
            return labels
    return [str(path) for path in firsts]


def are_copies(one: FileRows, other: FileRows) -> bool:
    """Whether two files tell the same values of all steps that both tell of a rank."""
    known = {(rows.rank, rows.attempt): rows for rows in one.ranks}
    shared = [(known[key], rows) for rows in other.ranks if (key := (rows.rank, rows.attempt)) in known]
    return bool(shared) and all(_same_values(first, second) for first, second in shared)


def _same_values(one: RankRows, other: RankRows) -> bool:
    _, here, there = np.intersect1d(one.steps, other.steps, return_indices=True)
    return set(one.values) == set(other.values) and all(
        np.array_equal(values[here], other.values[key][there], equal_nan=True)
        for key, values in one.values.items()
    )


def _spans(file: FileRows) -> dict[int, tuple[int, int]]:
    return {
        each.rank: (int(each.steps.min()), int(each.steps.max())) for each in file.ranks if len(each.steps)
    }


def _one_run(run: Run[FileRows], source: str) -> tuple[StepTimings | None, list[Note]]:
    rows = StepRows()
    places: dict[int, Place] = {}
    columns: dict[Key, str] = {}
    for file in run.items:
        rows.world_sizes += file.world_sizes
        columns = {**file.columns, **columns}
        for place in file.places:
            rows.place(place)
            places[place.rank] = place
    chunks, notes = _without_wrong_units(
        _without_copies(sorted((each for file in run.items for each in file.ranks), key=_order_of_attempts))
    )
    decision = decide(chunks, places, columns)
    notes += [*decision.notes, *_notes_of_files_of_ranks(run)]
    for chunk in chunks:
        sections = _sections(chunk, decision)
        if sections:
            rows.add(chunk.rank, chunk.steps, sections, started_s=chunk.started_s)
    timings, row_notes = rows.build(source)
    if timings is not None and set(timings.sections) == {Section.STEP}:
        notes.append(
            Note(kind=NoteKind.LIMITED, text=ONLY_STEPS, how="`distdoctor straggler record` times the parts")
        )
    return timings, [*notes, *row_notes]


def _without_copies(chunks: list[RankRows]) -> list[RankRows]:
    """Leaves out what another file tells too, so that a copy does not look like a restart."""
    kept: dict[tuple[int, int], RankRows] = {}
    found: list[RankRows] = []
    for chunk in chunks:
        first = kept.setdefault((chunk.rank, chunk.attempt), chunk)
        if (
            first.path != chunk.path
            and np.isin(chunk.steps, first.steps).all()
            and _same_values(first, chunk)
        ):
            continue
        found.append(chunk)
    return found


def _order_of_attempts(rows: RankRows) -> tuple[int, int, float, int, str]:
    """Earlier attempts first: by number, else by time of day, else by the first step."""
    started = rows.started_s
    known = started[~np.isnan(started)] if started is not None else np.empty(0)
    first = int(rows.steps[0]) if len(rows.steps) else 0
    return rows.rank, rows.attempt, float(known[0]) if len(known) else 0.0, first, rows.path


def _sections(rows: RankRows, decision: Decision) -> dict[Section, Times]:
    sections: dict[Section, Times] = {}
    for key, (section, use) in decision.sections.items():
        values = rows.values.get(key)
        if values is None or np.all(np.isnan(values)):
            continue
        if use is Use.LESS_COMM:
            values = values - _comm_of(rows)
            values = np.where(values < 0, np.float32(np.nan), values)
        known = sections.get(section)
        sections[section] = values if known is None else np.where(np.isnan(known), values, known)
    return sections


def _comm_of(rows: RankRows) -> Times:
    """Time in collectives: the column of all of it, else of its two parts."""
    whole = rows.values.get((Section.COMM, Said.EXACTLY))
    if whole is not None:
        return whole
    parts = [
        rows.values[section, Said.EXACTLY]
        for section in (Section.WAIT, Section.TRANSFER)
        if (section, Said.EXACTLY) in rows.values
    ]
    total: Times = np.sum(np.stack(parts), axis=0) if parts else np.full(len(rows.steps), np.nan, np.float32)
    return total


def _without_wrong_units(chunks: list[RankRows]) -> tuple[list[RankRows], list[Note]]:
    """Leaves out ranks whose steps are a thousand times longer or shorter than those of most ranks."""
    middles = {
        id(chunk): float(np.nanmedian(chunk.values[_STEP]))
        for chunk in chunks
        if _STEP in chunk.values and np.any(chunk.values[_STEP] > 0)
    }
    if len(middles) < 3:
        return chunks, []
    usual = float(np.median(list(middles.values())))
    wrong = {key for key, middle in middles.items() if _is_power_of_thousand(middle / usual)}
    if not wrong or len(wrong) > len(middles) // 3:
        return chunks, []
    ranks = fold_ints(sorted({chunk.rank for chunk in chunks if id(chunk) in wrong})[:64])
    note = Note(
        kind=NoteKind.MIXED_UNITS,
        text=f"steps of rank {ranks} are about a thousand times longer or shorter than those of the others, as in another "
        "unit than the column says; left out",
        how="check the unit in the names of the columns of these files",
    )
    return [chunk for chunk in chunks if id(chunk) not in wrong], [note]


def _is_power_of_thousand(ratio: float) -> bool:
    """Whether two durations differ by the factor between two units, give or take a factor of two."""
    return any(factor / 2 < max(ratio, 1 / ratio) < factor * 2 for factor in (1e3, 1e6, 1e9))


def _notes_of_files_of_ranks(run: Run[FileRows]) -> list[Note]:
    notes: list[Note] = []
    files_of: dict[int, list[FileRows]] = {}
    for file in run.items:
        for rank in dict.fromkeys(each.rank for each in file.ranks):
            files_of.setdefault(rank, []).append(file)
    twice = sorted(rank for rank, found in files_of.items() if len(found) > 1)
    if twice:
        one, other = files_of[twice[0]][:2]
        is_copy = are_copies(one, other)
        what = (
            "with the same values; one copy counts"
            if is_copy
            else f"one after the other, as after a restart; {LATER}"
        )
        notes.append(
            Note(
                kind=NoteKind.DUPLICATE_RANKS if is_copy else NoteKind.RESTARTED,
                text=f"{_ranks(twice)} in several files, such as `{one.path}` and `{other.path}`, {what}",
            )
        )
    attempts = {each.attempt for file in run.items for each in file.ranks}
    if len(attempts) > 1:
        notes.append(
            Note(
                kind=NoteKind.RESTARTED,
                text=f"the job was restarted: attempts {fold_ints(sorted(attempts)[:64])}",
            )
        )
    return notes


def _ranks(ranks: Sequence[int]) -> str:
    """ "rank 3 is", "ranks 0-3 are"."""
    return f"{named_ranks(ranks)} {'are' if len(ranks) > 1 else 'is'}"


def _series(files: Sequence[FileRows], source: str) -> tuple[list[JobSeries], list[Note]]:
    """Files that do not tell the rank: the steps of one show a change, and never a rank."""
    series: list[JobSeries] = []
    notes: list[Note] = []
    for file in files:
        if not file.has_no_rank or not file.ranks:
            continue
        rows = file.ranks[0]
        values = rows.values.get(_STEP)
        distinct, kept = np.unique(rows.steps[::-1], return_index=True)
        kept = len(rows.steps) - 1 - kept
        if values is None or len(distinct) < 0.9 * len(rows.steps):
            notes.append(
                Note(
                    kind=NoteKind.LIMITED,
                    text=f"nothing tells which ranks the rows of `{file.path}` are of",
                    how="add a column `rank`, or name the files rank0.csv, rank1.csv …",
                )
            )
            continue
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"`{file.path}` tells no rank: one series of steps shows a change, not a slow rank",
                how="give a file for each rank, named rank0.csv, rank1.csv …",
            )
        )
        series.append(
            JobSeries(
                name=file.columns.get(_STEP, "step"),
                kind=SeriesKind.TIME,
                unit="ms",
                source=source,
                path=file.path,
                steps=distinct,
                values=values[kept].astype(np.float64),
                utc_s=None if rows.started_s is None else rows.started_s[kept],
                zone_known=rows.started_s is not None and not file.no_zone,
                splits={
                    section.value: array[kept].astype(np.float64)
                    for (section, _), array in rows.values.items()
                    if section is not Section.STEP
                },
            )
        )
    return series, notes


def _file_notes(files: Sequence[FileRows]) -> list[Note]:
    notes: list[Note] = []
    dropped: Counter[str] = Counter()
    for file in files:
        dropped.update({what: count for what, count in file.dropped.items() if count})
    notes += [
        Note(kind=NoteKind.DROPPED_VALUES, text=f"{count:,} {what} were left out")
        for what, count in sorted(dropped.items())
    ]
    unused = list(dict.fromkeys(name for file in files for name in file.unused))
    if unused:
        shown = ", ".join(f"`{name[:60]}`" for name in unused[:_MAX_LISTED])
        notes.append(
            Note(
                kind=NoteKind.DROPPED_VALUES,
                text=f"columns that are not used: {shown}"
                + (f" and {len(unused) - _MAX_LISTED} more" if len(unused) > _MAX_LISTED else ""),
            )
        )
    notes += [
        Note(
            kind=NoteKind.LIMITED,
            text=doubt,
            how="give another `--unit`, or name the columns with their units",
        )
        for doubt in dict.fromkeys(doubt for file in files for doubt in file.doubts)
    ]
    moved = sorted({rank for file in files for rank in file.moved})
    if moved:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"rows of {named_ranks(moved)} name several hosts, as after a restart, so no host is told of them",
                how="give the steps on one host alone: `--steps 0:300`",
            )
        )
    if any(file.no_zone for file in files):
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text="times of day have no zone and were taken as UTC",
                how="write them with a zone: 2026-01-31T12:00:00Z",
            )
        )
    if any(file.no_step_numbers and file.ranks for file in files):
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text="rows have no number of the step and were counted: a lost row shifts a rank against the others",
                how="add a column `step`",
            )
        )
    return notes + _mixed_units(files)


def _mixed_units(files: Sequence[FileRows]) -> list[Note]:
    units: dict[Section, set[str]] = {}
    for file in files:
        for section, unit in file.units.items():
            units.setdefault(section, set()).add(unit)
    mixed = [
        f"{section.value} in {' and '.join(sorted(found))}"
        for section, found in units.items()
        if len(found) > 1
    ]
    if not mixed:
        return []
    return [
        Note(
            kind=NoteKind.MIXED_UNITS,
            text=f"files give the same time in different units, each converted by its name: {', '.join(mixed)}",
        )
    ]

"""Files of NCCL Inspector → collectives of ranks, one `CollectiveTimings` for each run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from distdoctor.errors import InputError
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.collectives import CollectiveTimings
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.file_lines import FileLines
from distdoctor.straggler.readers.file_text import text_start
from distdoctor.straggler.readers.nccl_inspector.ranks import Run, find_runs
from distdoctor.straggler.readers.nccl_inspector.records import Records, read_records
from distdoctor.straggler.readers.nccl_inspector.timings import Columns, columns_of, timings_of
from distdoctor.straggler.readers.rank_words import missing_ranks

NAME = "NCCL Inspector logs"

# Runs told apart: every host of a large job is one of its own when only communicators inside hosts were recorded.
MAX_RUNS = 4096

_KEPT = "records are timed by the host (kept)"


def sniff(path: str, head: bytes) -> float:  # noqa: ARG001 - every sniffer is asked the same
    """How sure that `head` begins a log of NCCL Inspector."""
    if b'"inspector_output_format_version"' in head and b'"header"' in head:
        return 0.98
    if text_start(head).startswith((b'{"coll_perf":', b'{"p2p_perf":', b'{"header":')) and (
        b'"coll_exec_time_us"' in head or b'"p2p_exec_time_us"' in head
    ):
        return 0.95
    return 0.0


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """All collectives of all files. Bad files and lines are named, never raised."""
    records = Records()
    inputs: list[InputFile] = []
    notes: list[Note] = []
    for number, path in enumerate(paths):
        file = FileLines(path)
        before = records.dropped.copy()
        try:
            num_read = read_records(file, number, records)
        except InputError as error:
            inputs.append(file.input_file(NAME, why_not=error.in_one_line))
            continue
        why_not = None
        if not num_read:
            lost = ", ".join(f"{count} {what}" for what, count in (records.dropped - before).items())
            why_not = f"no collective in it that can be used ({lost or 'it is empty'})"
        inputs.append(file.input_file(NAME, why_not=why_not))
        if file.note is not None:
            notes.append(Note(kind=NoteKind.CUT_SHORT, text=f"`{path}`: {file.note}"))
        if options.progress is not None and number % 64 == 63:
            options.progress(f"{len(records):,} collectives of {number + 1} files")
    collectives = _collectives(records, notes)
    notes += _notes_on_records(records)
    if collectives:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text="NCCL Inspector tells collectives without training steps, and by default only those of 8 KiB "
                "and more",
                how="NCCL_INSPECTOR_DUMP_VERBOSE=1 adds times of day, NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0 the rest",
            )
        )
    return Reading(collectives=tuple(collectives), notes=tuple(notes), inputs=tuple(inputs))


def _collectives(records: Records, notes: list[Note]) -> list[CollectiveTimings]:
    if not len(records):
        return []
    runs = find_runs(records)
    if len(runs) > MAX_RUNS:
        notes.append(
            Note(
                kind=NoteKind.DROPPED_VALUES,
                text=f"{len(runs)} groups of processes share no communicator; the {MAX_RUNS} largest were kept",
            )
        )
        runs = runs[:MAX_RUNS]
    found: list[CollectiveTimings] = []
    for run, columns in zip(runs, _columns_of_runs(records, runs), strict=True):
        timings, num_twice, num_unplaced = timings_of(records, run, columns)
        if timings is not None:
            found.append(timings)
        notes += _notes_on_run(run, num_twice, num_unplaced)
    if len(runs) > 1:
        notes.append(_note_on_runs(runs))
    return found


def _columns_of_runs(records: Records, runs: list[Run]) -> list[Columns]:
    columns = columns_of(records)
    if len(runs) == 1:
        return [columns]
    run_of = np.full(len(records.members), len(runs), dtype=np.int32)
    for number, run in enumerate(runs):
        run_of[list(run.ranks)] = number
    run_of_row = run_of[columns.member]
    order = np.argsort(run_of_row, kind="stable")
    bounds = np.searchsorted(run_of_row[order], np.arange(len(runs) + 1))
    return [columns.take(order[bounds[number] : bounds[number + 1]]) for number in range(len(runs))]


def _notes_on_run(run: Run, num_twice: int, num_unplaced: int) -> list[Note]:
    notes = []
    if run.num_parts > 1:
        notes += _notes_on_parts(run)
    elif run.is_numbered_here and run.num_processes > 1:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"no communicator holds all {run.num_processes} processes, so the job's rank numbers are not "
                "known: ranks are counted here, in the order inside the communicators, then by host and process id",
                how="hosts are right; compare rank numbers with the launcher's before acting on one",
            )
        )
    if run.contradicted_by is not None:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"communicators of all {run.world_size} ranks number them differently; those that "
                f"{run.contradicted_by} numbers otherwise may have another rank in the launcher's count",
            )
        )
    if run.num_parts == 1:
        notes += missing_ranks(run.places, run.world_size, what="record")
    if num_twice:
        notes.append(
            Note(
                kind=NoteKind.DUPLICATE_RANKS,
                text=f"{num_twice} records are there twice, as when a file was copied; each counts once",
            )
        )
    if num_unplaced:
        notes.append(
            Note(
                kind=NoteKind.DROPPED_VALUES,
                text=f"{num_unplaced} records are of processes whose rank is not known, and were left out",
            )
        )
    return notes


def _notes_on_parts(run: Run) -> list[Note]:
    notes = [
        Note(
            kind=NoteKind.MIXED_RUNS,
            text=f"{run.num_parts} groups of processes at the same time share no communicator: one job whose other "
            "communicators are not in these files, or several jobs. Their ranks are counted here, by host and process "
            "id, and are not the launcher's; who is late is told inside each group, and of several late ranks of a host "
            "it cannot be told which one the others waited for",
            how="hosts are right; NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0 records the other communicators too",
        )
    ]
    if run.world_size is not None:
        notes.append(
            Note(
                kind=NoteKind.MISSING_RANKS,
                text=f"{run.world_size - run.num_processes} of {run.world_size} ranks of these communicators have no "
                "record here",
                how="give the files of all ranks; who is not seen cannot be ruled out",
            )
        )
    return notes


def _note_on_runs(runs: list[Run]) -> Note:
    by_time = sorted((run for run in runs if run.first_us is not None), key=lambda run: run.first_us or 0.0)
    apart = len(by_time) == len(runs) and all(
        (before.last_us or 0.0) < (after.first_us or 0.0) for before, after in pairwise(by_time)
    )
    if apart:
        return Note(
            kind=NoteKind.RESTARTED,
            text=f"{len(runs)} runs, one after another, as after restarts; each is judged by itself",
        )
    return Note(
        kind=NoteKind.MIXED_RUNS,
        text=f"{len(runs)} runs that share no communicator, not one after another: several jobs; each is judged by "
        "itself, with its own rank numbers",
    )


def _notes_on_records(records: Records) -> list[Note]:
    notes = []
    points = records.dropped.pop("point-to-point records", 0)
    if points:
        notes.append(
            Note(
                kind=NoteKind.DROPPED_VALUES,
                text=f"{points} point-to-point records were left out: each rank counts its own, so a send cannot be "
                "matched with its receive",
            )
        )
    cut = records.dropped.pop("last lines are cut", 0)
    if cut:
        notes.append(
            Note(
                kind=NoteKind.CUT_SHORT,
                text=f"the last line of {cut} file{'s is' if cut > 1 else ' is'} cut, as when the job still runs or "
                "was killed",
            )
        )
    for what, count in sorted(records.dropped.items()):
        verb = "" if what == _KEPT else " and were left out"
        notes.append(Note(kind=NoteKind.DROPPED_VALUES, text=f"{count} {what}{verb}"))
    lost = sum(records.overwritten.values())
    if lost:
        notes.append(
            Note(
                kind=NoteKind.DROPPED_VALUES,
                text=f"{lost} collectives of {len(records.overwritten)} ranks of communicators were overwritten before "
                "they were written out",
                how="a larger NCCL_INSPECTOR_DUMP_COLL_RING_SIZE keeps them",
            )
        )
    return notes


NCCL_INSPECTOR = Reader(name=NAME, sniff=sniff, read=read)

"""Files of operation traces, their job descriptions and results → `StepTimings`, one for each job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.evidence import STDIN, read_head
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.file_bytes import FileBytes
from distdoctor.straggler.readers.file_text import FileText
from distdoctor.straggler.readers.op_trace.meta import (
    MAX_META_BYTES,
    JobMeta,
    looks_like_meta,
    looks_like_results,
    meta_of,
    parse_meta,
)
from distdoctor.straggler.readers.op_trace.table import MAX_ROWS, Ops, join_ops, read_table
from distdoctor.straggler.readers.op_trace.timings import timings_of

NAME = "pipeline operation traces"
META = "job description"
RESULTS = "results of StragglerAnalysis"

_MAGIC = b"PAR1"

# Where a footer tells columns; footers of wide tables are some 10 KiB.
_FOOTER_BYTES = 1 << 20


def sniff(path: str, head: bytes) -> float:
    """How sure that a file is an operation trace, its description or its result; Parquet is asked for its columns."""
    if head[:4] == _MAGIC:
        footer = _footer(path)
        return 0.97 if all(name in footer for name in (b"optype", b"start_ts", b"duration", b"step")) else 0.0
    if looks_like_results(head):
        return 0.97
    return 0.9 if looks_like_meta(head) else 0.0


def _footer(path: str) -> bytes:
    """The end of a Parquet file, which names its columns; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path that may be odd; OSError is all that can come
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _FOOTER_BYTES))
            return file.read(_FOOTER_BYTES)
    except (OSError, ValueError):
        return b""


def read(paths: Sequence[str], options: ReadOptions) -> Reading:
    """Times of all jobs in `paths`. Bad files are named, never raised."""
    inputs: dict[str, InputFile] = {}
    metas: dict[str, JobMeta] = {}
    tables: dict[str, Ops] = {}
    notes: list[Note] = []
    for path in dict.fromkeys(paths):
        try:
            head = read_head(path, max_bytes=MAX_META_BYTES)
            if head[:4] != _MAGIC and looks_like_results(head):
                inputs[path] = _refused(path, RESULTS, "results of StragglerAnalysis, not timings")
            elif head[:4] != _MAGIC:
                file = FileText(path, max_bytes=MAX_META_BYTES)
                metas[path] = parse_meta(file.whole(), path)
                inputs[path] = file.input_file(META)
            else:
                inputs[path], table = _table(path, options, sum(map(len, tables.values())))
                tables[path] = table
        except InputError as error:
            why = error.in_one_line
            inputs[path] = _refused(path, META if path.endswith((".yaml", ".yml")) else NAME, why)
    steps: list[StepTimings] = []
    jobs = _jobs(tables, notes)
    for job_paths in jobs:
        meta = meta_of(job_paths[0], metas, len(jobs))
        try:
            timings, more = timings_of(join_ops([tables[path] for path in job_paths]), meta, options.unit)
        except InputError as error:
            why = error.in_one_line
            for path in job_paths:
                inputs[path] = _refused(path, NAME, why)
            continue
        name = meta.name if meta is not None else job_paths[0]
        notes += more if len(jobs) == 1 else [_of_job(note, name) for note in more]
        if timings is not None:
            source = f"{timings.source} of {PurePath(name).stem}" if len(jobs) > 1 else timings.source
            steps.append(replace(timings, source=source))
    if len(steps) > 1:
        notes.append(
            Note(
                kind=NoteKind.MIXED_RUNS,
                text=f"{len(steps)} traces with different workers or equal steps: each is judged as a job of its own",
            )
        )
    return Reading(
        steps=tuple(steps), notes=tuple(notes), inputs=tuple(inputs[path] for path in dict.fromkeys(paths))
    )


def _refused(path: str, kind: str, why: str) -> InputFile:
    return InputFile(path=path, kind=kind, read=False, why_not=why)


def _table(path: str, options: ReadOptions, num_before: int) -> tuple[InputFile, Ops]:
    if path == STDIN:
        raise InputError("Parquet cannot be read from standard input", hint="give the file")
    table = read_table(path, options)
    if num_before + len(table) > MAX_ROWS:
        raise InputError(
            f"more than {MAX_ROWS:,} operations in all files", hint="give a range: `--steps 1000:1100`"
        )
    file = FileBytes(path)
    for _ in file.pieces():
        pass
    return file.input_file(NAME), table


def _of_job(note: Note, name: str) -> Note:
    return Note(kind=note.kind, text=f"{name}: {note.text}", how=note.how)


def _jobs(tables: dict[str, Ops], notes: list[Note]) -> list[list[str]]:
    """Files that are parts of one job: equal ranks sit in equal places, and no rank tells a step in two files."""
    jobs: list[list[str]] = []
    seats_of: list[dict[int, tuple[int, int]]] = []
    told_of: list[NDArray[np.int64]] = []
    for path, ops in tables.items():
        seats, told = _seats(ops), _told(ops)
        for number, (job, job_seats, job_told) in enumerate(zip(jobs, seats_of, told_of, strict=True)):
            if any(job_seats.get(rank, seat) != seat for rank, seat in seats.items()):
                continue
            if np.array_equal(told, job_told) and _is_copy(ops, tables[job[0]]):
                notes.append(
                    Note(
                        kind=NoteKind.DUPLICATE_RANKS,
                        text=f"`{path}` is a copy of `{job[0]}`; it counts once",
                    )
                )
                break
            if not len(np.intersect1d(told, job_told, assume_unique=True)):
                job.append(path)
                job_seats.update(seats)
                told_of[number] = np.union1d(told, job_told)
                break
        else:
            jobs.append([path])
            seats_of.append(seats)
            told_of.append(told)
    return jobs


def _seats(ops: Ops) -> dict[int, tuple[int, int]]:
    rank, first = np.unique(ops.rank, return_index=True)
    return {int(each): (int(ops.dp[at]), int(ops.stage[at])) for each, at in zip(rank, first, strict=True)}


def _told(ops: Ops) -> NDArray[np.int64]:
    """Pairs of (rank, step) as one number each; both are below 2^31."""
    return np.unique((ops.rank.astype(np.int64) << 32) + ops.step)


def _is_copy(ops: Ops, other: Ops) -> bool:
    return len(ops) == len(other) and bool(
        np.array_equal(np.sort(ops.duration), np.sort(other.duration))
        and np.array_equal(np.sort(ops.start), np.sort(other.start))
    )


OP_TRACES = Reader(name=NAME, sniff=sniff, read=read)

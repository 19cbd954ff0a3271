"""Files one by one into one reading: what is wrong with one costs only that one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distdoctor.errors import InputError
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading, join
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.file_blocks import FileBlocks
from distdoctor.straggler.readers.rank_rows import FileRows
from distdoctor.straggler.readers.tables import reading_of_files

# How often `progress` is told something, in files.
_PROGRESS_EVERY = 256


def read_each(
    paths: Sequence[str],
    options: ReadOptions,
    source: str,
    read_file: Callable[[FileBlocks, ReadOptions], FileRows],
) -> Reading:
    """Every file by `read_file`, which raises InputError; all that could be read becomes one reading."""
    rows: list[FileRows] = []
    inputs: list[InputFile] = []
    notes: list[Note] = []
    for number, path in enumerate(paths):
        if options.progress and number % _PROGRESS_EVERY == 0 and number:
            options.progress(f"{number:,} of {len(paths):,} files read")
        file = FileBlocks(path)
        try:
            found = read_file(file, options)
        except InputError as error:
            inputs.append(file.input_file(source, error.in_one_line))
            continue
        if file.note is not None:
            notes.append(Note(kind=NoteKind.CUT_SHORT, text=f"`{path}`: {file.note}"))
        rows.append(found)
        inputs.append(file.input_file(source))
    return finish(rows, inputs, notes, source)


def finish(rows: Sequence[FileRows], inputs: list[InputFile], notes: list[Note], source: str) -> Reading:
    """The reading of all files; when the arrays do not fit into memory, all files are marked as not read."""
    try:
        reading = reading_of_files(rows, source)
    except InputError as error:
        why = error.in_one_line
        inputs = [
            InputFile(
                path=each.path,
                kind=each.kind,
                bytes=each.bytes,
                sha256=each.sha256,
                read=False,
                why_not=each.why_not or why,
            )
            for each in inputs
        ]
        reading = Reading(notes=(Note(kind=NoteKind.UNREADABLE, text=why),))
    return join([reading, Reading(inputs=tuple(inputs), notes=tuple(notes))])

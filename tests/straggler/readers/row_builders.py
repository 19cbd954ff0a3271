"""Rows of a small job, written as tables, JSON lines and recordings in the way that training scripts write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from distdoctor.evidence import read_head
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.recording_format import COLLECTIVES_KEY, TIMING_KEY, collectives_file, timing_file

Rows = Sequence[Mapping[str, object]]


def csv_text(rows: Rows, *, delimiter: str = ",") -> str:
    """A header with all keys in order of appearance, then a line for each row; what a row lacks is empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [delimiter.join(names)]
    lines += [delimiter.join(str(row.get(name, "")) for name in names) for row in rows]
    return "\n".join(lines) + "\n"


def jsonl_text(rows: Rows) -> str:
    """A line of JSON for each row, NaN as Python writes it."""
    return "".join(json.dumps(dict(row)) + "\n" for row in rows)


def write(folder: Path, name: str, text: str | bytes) -> str:
    """The path of a new file in `folder`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def read(reader: Reader, *paths: str, **options: object) -> Reading:
    """All paths by one reader."""
    return reader.read(paths, ReadOptions(**options))  # type: ignore[arg-type]


def sniffed(reader: Reader, path: str) -> float:
    """How sure a reader is of a file."""
    return reader.sniff(path, read_head(path))


def only(reading: Reading) -> StepTimings:
    """The timings of a reading that has exactly one, of files that were all read."""
    assert [each.why_not for each in reading.inputs if not each.read] == []
    (timings,) = reading.steps
    return timings


def why_not(reading: Reading) -> str:
    """Why the only file was refused."""
    (file,) = reading.inputs
    assert not file.read
    return file.why_not or ""


def notes_of(reading: Reading, kind: NoteKind) -> list[str]:
    """Texts of the notes of one kind."""
    return [note.text for note in reading.notes if note.kind is kind]


def job(
    *, ranks: int, steps: int, first_step: int = 0, slow_rank: int | None = None, seed: int = 1
) -> dict[Section, np.ndarray]:
    """Times in ms of a synchronous data-parallel job: the parts and the wait add up to a step that all ranks share."""
    rng = np.random.default_rng(seed)
    noise = lambda mean: mean * (1 + 0.03 * rng.standard_normal((ranks, steps)))  # noqa: E731
    data, forward, backward, optimizer = noise(3.0), noise(40.0), noise(80.0), noise(2.0)
    if slow_rank is not None:
        backward[slow_rank] *= 1.3
    own = data + forward + backward + optimizer
    wait = own.max(axis=0) - own + 5.0
    return {
        Section.DATA: data,
        Section.FORWARD: forward,
        Section.BACKWARD: backward,
        Section.OPTIMIZER: optimizer,
        Section.WAIT: wait,
        Section.STEP: np.broadcast_to(own.max(axis=0) + 5.0 + noise(1.0)[0], own.shape),
    }


class RecordingWriter:
    """Writes a rank's recording as docs/straggler-recording.md tells it, column by column."""

    def __init__(self, folder: Path, rank: int, columns: Sequence[str], **header: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / timing_file(rank)
        self._line({TIMING_KEY: 1, "rank": rank, "columns": list(columns), **header})

    def row(self, *values: int | None) -> None:
        """One step."""
        self._line(list(values))

    def event(self, kind: str, **what: object) -> None:
        """One object between rows."""
        self._line({"event": kind, **what})

    def _line(self, value: object) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(value, separators=(",", ":")) + "\n")


def collectives_text(
    rank: int, groups: Sequence[object], rows: Sequence[Sequence[int | None]], **header: object
) -> str:
    """A recording of collectives, with the two operations that most jobs have."""
    head = {
        COLLECTIVES_KEY: 1,
        "rank": rank,
        "groups": list(groups),
        "ops": ["all_reduce", "all_gather"],
        **header,
    }
    return "".join(json.dumps(line) + "\n" for line in [head, *rows])


def collectives_name(rank: int) -> str:
    """The file's name."""
    return collectives_file(rank)


def note_kinds(notes: Sequence[Note]) -> set[NoteKind]:
    """Kinds that are there."""
    return {note.kind for note in notes}

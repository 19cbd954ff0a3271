"""HF Trainer's `trainer_state.json`: losses and steps, but times of evaluation and of the whole run only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from distdoctor.errors import InputError
from distdoctor.report.model import InputFile
from distdoctor.straggler.facts.reading import Note, NoteKind, Reading
from distdoctor.straggler.facts.series import JobSeries, SeriesKind
from distdoctor.straggler.readers.base import Reader, ReadOptions
from distdoctor.straggler.readers.file_text import FileText, text_start
from distdoctor.straggler.readers.logs.drafts import Draft, Row
from distdoctor.straggler.readers.logs.formats import RECORD

KIND = "HF trainer_state.json"

SURE = 0.98

_MAX_BYTES = 256 << 20


def sniff_trainer_state(_path: str, head: bytes) -> float:
    """0 to 1: the file is HF Trainer's state."""
    if not text_start(head).startswith(b"{"):
        return 0.0
    names = (b'"log_history"', b'"global_step"', b'"is_world_process_zero"', b'"best_metric"', b'"max_steps"')
    found = sum(name in head for name in names)
    return SURE if (b'"log_history"' in head and found > 1) or found > 2 else 0.0


def read_trainer_state(paths: Sequence[str], options: ReadOptions) -> Reading:
    """A series of evaluation speed where there is one, and what the file cannot show."""
    inputs: list[InputFile] = []
    notes: list[Note] = []
    series: list[JobSeries] = []
    for path in paths:
        file = FileText(path, max_bytes=_MAX_BYTES)
        try:
            history = _history(file.whole())
        except InputError as error:
            inputs.append(file.input_file(KIND, error.in_one_line))
            continue
        inputs.append(file.input_file(KIND))
        series += _evaluations(path, history, options)
        runtime = next(
            (entry["train_runtime"] for entry in reversed(history) if "train_runtime" in entry), None
        )
        told = f", but the whole run's {runtime:,.0f} s" if isinstance(runtime, int | float) else ""
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"`{path}` holds no step times{told}: neither a change nor a slow rank can be seen in it",
                how="give the job's console log, whose progress bar has a clock; or " + RECORD,
            )
        )
    return Reading(series=tuple(series), notes=tuple(notes), inputs=tuple(inputs))


def _history(text: bytes) -> list[dict[str, object]]:
    try:
        state = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InputError(f"it is no whole JSON: {error}") from None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise InputError("it has no `log_history`")
    return [entry for entry in history if isinstance(entry, dict)]


def _evaluations(path: str, history: list[dict[str, object]], options: ReadOptions) -> tuple[JobSeries, ...]:
    draft = Draft(name="evaluation samples per second", kind=SeriesKind.RATE, unit="samples/s")
    for entry in history:
        step, rate = entry.get("step"), entry.get("eval_samples_per_second")
        if isinstance(step, int) and not isinstance(step, bool) and isinstance(rate, int | float):
            draft.add(Row(step=max(min(step, 1 << 62), -1), value=float(min(rate, 1e300))))
    return draft.build(options, source=KIND, path=path, printed_by="rank 0", host=None)


TRAINER_STATE = Reader(name="HF trainer state", sniff=sniff_trainer_state, read=read_trainer_state)

"""NeMo's step timing and Lightning's profiler table.

Training epoch 0, iteration 0/249 | lr: 1.9e-06 | global_step: 0 | … | train_step_timing in s: 7.126   (NeMo 2)
Epoch 0: : 100%|███| 100/100 [10:48<00:00, …, global_step=99.00, …, train_step_timing in s=3.130]      (NeMo 1)
"""

from __future__ import annotations

import re

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.drafts import DraftSet, Row
from distdoctor.straggler.readers.logs.formats import RECORD, Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import Line, number

_TIMING = re.compile(r"train_step_timing in s(?:=|: )([-+.\w]{1,32})")
# A bar rounds numbers to five characters: "99.00" is a step, "1.2e+3" is not.
_STEP = re.compile(r"\bglobal_step(?:=|: )(\d{1,15})(?:\.0*)?(?=[,\s\]|]|$)")
_BAR = re.compile(r"\|\s{0,8}(\d{1,12})/\d{1,12} \[")

NAME = "train_step_timing"


class NeMo(LogFormat):
    """Step timing of one file; a bar that is drawn again repeats a step."""

    name = "NeMo log"
    triggers = (b"train_step_timing in s",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._drafts = DraftSet()

    def feed(self, line: Line) -> None:
        """One line that tells the time and the step."""
        timing = _TIMING.search(line.text)
        step = _STEP.search(line.text) or _BAR.search(line.text)
        if timing is None or step is None:
            return
        utc_s, known = line.stamp()
        draft = self._drafts.draft(NAME, SeriesKind.TIME, "ms", line.source)
        draft.zone_known |= known
        draft.add(Row(step=int(step[1]), value=number(timing[1]) * 1000, utc_s=utc_s))

    def finish(self, options: ReadOptions) -> FileFacts:
        """One series."""
        series, notes = self._drafts.build(
            options,
            source=self.name,
            path=self.context.path,
            what=f"NeMo log `{self.context.path}`",
            printed_by=None,
        )
        notes = tuple(
            note for note in notes if note.kind is not NoteKind.DROPPED_VALUES or "again" not in note.text
        )
        return FileFacts(series=series, notes=notes, how=RECORD if series else None)


class LightningProfiler(LogFormat):
    """The table of Lightning's SimpleProfiler: it is there, and shows neither steps nor ranks."""

    name = "Lightning profiler table"
    triggers = (b"Profiler Report", b"Mean duration (s)")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._seen = False

    def feed(self, line: Line) -> None:
        """The head of the table."""
        self._seen |= "Mean duration (s)" in line.text

    def finish(self, options: ReadOptions) -> FileFacts:  # noqa: ARG002 - a note has no steps
        """A limit."""
        if not self._seen:
            return FileFacts()
        note = Note(
            kind=NoteKind.LIMITED,
            text=f"log `{self.context.path}`: Lightning's profiler table holds totals of one process over the whole run; "
            "neither a change nor a slow rank can be seen in it",
            how=RECORD,
        )
        return FileFacts(notes=(note,))

"""HF Trainer and LLaMA-Factory in text: progress bars, the summary at the end, `trainer_log.jsonl`.

     10%|█         | 100/1000 [03:20<30:00,  2.00s/it]
    {'train_runtime': 62.31, 'train_samples_per_second': 33.8, 'train_steps_per_second': 1.05, 'epoch': 3.0}
    {"current_steps": 900, "total_steps": 906, "loss": 0.03, "elapsed_time": "1:44:23", "remaining_time": "0:00:41"}

The rate that a bar prints is smoothed or a mean since the start, so times come from its clock instead. Bars of other
things (loading, tokenising, evaluation) have another name, unit or total: bars without a name count when they run
longest, bars named `Epoch N` or `train…` always.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import msgspec

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.clocks import LEAST_WINDOW_S, SecondsClock
from distdoctor.straggler.readers.logs.drafts import Draft, DraftSet, Row
from distdoctor.straggler.readers.logs.formats import RECORD, Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import Line, clock_seconds, number

_BAR = re.compile(
    r"(\d{1,3})%\|[^|]{0,400}\|\s{0,8}(\d{1,12})/(\d{1,12}) \[([\d:]{1,16})<[^,\]]{1,24},\s{0,8}(?:[\d.]{1,16}|\?)\s?"
    r"(?:s/it|it/s)"
)
_TRAINING = re.compile(r"(?i)\s*(?:epoch\s(\d{1,9})\b|train\w*\b)[^%|]{0,60}$")
_SUMMARY = re.compile(
    r"[{,]\s?'train_runtime': '?([\d.]{1,24})'?.{0,400}?'train_steps_per_second': '?([\d.]{1,24})"
)

_MAX_BARS = 64

WHOLE_SECONDS = f"from a clock of whole seconds, over windows of {LEAST_WINDOW_S:.0f} s or more; evaluation and checkpoints are in it"


@dataclass(slots=True)
class _Bar:
    named: bool
    total: int
    clock: SecondsClock = field(default_factory=SecondsClock)
    longest_s: float = 0.0
    draft: Draft = field(
        default_factory=lambda: Draft(
            name="time per step of the progress bar", kind=SeriesKind.TIME, unit="ms"
        )
    )


class HuggingFace(LogFormat):
    """Bars and summary of one file."""

    name = "progress bar of a trainer"
    triggers = (b"it/s", b"s/it", b"'train_runtime'")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._bars: dict[tuple[str, int], _Bar] = {}
        self._summary: tuple[float, float] | None = None

    def feed(self, line: Line) -> None:
        """A state of a bar, or the summary."""
        summary = _SUMMARY.search(line.text)
        if summary is not None:
            self._summary = (number(summary[1]), number(summary[2]))
            return
        match = _BAR.search(line.text)
        if match is None:
            return
        name = line.text[: match.start()].strip()
        training = _TRAINING.match(name)
        if name and training is None:
            return
        step, total, elapsed_s = int(match[2]), int(match[3]), clock_seconds(match[4])
        if not total or step > total or math.isnan(elapsed_s):
            return
        key = ("train" if training else "", total)
        bar = self._bars.get(key)
        if bar is None:
            if len(self._bars) >= _MAX_BARS:
                return
            bar = self._bars[key] = _Bar(named=training is not None, total=total)
        bar.longest_s = max(bar.longest_s, elapsed_s)
        if training is not None and training[1]:
            epoch_start = int(training[1]) * total
            if bar.clock.step < epoch_start:  # a new bar, whose clock begins anew
                bar.clock = SecondsClock()
            step += epoch_start
        time_ms = bar.clock.tell(step, elapsed_s)
        if time_ms is not None:
            bar.draft.add(Row(step=step, value=time_ms, utc_s=line.stamp()[0]))

    def finish(self, options: ReadOptions) -> FileFacts:
        """The training bar's times, or what the summary alone can show."""
        what = f"log `{self.context.path}`"
        bars = [bar for bar in self._bars.values() if len(bar.draft.steps) > 1]
        bars.sort(key=lambda bar: (bar.named, bar.longest_s, bar.total))
        notes: tuple[Note, ...] = ()
        if bars:
            draft = bars[-1].draft
            series = draft.build(
                options, source=self.name, path=self.context.path, printed_by=None, host=None
            )
            notes = (
                *draft.notes(what),
                Note(kind=NoteKind.LIMITED, text=f"{what}: times of the progress bar are {WHOLE_SECONDS}"),
            )
            return FileFacts(series=series, notes=notes, how=RECORD)
        if self._summary is not None:
            runtime_s, rate = self._summary
            notes = (
                Note(
                    kind=NoteKind.LIMITED,
                    text=f"{what}: HF Trainer tells the whole run only ({runtime_s:,.0f} s, {rate:g} steps/s); no step, "
                    "no rank, no change can be seen",
                    how=RECORD,
                ),
            )
        return FileFacts(notes=notes)


class LlamaFactory(LogFormat):
    """`trainer_log.jsonl`, or the same lines within a log."""

    name = "LLaMA-Factory log"
    triggers = (b'"elapsed_time"',)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._drafts = DraftSet()
        self._clock = SecondsClock()

    def feed(self, line: Line) -> None:
        """One state."""
        at = line.text.find("{")
        if at < 0 or '"current_steps"' not in line.text:
            return
        try:
            record = msgspec.json.decode(line.text[at:].rstrip().encode())
        except (msgspec.DecodeError, RecursionError, ValueError):
            return
        step, elapsed = record.get("current_steps"), record.get("elapsed_time")
        if isinstance(step, bool) or not isinstance(step, int) or not isinstance(elapsed, str):
            return
        elapsed_s = clock_seconds(elapsed)
        time_ms = self._clock.tell(step, elapsed_s) if not math.isnan(elapsed_s) and step >= 0 else None
        if time_ms is not None:
            draft = self._drafts.draft(
                "time per step of elapsed_time", SeriesKind.TIME, "ms", (None, None, None)
            )
            draft.add(Row(step=step, value=time_ms))

    def finish(self, options: ReadOptions) -> FileFacts:
        """One series."""
        what = f"LLaMA-Factory log `{self.context.path}`"
        series, notes = self._drafts.build(
            options, source=self.name, path=self.context.path, what=what, printed_by="rank 0"
        )
        if series:
            notes += (Note(kind=NoteKind.LIMITED, text=f"{what}: times are {WHOLE_SECONDS}"),)
        return FileFacts(series=series, notes=notes, how=RECORD if series else None)

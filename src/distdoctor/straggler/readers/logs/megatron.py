"""Iteration lines of Megatron-LM and its forks, from 2019 to today, with the timer lines of old versions as splits.

The last rank prints them for the whole job, after a barrier: the time is that of every rank. Forms that were seen:

     iteration       10/    1000 | elapsed time per iteration (ms): 19932.4 | learning rate: …           (2019)
     iteration       10/    1000 | consumed samples: 40 | elapsed time per iteration (ms): 19932.4 | …   (2020)
     [2025-08-01 07:19:37] iteration 1/ 5000 | consumed samples: 128 | elapsed time per iteration (ms): … (2023)
     iteration 5/ 9 | consumed tokens: … | elapsed time per iteration (s): 115.73 | …                    (BLOOM)
    time (ms) | forward: 35346.30 | backward: 87957.05 | … | batch generator: 10.47                      (to 2022)
"""

from __future__ import annotations

import re

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.deepspeed import is_deepspeed_timer
from distdoctor.straggler.readers.logs.drafts import DraftSet, Row, Source
from distdoctor.straggler.readers.logs.formats import Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import Line, number

ALL_RANKS = (
    "run with `--timing-log-level 2 --timing-log-option all`: Megatron-LM then prints the timers of every rank; or "
    "record the times: `torchrun … -m distdoctor straggler record -- pretrain.py`"
)

_ELAPSED = re.compile(r"elapsed time per iteration \((ms|s)\):\s{0,20}([-+.\w]{1,32})")
_ITERATION = re.compile(r"iteration:?\s{1,20}(\d{1,15})\s{0,20}/\s{0,20}\d{1,15}\s{0,20}\|")
_BATCH = re.compile(r"global batch size:\s{0,20}(\d{1,9})\b")
_TIMER = re.compile(r"\|\s?([A-Za-z][\w /-]{0,60}):\s{0,20}([-+.\deE]{1,32})(?=\s|\||$)")

# Names of parts that every log means in the same way.
_PARTS = {
    "batch-generator": "data",
    "batch generator": "data",
    "forward-compute": "forward",
    "backward-compute": "backward",
}

NAME = "elapsed time per iteration"
RATE_NAME = "global batch size / elapsed time per iteration"


class MegatronIterations(LogFormat):
    """Iteration lines; each waits for the timer line that may follow it."""

    name = "Megatron-LM log"
    triggers = (b"elapsed time per iteration", b"time (ms) |")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._drafts = DraftSet()
        self._waiting: dict[Source, tuple[Row, bool, int | None]] = {}
        self._batches: dict[Source, set[int]] = {}
        self._rates = DraftSet()

    def feed(self, line: Line) -> None:
        """An iteration line, or a timer line that belongs to the one before it."""
        match = _ELAPSED.search(line.text)
        if match is None:
            self._timers(line)
            return
        at = line.text.rfind("iteration", 0, match.start())
        numbered = _ITERATION.match(line.text, at) if at >= 0 else None
        if numbered is None:
            return
        self._commit(line.source)
        utc_s, zone_known = line.stamp()
        value = number(match[2]) * (1000.0 if match[1] == "s" else 1.0)
        row = Row(step=int(numbered[1]), value=value, utc_s=utc_s)
        batch = _BATCH.search(line.text)
        self._waiting[line.source] = (row, zone_known, int(batch[1]) if batch else None)
        self.context.iteration, self.context.iteration_ms = row.step, value

    def _timers(self, line: Line) -> None:
        waiting = self._waiting.get(line.source)
        if waiting is None:
            return
        timers = {name.strip(): number(value) for name, value in _TIMER.findall(line.text)}
        if not timers or any(is_deepspeed_timer(name) for name in timers):
            return
        row = waiting[0]
        row.splits = {
            **(row.splits or {}),
            **{_PARTS.get(name, name): value for name, value in timers.items()},
        }

    def _commit(self, source: Source) -> None:
        waiting = self._waiting.pop(source, None)
        if waiting is None:
            return
        row, zone_known, batch = waiting
        draft = self._drafts.draft(NAME, SeriesKind.TIME, "ms", source)
        draft.zone_known |= zone_known
        draft.add(row)
        if batch and row.value > 0:
            batches = self._batches.setdefault(source, set())
            if len(batches) < 64:
                batches.add(batch)
            rate = self._rates.draft(RATE_NAME, SeriesKind.RATE, "samples/s", source)
            rate.zone_known |= zone_known
            rate.add(Row(step=row.step, value=batch * 1000.0 / row.value, utc_s=row.utc_s))

    def finish(self, options: ReadOptions) -> FileFacts:
        """The times; with a batch size that changes, the samples per second beside them."""
        for source in list(self._waiting):
            self._commit(source)
        path = self.context.path
        what = f"Megatron-LM log `{path}`"
        series, notes = self._drafts.build(
            options, source=self.name, path=path, what=what, printed_by="the last rank"
        )
        sizes = sorted(set().union(*self._batches.values()))
        if len(sizes) > 1:
            rates, _ = self._rates.build(
                options, source=self.name, path=path, what=what, printed_by="the last rank"
            )
            series += rates
            notes += (
                Note(
                    kind=NoteKind.LIMITED,
                    text=f"{what}: the global batch size changes ({sizes[0]} to {sizes[-1]}), so iterations take "
                    "longer or shorter by plan; compare samples per second",
                ),
            )
        return FileFacts(series=series, notes=notes, how=ALL_RANKS if series else None)

"""Metrics that TorchTitan prints on its console: tokens per second and GPU of the rank that prints.

    [rank0]:[titan] 2025-12-17 01:19:34,836 - root - INFO - step: 10  loss: 11.5838  grad_norm: 9.6145  memory: …
        tps: 6,526  tflops: 329.40  mfu: 33.31%                                                             (one line)

Versions before 2025 print `wps` for `tps`. Ranks step together, so the rates of several ranks are one and the same
number. Behind torchrun's `--role rank` the prefix `[rank3]` counts within a host.
"""

from __future__ import annotations

import re

from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.drafts import DraftSet, Row
from distdoctor.straggler.readers.logs.formats import RECORD, Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import Line, number

_STEP = re.compile(r"(?<![\w-])(validate )?step:\s{1,10}(\d{1,15})\s{1,4}\S")
_RATE = re.compile(r"\b(?:tps|wps):\s{1,10}([\d,.]{1,32})")


class TorchTitan(LogFormat):
    """Metric lines of one file; those of validation are left out."""

    name = "TorchTitan log"
    triggers = (b"tps: ", b"wps: ")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._drafts = DraftSet()

    def feed(self, line: Line) -> None:
        """One metric line."""
        step, rate = _STEP.search(line.text), _RATE.search(line.text)
        if step is None or rate is None or step[1] or rate.start() < step.end():
            return
        utc_s, known = line.stamp()
        draft = self._drafts.draft("tokens per second and GPU", SeriesKind.RATE, "tokens/s", line.source)
        draft.zone_known |= known
        draft.add(Row(step=int(step[2]), value=number(rate[1]), utc_s=utc_s))

    def finish(self, options: ReadOptions) -> FileFacts:
        """One series."""
        series, notes = self._drafts.build(
            options,
            source=self.name,
            path=self.context.path,
            what=f"TorchTitan log `{self.context.path}`",
            printed_by=None,
        )
        how = (
            "TorchTitan writes times of every rank to `structured_logs/`: give that folder; or " + RECORD
            if series
            else None
        )
        return FileFacts(series=series, notes=notes, how=how)

"""Step times of nanoGPT and its relatives; rank 0 prints them.

    iter 100: loss 3.4821, time 512.33ms, mfu 38.20%                                                        (nanoGPT)
    step:250/6000 train_loss:5.5125 train_time:62330ms step_avg:259.71ms                             (modded-nanogpt)
    step:250/6000 val_loss:5.4710 train_time:62330ms step_avg:259.71ms
    step  100/19560 | loss 6.1 (+1.2z)| norm 0.9 (…)| lr 1e-04 | 530.77 ms | 55.0% bf16 MFU | 987654 tok/s     (llm.c)
    step   100 | loss: 6.1 | lr 1e-04 | norm: 0.98 | dt: 530.77ms | tok/sec: 987654                     (build-nanogpt)

modded-nanogpt: `train_time` is a clock that runs on, so a step's time is the difference of two lines; `step_avg` is a
mean since the start and hides every spike. Lines of validation repeat a step and are left out. Some versions set the
clock back after some steps of warm-up: no time is told across that.
"""

from __future__ import annotations

import re

from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.drafts import DraftSet, Row, Source
from distdoctor.straggler.readers.logs.formats import RECORD, Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import Line, number

_CLOCK = re.compile(r"\bstep:(\d{1,15})/\d{1,15}\s(.{0,200}?)\btrain_time:([\d.]{1,24})(ms|s)\b")
_TIMES = (
    re.compile(r"\biter (\d{1,15}): loss [-+.\w]{1,32}, time ([\d.]{1,24})(ms)\b"),
    re.compile(r"\bstep\s{1,12}(\d{1,15})/\d{1,15} \| .{0,200}?\|\s{0,8}([\d.]{1,24}) (ms) \|"),
    re.compile(r"\bstep\s{1,12}(\d{1,15}) \| .{0,200}?\bdt:\s{0,8}([\d.]{1,24})(ms)\b"),
)

NAME = "step time"


class NanoGpt(LogFormat):
    """Lines of one file."""

    name = "nanoGPT log"
    triggers = (b"train_time:", b", time ", b" tok/s", b"dt:")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._drafts = DraftSet()
        self._before: dict[Source, tuple[int, float]] = {}

    def feed(self, line: Line) -> None:
        """One line of a step."""
        clock = _CLOCK.search(line.text)
        if clock is not None:
            self._clock(
                line, int(clock[1]), number(clock[3]) * (1000 if clock[4] == "s" else 1), "val_" in clock[2]
            )
            return
        for form in _TIMES:
            match = form.search(line.text)
            if match is not None:
                self._add(line, int(match[1]), number(match[2]))
                return

    def _clock(self, line: Line, step: int, clock_ms: float, is_validation: bool) -> None:
        before = self._before.get(line.source)
        if is_validation and before is not None:
            return
        self._before[line.source] = (step, clock_ms)
        if before is None:
            return
        steps, passed = step - before[0], clock_ms - before[1]
        if steps > 0 and passed >= 0:
            self._add(line, step, passed / steps)

    def _add(self, line: Line, step: int, time_ms: float) -> None:
        utc_s, known = line.stamp()
        draft = self._drafts.draft(NAME, SeriesKind.TIME, "ms", line.source)
        draft.zone_known |= known
        draft.add(Row(step=step, value=time_ms, utc_s=utc_s))

    def finish(self, options: ReadOptions) -> FileFacts:
        """One series."""
        series, notes = self._drafts.build(
            options,
            source=self.name,
            path=self.context.path,
            what=f"nanoGPT log `{self.context.path}`",
            printed_by="rank 0",
        )
        return FileFacts(series=series, notes=notes, how=RECORD if series else None)

"""DeepSpeed's throughput lines and its wall clock breakdown, both of rank 0.

    [2023-04-18 01:46:59,171] [INFO] [timer.py:199:stop] epoch=0/micro_step=10/global_step=10,
        RunningAvgSamplesPerSec=173.44, CurrSamplesPerSec=171.97, MemAllocated=3.96GB, MaxMemAllocated=22.95GB  (one line)
    [Rank 0] time (ms) | fwd: 6567.66 | bwd: 17950.35 | bwd_inner: 17711.19 | bwd_allreduce: 239.11 | step: 1139.29

CurrSamplesPerSec is the global batch size over the time of the last step alone (deepspeed/utils/timer.py resets it at
each step), also when a line is printed only every 10 steps: the steps between are not seen. RunningAvgSamplesPerSec
is a mean since the start and hides what happens; it is not used.
"""

from __future__ import annotations

import re

from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.drafts import DraftSet, Row, Source
from distdoctor.straggler.readers.logs.formats import RECORD, Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import Line, number

_RATE = re.compile(r"global_step=(\d{1,15}),.{0,120}?\bCurrSamplesPerSec=([-+.\w]{1,40})")
_STEP = re.compile(r"\bstep=(\d{1,15}), skipped=")
_TIMER = re.compile(r"\|\s?([a-z]\w{1,60}):\s{0,20}([-+.\deE]{1,32})(?=\s|\||$)")

RATE_NAME = "CurrSamplesPerSec"
BREAKDOWN_NAME = "wall clock breakdown (forward + backward + step)"

# Timers of a whole step; with gradient accumulation those of single micro-batches ("…_microstep") are printed too.
_GLOBAL = {
    "fwd": "forward",
    "forward": "forward",
    "bwd": "backward",
    "backward": "backward",
    "step": "optimizer",
}
_INSIDE = {
    "bwd_inner": "backward without all-reduce",
    "backward_inner": "backward without all-reduce",
    "bwd_allreduce": "all-reduce",
    "backward_allreduce": "all-reduce",
}


def is_deepspeed_timer(name: str) -> bool:
    """Whether DeepSpeed prints a timer of this name in a `time (ms) |` line; Megatron-LM prints such lines too."""
    return (
        name in ("fwd", "bwd", "step")
        or name in _INSIDE
        or name.endswith("_microstep")
        or name.startswith(("optimizer_", "init_optimizer", "fwd_", "bwd_", "selective_optimizer", "_step"))
    )


class DeepSpeed(LogFormat):
    """Throughput and breakdown of one file."""

    name = "DeepSpeed log"
    triggers = (b"CurrSamplesPerSec=", b"time (ms) |", b", skipped=")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._drafts = DraftSet()
        self._step: dict[Source, int] = {}

    def feed(self, line: Line) -> None:
        """One line of the timer, of the breakdown, or of the optimizer, which tells the step of a breakdown."""
        if "CurrSamplesPerSec=" in line.text:
            match = _RATE.search(line.text)
            if match is None:
                return
            self._step[line.source] = int(match[1])
            draft = self._drafts.draft(RATE_NAME, SeriesKind.RATE, "samples/s", line.source)
            utc_s, known = line.stamp()
            draft.zone_known |= known
            draft.add(Row(step=int(match[1]), value=number(match[2]), utc_s=utc_s))
        elif "time (ms) |" in line.text:
            self._breakdown(line)
        else:
            match = _STEP.search(line.text)
            if match is not None:
                self._step[line.source] = int(match[1])

    def _breakdown(self, line: Line) -> None:
        timers = {name: number(value) for name, value in _TIMER.findall(line.text)}
        parts = {_GLOBAL[name]: value for name, value in timers.items() if name in _GLOBAL}
        step = self._step.get(line.source)
        if step is None or not {"forward", "backward", "optimizer"} <= set(parts):
            return
        splits = {**parts, **{_INSIDE[name]: value for name, value in timers.items() if name in _INSIDE}}
        utc_s, known = line.stamp()
        draft = self._drafts.draft(BREAKDOWN_NAME, SeriesKind.TIME, "ms", line.source)
        draft.zone_known |= known
        draft.add(Row(step=step, value=sum(parts.values()), utc_s=utc_s, splits=splits))

    def finish(self, options: ReadOptions) -> FileFacts:
        """Both series."""
        series, notes = self._drafts.build(
            options,
            source=self.name,
            path=self.context.path,
            what=f"DeepSpeed log `{self.context.path}`",
            printed_by="rank 0",
            steps_per_value={RATE_NAME: 1},
        )
        return FileFacts(series=series, notes=notes, how=RECORD if series else None)

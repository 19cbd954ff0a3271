"""DLRover's event log, one file a rank: the end of an event less its begin is a time.

    [2025-04-21T23:53:58.607288] [426] [4158e1da] [AtorchTrainerV2] [#step] [BEGIN] {"global_step": 177019, …}
    [2025-04-21T23:54:19.126514] [426] [4158e1da] [AtorchTrainerV2] [#step] [END] {"global_step": 177020, …}

Begin and end are paired by the event's id. The rank stands in the file's name: `events_<rank>.log`.
"""

from __future__ import annotations

import re
from array import array
from pathlib import PurePath

import numpy as np

from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.drafts import MAX_VALUES, DraftSet, Row
from distdoctor.straggler.readers.logs.formats import RECORD, Context, FileFacts, LogFormat, RankWall
from distdoctor.straggler.readers.logs.lines import NAN, Line, time_of
from distdoctor.straggler.readers.logs.megatron_args import MAX_RANKS

_EVENT = re.compile(
    r"\[(?P<time>[\dT:.+ Z-]{19,40})\] \[\d{1,12}\] \[(?P<id>[\w-]{1,64})\] \[[^\]]{0,128}\] \[#?(?P<name>[\w.-]{1,64})\] "
    r"\[(?P<phase>BEGIN|END)\](?P<rest>.*)"
)
_STEP = re.compile(r'"global_step": (\d{1,15})')
_RANK = re.compile(r"events?[_-](\d{1,7})(?:\D|$)")

# Events that began and never ended: a crash at each start leaves some.
_MAX_OPEN = 10_000


class DlRover(LogFormat):
    """Steps and checkpoints of one rank."""

    name = "DLRover event log"
    triggers = (b"] [BEGIN]", b"] [END]")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._open: dict[str, float] = {}
        self._drafts = DraftSet()
        self._steps = array("q")
        self._times = array("d")
        self._began = array("d")
        match = _RANK.search(PurePath(context.path).name)
        self._rank = int(match[1]) if match and int(match[1]) < MAX_RANKS else None

    def feed(self, line: Line) -> None:
        """A begin or an end."""
        match = _EVENT.search(line.whole)
        if match is None or match["name"] not in ("step", "save"):
            return
        when, known = time_of(match["time"])
        if match["phase"] == "BEGIN":
            if len(self._open) < _MAX_OPEN:
                self._open[match["id"]] = when
            return
        began = self._open.pop(match["id"], NAN)
        step = _STEP.search(match["rest"])
        if step is None or not when >= began:
            return
        is_step = match["name"] == "step"
        draft = self._drafts.draft(
            "step" if is_step else "checkpoint save", SeriesKind.TIME, "ms", (None, None, None)
        )
        draft.zone_known |= known
        draft.add(Row(step=int(step[1]), value=(when - began) * 1000, utc_s=when))
        if is_step and len(self._steps) < MAX_VALUES:
            self._steps.append(int(step[1]))
            self._times.append((when - began) * 1000)
            self._began.append(began)

    def finish(self, options: ReadOptions) -> FileFacts:
        """Series of this file, and its steps for those who read other ranks' files too."""
        who = None if self._rank is None else f"rank {self._rank}"
        series, notes = self._drafts.build(
            options,
            source=self.name,
            path=self.context.path,
            what=f"DLRover log `{self.context.path}`",
            printed_by=who,
        )
        walls: tuple[RankWall, ...] = ()
        if self._rank is not None and len(self._steps):
            walls = (
                RankWall(
                    rank=self._rank,
                    steps=np.array(self._steps, dtype=np.int64),
                    times_ms=np.array(self._times, dtype=np.float64),
                    utc_s=np.array(self._began, dtype=np.float64),
                ),
            )
        return FileFacts(series=series, notes=notes, walls=walls, how=RECORD if series else None)

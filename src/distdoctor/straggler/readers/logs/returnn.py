"""RETURNN's step lines, which every rank prints: wall times of each rank.

    [default0]:ep 1 train, step 10, ce 1.5, num_seqs 12, mem_usage:cuda:0 52.8GB, 0.717 sec/step, elapsed 0:06:53, …

Steps begin anew in each epoch; they are counted on. Ranks are told apart by torchrun's prefix, else by the device. A
time is that of the whole step, so it holds the waiting for others.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field

import numpy as np

from distdoctor.straggler.facts.series import SeriesKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.drafts import MAX_VALUES, DraftSet, Row
from distdoctor.straggler.readers.logs.formats import RECORD, Context, FileFacts, LogFormat, RankWall
from distdoctor.straggler.readers.logs.lines import Line, number, rank_in

_STEP = re.compile(r"\bep (\d{1,9}) train, step (\d{1,12}),")
_TIME = re.compile(r"\b([\d.]{1,24}) sec/step\b")
_DEVICE = re.compile(r"\bmem_usage:cuda:(\d{1,4})\b")

_MAX_RANKS_OF_A_FILE = 4096

NAME = "sec/step"


@dataclass(slots=True)
class _OneRank:
    epoch: int = 0
    offset: int = 0
    last: int = -1
    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    utc_s: array[float] = field(default_factory=lambda: array("d"))


class Returnn(LogFormat):
    """Steps of all ranks in one file."""

    name = "RETURNN log"
    triggers = (b" sec/step",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._ranks: dict[tuple[str | None, int], _OneRank] = {}
        self._drafts = DraftSet()

    def feed(self, line: Line) -> None:
        """One step of one rank."""
        step, time = _STEP.search(line.text), _TIME.search(line.text)
        if step is None or time is None:
            return
        device = _DEVICE.search(line.text)
        rank = rank_in(line.who)
        if rank is None:
            rank = int(device[1]) if device else 0
        key = (line.host or line.pod, rank)
        one = self._ranks.get(key)
        if one is None:
            if len(self._ranks) >= _MAX_RANKS_OF_A_FILE:
                return
            one = self._ranks[key] = _OneRank(epoch=int(step[1]))
        if int(step[1]) > one.epoch:
            one.epoch, one.offset = int(step[1]), one.offset + one.last + 1
            one.last = -1
        one.last = max(one.last, int(step[2]))
        time_ms = number(time[1]) * 1000
        utc_s, _ = line.stamp()
        counted = one.offset + int(step[2])
        source = (line.host, line.pod, line.who or f"rank {rank}")
        self._drafts.draft(NAME, SeriesKind.TIME, "ms", source).add(
            Row(step=counted, value=time_ms, utc_s=utc_s)
        )
        if len(one.steps) < MAX_VALUES and 0 <= time_ms < 1e9:
            one.steps.append(counted)
            one.times.append(time_ms)
            one.utc_s.append(utc_s)

    def finish(self, options: ReadOptions) -> FileFacts:
        """Walls by rank; with several hosts in one file ranks have no number, and a single series is told."""
        series, notes = self._drafts.build(
            options,
            source=self.name,
            path=self.context.path,
            what=f"RETURNN log `{self.context.path}`",
            printed_by=None,
        )
        walls: tuple[RankWall, ...] = ()
        if len({host for host, _ in self._ranks}) == 1:
            walls = tuple(
                RankWall(
                    rank=rank,
                    steps=np.array(one.steps, dtype=np.int64),
                    times_ms=np.array(one.times, dtype=np.float64),
                    utc_s=np.array(one.utc_s, dtype=np.float64),
                )
                for (_, rank), one in sorted(self._ranks.items(), key=lambda item: item[0][1])
                if len(one.steps)
            )
        return FileFacts(series=series, notes=notes, walls=walls, how=RECORD if series else None)

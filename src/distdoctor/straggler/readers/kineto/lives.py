"""Traces of several runs in one folder: of a job that was started again, or of two runs of one size.

A run goes through its steps once, and its ranks do a step at one time. One rank's traces stand on one clock: where
steps go back, the job was started again. Ranks of one host share a clock: of one run they did the same steps at the same
time. Clocks of different hosts may be off by minutes, so runs are told apart there only by much longer gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.readers.kineto.ranks import host_of_name
from distdoctor.straggler.readers.kineto.trace import Trace
from distdoctor.straggler.readers.rank_words import named_ranks
from distdoctor.units import format_seconds

# Ranks of one host that do the same steps of one run are apart by less: a process that is started again needs longer
# to import torch alone. Our own threshold.
SAME_CLOCK_S = 2.0

# Clocks of hosts without NTP are off by minutes. A gap beyond this, and beyond so many times what was recorded, is
# between two runs. Our own thresholds.
OTHER_CLOCK_S = 600.0
OTHER_CLOCK_LENGTHS = 10.0

# A part of a run is compared with so many runs. Our own bound: nobody reads a report over more.
_MAX_COMPARED = 64


@dataclass(slots=True)
class _Part:
    """Some traces of one run: of one rank, of one host, of all."""

    traces: list[Trace]
    begin_s: float
    end_s: float
    first: int
    last: int
    ranks: set[int] = field(default_factory=set)
    clocks: set[str] = field(default_factory=set)

    def add(self, other: _Part) -> None:
        """Further traces of this run."""
        self.traces += other.traces
        self.begin_s, self.end_s = min(self.begin_s, other.begin_s), max(self.end_s, other.end_s)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.ranks |= other.ranks
        self.clocks |= other.clocks

    def gap_s(self, other: _Part) -> float:
        """How long there was nothing between both; 0 where they overlap."""
        return max(0.0, other.begin_s - self.end_s, self.begin_s - other.end_s)


def newest_run(traces: Sequence[Trace]) -> tuple[list[Trace], list[Trace], tuple[Note, ...]]:
    """Traces of the newest run that has all ranks, those of other runs, and a note about these.

    Where no run has all ranks it is the one with most. Traces without a time or a rank are kept.
    """
    timed = [trace for trace in traces if trace.rank is not None and np.isfinite(trace.begin_s)]
    runs = _runs(timed)
    if len(runs) < 2:
        return list(traces), [], ()
    world_size = max((trace.header.world_size or 0 for trace in timed), default=0)
    most = world_size or max(len(run.ranks) for run in runs)
    used = max(runs, key=lambda run: (min(len(run.ranks), most), run.begin_s))
    others = [run for run in runs if run is not used]
    aside = {id(trace) for run in others for trace in run.traces}
    return (
        [trace for trace in traces if id(trace) not in aside],
        [trace for trace in traces if id(trace) in aside],
        (_note(used, others, is_complete=len(used.ranks) >= most),),
    )


def _runs(traces: Sequence[Trace]) -> list[_Part]:
    by_rank: dict[int, list[Trace]] = {}
    for trace in traces:
        if trace.rank is not None:
            by_rank.setdefault(trace.rank, []).append(trace)
    by_clock: dict[str, list[_Part]] = {}
    for rank, several in by_rank.items():
        for part in _of_rank(rank, several):
            by_clock.setdefault(next(iter(part.clocks)), []).append(part)
    hosts = [_of_host(parts) for parts in by_clock.values()]
    return _in_order(hosts) or _by_time(part for parts in hosts for part in parts)


def _of_rank(rank: int, traces: Iterable[Trace]) -> list[_Part]:
    """Traces of one rank, a new part where steps go back."""
    parts: list[_Part] = []
    for trace in sorted(traces, key=lambda each: each.begin_s):
        part = _Part(
            [trace],
            trace.begin_s,
            trace.end_s,
            trace.first_step,
            trace.last_step,
            {rank},
            {_clock(trace, rank)},
        )
        if parts and (part.first > parts[-1].last or part.begin_s <= parts[-1].end_s):
            parts[-1].add(part)
        else:
            parts.append(part)
    return parts


def _clock(trace: Trace, rank: int) -> str:
    """Ranks whose host is not known have clocks of their own."""
    host = trace.header.host or host_of_name(trace.path)
    return f"host {host}" if host is not None else f"rank {rank}"


def _of_host(parts: Iterable[_Part]) -> list[_Part]:
    runs: list[_Part] = []
    for part in sorted(parts, key=lambda each: each.begin_s):
        run = runs[-1] if runs else None
        if run is None or run.ranks & part.ranks or not _fits(run, part, SAME_CLOCK_S):
            runs.append(_copy(part))
        else:
            run.add(part)
    return runs


def _in_order(hosts: Sequence[Sequence[_Part]]) -> list[_Part]:
    """The n-th run of each host together, where all hosts have as many and no clock speaks against it; else none."""
    if len({len(parts) for parts in hosts}) != 1:
        return []
    runs = []
    for parts in zip(*hosts, strict=True):
        run = _copy(parts[0])
        for part in parts[1:]:
            if run.ranks & part.ranks or not _fits(run, part, _offset_s(run, part)):
                return []
            run.add(part)
        runs.append(run)
    return runs


def _by_time(parts: Iterable[_Part]) -> list[_Part]:
    runs: list[_Part] = []
    for part in sorted(parts, key=lambda each: each.begin_s):
        fitting = [
            run
            for run in runs[-_MAX_COMPARED:]
            if not run.clocks & part.clocks
            and not run.ranks & part.ranks
            and _fits(run, part, _offset_s(run, part))
        ]
        if fitting:
            min(fitting, key=part.gap_s).add(part)
        else:
            runs.append(_copy(part))
    return runs


def _fits(run: _Part, part: _Part, tolerance_s: float) -> bool:
    """Whether both may be of one run: at one time, or later steps later."""
    earlier, later = (run, part) if run.begin_s <= part.begin_s else (part, run)
    return run.gap_s(part) <= tolerance_s or later.first > earlier.last


def _offset_s(one: _Part, other: _Part) -> float:
    longest = max(one.end_s - one.begin_s, other.end_s - other.begin_s)
    return max(OTHER_CLOCK_S, OTHER_CLOCK_LENGTHS * longest)


def _copy(part: _Part) -> _Part:
    return _Part(
        list(part.traces), part.begin_s, part.end_s, part.first, part.last, set(part.ranks), set(part.clocks)
    )


def _note(used: _Part, others: Sequence[_Part], *, is_complete: bool) -> Note:
    nearest = max(others, key=lambda run: run.begin_s)
    apart = format_seconds(used.gap_s(nearest))
    when = "before" if nearest.begin_s < used.begin_s else "after"
    num = sum(len(run.traces) for run in others)
    chosen = "the newest that has all ranks" if is_complete else "the one with most ranks"
    return Note(
        kind=NoteKind.MIXED_RUNS,
        text=f"traces of {len(others) + 1} runs are mixed, as after a restart: the same steps were done at different "
        f"times; {chosen} is used ({named_ranks(used.ranks)}, steps {used.first} to {used.last}), and {num} "
        f"trace{'s' if num > 1 else ''} {'are' if num > 1 else 'is'} set aside, as "
        f"`{PurePath(nearest.traces[0].path).name}` of {named_ranks(nearest.ranks)}, {apart} {when}",
        how="give the traces of one run",
    )

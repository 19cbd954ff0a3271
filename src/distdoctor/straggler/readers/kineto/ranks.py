"""Which rank a file is of, and which of several files of one rank count."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

import numpy as np

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.readers.kineto.trace import Trace
from distdoctor.straggler.readers.rank_words import named_ranks

# `rank-3.json`, `rank3_trace.json`, `trace_rank_3.json.gz`, `rank_3/trace.json`; a local rank is one of its host.
_NAMED_RANK = re.compile(r"(?<![a-z])(?<!local[-_ .])rank[-_ .]?(\d{1,6})(?!\d)", re.IGNORECASE)
# `worker3_step_12.169.pt.trace.json`; of `worker0_rank3.json` the rank counts.
_NAMED_WORKER = re.compile(r"(?<![a-z])worker[-_ .]?(\d{1,6})(?!\d)", re.IGNORECASE)
# `trace_3.json`: only when the names of all files count from 0, since it could be a process id or a step.
_LAST_NUMBER = re.compile(r"(?<![a-z])(\d{1,6})(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$", re.IGNORECASE)
_OTHER_NUMBER = re.compile(r"(?:step|iter|iteration|epoch|pid)[-_ ]?\d+[^/]*$", re.IGNORECASE)
# What torch's `tensorboard_trace_handler` calls a file by itself: host, process id, time.
_HOST_AND_PID = re.compile(r"^(.+)_\d{1,7}\.\d{10,20}\.pt\.trace\.json(?:\.gz)?$")

# Two recordings of one rank do not begin within so many seconds of one another. Our own threshold: times in a trace
# are exact to a microsecond.
SAME_MOMENT_S = 1e-4


def ranks_of_names(paths: Sequence[str]) -> list[int | None]:
    """The rank that each file's name tells, for traces that do not tell it themselves."""
    named = [_named_rank(path) for path in paths]
    if any(rank is not None for rank in named):
        return named
    last = [_last_number(path) for path in paths]
    counts = sorted(rank for rank in last if rank is not None)
    return last if len(paths) > 1 and counts == list(range(len(paths))) else named


def host_of_name(path: str) -> str | None:
    """The host in the name that torch's TensorBoard handler gives a trace."""
    match = _HOST_AND_PID.match(PurePath(path).name)
    return (
        match[1]
        if match and not any(each.search(match[1]) for each in (_NAMED_RANK, _NAMED_WORKER))
        else None
    )


def _named_rank(path: str) -> int | None:
    parts = PurePath(path).parts[-2:]
    for pattern in (_NAMED_RANK, _NAMED_WORKER):
        for part in reversed(parts):
            match = pattern.search(part)
            if match:
                return int(match[1])
    return None


def _last_number(path: str) -> int | None:
    name = PurePath(path).name
    match = _LAST_NUMBER.search(name)
    return int(match[1]) if match and not _OTHER_NUMBER.search(name) else None


def one_run(traces: Sequence[Trace]) -> tuple[list[Trace], list[Trace], tuple[Note, ...]]:
    """Traces of one size of the job, by the world size that they tell; others, and a note.

    Of sizes of which all ranks are here the one that ran last, as after a job went on with fewer ranks; else the one
    with most traces.
    """
    by_size: dict[int, list[Trace]] = {}
    for trace in traces:
        if trace.header.world_size is not None:
            by_size.setdefault(trace.header.world_size, []).append(trace)
    if len(by_size) < 2:
        return list(traces), [], ()
    used = max(sorted(by_size, reverse=True), key=lambda size: _worth(size, by_size[size]))
    kept = [trace for trace in traces if trace.header.world_size in (None, used)]
    others = [trace for trace in traces if trace.header.world_size not in (None, used)]
    counted = ", ".join(f"{len(by_size[size])} of {size} ranks" for size in sorted(by_size))
    note = Note(
        kind=NoteKind.MIXED_RUNS,
        text=f"traces of different runs are mixed ({counted}); those of {used} ranks are used",
        how="give the traces of one run",
    )
    return kept, others, (note,)


def _worth(size: int, traces: Sequence[Trace]) -> tuple[bool, float, int]:
    """Whether all ranks of a job of this size are here, when the last of them began, and how many traces there are."""
    is_complete = len({trace.rank for trace in traces if trace.rank is not None}) >= size
    begins = [trace.begin_s for trace in traces if np.isfinite(trace.begin_s)]
    return is_complete, max(begins, default=-np.inf) if is_complete else -np.inf, len(traces)


def one_of_each(traces: Sequence[Trace]) -> tuple[list[Trace], list[tuple[Trace, Trace]], tuple[Note, ...]]:
    """Of several traces of one rank those whose steps differ; where steps are the same, the later one counts.

    So a profiler that records every thousandth step is read whole. Also returned: each trace that does not count, with
    the one that counts instead.
    """
    by_rank: dict[int, list[Trace]] = {}
    for trace in traces:
        if trace.rank is not None:
            by_rank.setdefault(trace.rank, []).append(trace)
    kept: list[Trace] = []
    dropped: list[tuple[Trace, Trace]] = []
    for several in by_rank.values():
        chosen: list[Trace] = []
        for trace in sorted(several, key=_lateness, reverse=True):
            same = next((each for each in chosen if _shares_steps(trace, each)), None)
            if same is None:
                chosen.append(trace)
            else:
                dropped.append((trace, same))
        kept += chosen
    return kept, dropped, (_note_again([trace for trace, _ in dropped]),) if dropped else ()


def are_copies(one: Trace, other: Trace) -> bool:
    """Whether two traces of one rank are the same recording: no rank begins two at one moment."""
    if not np.isfinite(one.begin_s):
        return one.input_file.sha256 is not None and one.input_file.sha256 == other.input_file.sha256
    return abs(one.begin_s - other.begin_s) < SAME_MOMENT_S and bool(np.array_equal(one.steps, other.steps))


def _note_again(dropped: Sequence[Trace]) -> Note:
    ranks = sorted({trace.rank for trace in dropped if trace.rank is not None})
    return Note(
        kind=NoteKind.DUPLICATE_RANKS,
        text=f"{named_ranks(ranks)} {'have' if len(ranks) > 1 else 'has'} several traces of the "
        f"same steps; the later ones are used, not `{PurePath(dropped[0].path).name}`"
        + (f" and {len(dropped) - 1} others" if len(dropped) > 1 else ""),
        how="give the traces of one run",
    )


def _lateness(trace: Trace) -> tuple[bool, float, int, str]:
    """By the time of its first step; without one, by how many steps it has, then by name."""
    known = bool(np.isfinite(trace.begin_s))
    return (known, trace.begin_s if known else 0.0, len(trace.steps), trace.path)


def _shares_steps(one: Trace, other: Trace) -> bool:
    return len(one.steps) == 0 or bool(np.isin(one.steps, other.steps).any())

"""What is odd about a set of traces, and what they can never show, in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.readers.kineto.match import MAX_ROWS
from distdoctor.straggler.readers.kineto.trace import Trace
from distdoctor.straggler.readers.rank_words import named_ranks
from distdoctor.units import fold_ints

# Less of a step than this hides no slow rank that counts. Our own threshold: the least effect that is told.
MIN_HIDDEN = 0.03

# Names of files that a note lists.
_MAX_NAMES = 3


def notes_of(traces: Sequence[Trace]) -> list[Note]:
    """Notes about all traces together; each kind once, however many files it is about."""
    if not traces:
        return []
    notes = [
        _unranked([trace for trace in traces if trace.rank is None]),
        _cut([trace for trace in traces if trace.was_cut]),
        _lost(traces),
        _unmarked(
            [trace for trace in traces if not trace.has_marks],
            some_have=any(trace.has_marks for trace in traces),
        ),
        _stubs([trace for trace in traces if trace.stub is not None]),
        _host_only(traces),
        _without_collectives(traces),
        _unpaired(sum(trace.num_unpaired for trace in traces)),
        _hidden([trace for trace in traces if trace.hidden >= MIN_HIDDEN]),
        _foreign([trace for trace in traces if trace.num_foreign > 0]),
        _no_room(sum(trace.num_left_out for trace in traces)),
    ]
    return [note for note in notes if note is not None]


def _unranked(traces: Sequence[Trace]) -> Note | None:
    if not traces:
        return None
    return Note(
        kind=NoteKind.LIMITED,
        text=f"{_files(traces)} {_do(traces)} not say which rank recorded {_it(traces)}, and no name of a file does; "
        "each is taken by itself and compared with nobody",
        how="rename the files to `rank-0.json`, `rank-1.json` …, or record after `init_process_group`",
    )


def _cut(traces: Sequence[Trace]) -> Note | None:
    if not traces:
        return None
    return Note(
        kind=NoteKind.CUT_SHORT,
        text=f"{_files(traces)} {'end' if len(traces) > 1 else 'ends'} in the middle; "
        f"{sum(trace.num_events for trace in traces):,} events up to there were read; since events of a step stand "
        "anywhere in a trace, only marks of steps and single collectives count",
        how="copy the files again; torch writes a trace when the profiled steps are over, so the job may have ended",
    )


def _lost(traces: Sequence[Trace]) -> Note | None:
    lost = [trace for trace in traces if trace.num_lost]
    if not lost:
        return None
    return Note(
        kind=NoteKind.DROPPED_VALUES,
        text=f"{sum(trace.num_lost for trace in lost):,} of {sum(trace.num_events for trace in lost):,} events in "
        f"{_files(lost)} are broken and were left out"
        + (
            ""
            if all(trace.is_whole or trace.was_cut for trace in lost)
            else "; sums over steps are not used there"
        ),
    )


def _unmarked(traces: Sequence[Trace], *, some_have: bool) -> Note | None:
    if not traces:
        return None
    return Note(
        kind=NoteKind.LIMITED,
        text=f"{_files(traces)} {_have(traces)} no `ProfilerStep#` marks: "
        + (
            "only collectives of it are compared across ranks"
            if some_have
            else "the whole trace counts as one step, and ranks that recorded for different times cannot be compared"
        ),
        how="call `profiler.step()` at the end of each training step",
    )


def _stubs(traces: Sequence[Trace]) -> Note | None:
    if not traces:
        return None
    steps = fold_ints([trace.stub for trace in traces if trace.stub is not None])
    return Note(
        kind=NoteKind.DROPPED_VALUES,
        text=f"step {steps} of {_ranks(traces)} was left out: the profiler stopped right after it began",
    )


def _host_only(traces: Sequence[Trace]) -> Note | None:
    host_only = [trace for trace in traces if not trace.has_device]
    if not host_only:
        return None
    derived = any(Section.UNSPLIT in trace.sections for trace in host_only)
    return Note(
        kind=NoteKind.LIMITED,
        text=f"{_files(host_only)} {_have(host_only)} no work of a GPU: "
        + (
            "compute is the step without its collectives, so what overlaps with a collective is not in it"
            if derived
            else "compute and waiting are not known"
        ),
        how=None if derived else "record with `ProfilerActivity.CUDA` on the ranks' own GPUs",
    )


def _without_collectives(traces: Sequence[Trace]) -> Note | None:
    if any(Section.COMM in trace.sections for trace in traces):
        return None
    return Note(
        kind=NoteKind.NOT_COLLECTIVE,
        text=f"no collective is in {_files(traces)}: neither kernels of NCCL or RCCL nor gloo's calls",
        how="record `ProfilerActivity.CUDA` beside `ProfilerActivity.CPU`, during steps that communicate",
    )


def _unpaired(num: int) -> Note | None:
    if not num:
        return None
    return Note(
        kind=NoteKind.LIMITED,
        text=f"{num:,} sends and receives do not say their peer; nobody is compared by them",
    )


def _hidden(traces: Sequence[Trace]) -> Note | None:
    if not traces:
        return None
    shares = sorted({f"{100 * trace.hidden:.0f}" for trace in traces}, key=int)
    much = shares[0] if len(shares) == 1 else f"{shares[0]} to {shares[-1]}"
    return Note(
        kind=NoteKind.LIMITED,
        text=f"{_ranks(traces)} work{'' if len(traces) > 1 else 's'} while sends and receives are outstanding; these last "
        f"until `wait()` returns, so {much} % of a step are neither own work nor waiting for sure",
        how="time what lies between collectives: torchrun … -m distdoctor straggler record --record-dir DIR -- train.py",
    )


def _foreign(traces: Sequence[Trace]) -> Note | None:
    if not traces:
        return None
    return Note(
        kind=NoteKind.LIMITED,
        text=f"{_files(traces)} {'hold' if len(traces) > 1 else 'holds'} work of several GPUs; of each the one with "
        f"most was read, and {sum(trace.num_foreign for trace in traces):,} activities of others were left out",
    )


def _no_room(num: int) -> Note | None:
    if not num:
        return None
    return Note(
        kind=NoteKind.LIMITED,
        text=f"{num:,} collectives of later steps were not kept: there is room for {MAX_ROWS:,}",
        how="give a range of steps: `--steps 1000:1005`",
    )


def _files(traces: Sequence[Trace]) -> str:
    names = [f"`{PurePath(trace.path).name}`" for trace in traces[:_MAX_NAMES]]
    more = len(traces) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _ranks(traces: Sequence[Trace]) -> str:
    ranks = sorted({trace.rank for trace in traces if trace.rank is not None})
    if not ranks:
        return _files(traces)
    return named_ranks(ranks)


def _do(traces: Sequence[Trace]) -> str:
    return "do" if len(traces) > 1 else "does"


def _have(traces: Sequence[Trace]) -> str:
    return "have" if len(traces) > 1 else "has"


def _it(traces: Sequence[Trace]) -> str:
    return "them" if len(traces) > 1 else "it"

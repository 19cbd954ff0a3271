"""Operations → times of ranks × steps.

FORWARD, BACKWARD, OPTIMIZER and DATA are sums of a worker's operations. WAIT and TRANSFER are exposed times in
communication (`waits`); in a pipeline WAIT holds the bubble too, which only workers of one stage have in common. STEP
runs from the first start to the last end of any worker and is equal for all.

No `CollectiveTimings` are made: in a pipeline whoever comes last to a collective is as often the victim of a slow
stage before it as a culprit.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.sections import Role, Section, role_of
from distdoctor.straggler.facts.steps import StepTimings, Times
from distdoctor.straggler.readers.op_trace.kinds import COMM, COMPUTE, PARTS, is_known
from distdoctor.straggler.readers.op_trace.meta import JobMeta
from distdoctor.straggler.readers.op_trace.table import Ops
from distdoctor.straggler.readers.op_trace.waits import Floats, Ints, covered, waiting
from distdoctor.straggler.readers.rank_words import named_ranks, shown_ranks
from distdoctor.straggler.readers.rows import MAX_VALUES, StepRows

SOURCE = "pipeline operation traces"

# Milliseconds of one unit.
UNITS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}

# The published traces, and the tool that draws them, count in seconds. A median step outside of these bounds cannot
# be in seconds: no training job that we know of takes ten minutes or less than a millisecond a step. Our own bounds.
PLAUSIBLE_STEP_S = (1e-3, 600.0)

# A larger share of a step that lies in no operation is told. Launching leaves a per cent or two; our own threshold.
MAX_GAP_SHARE = 0.1

_WALLS = {Section.FORWARD: Section.FORWARD_WALL, Section.BACKWARD: Section.BACKWARD_WALL}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workers:
    """The workers of a trace, in the order of ranks; arrays of shape (workers,)."""

    rank: Ints
    dp: Ints
    stage: Ints
    tensor: Ints
    """Which of the workers of equal stage and replica."""

    @property
    def are_tensor_ranks(self) -> bool:
        """Several workers share a stage and a replica: collectives between them lie inside forward and backward."""
        return bool(self.tensor.max(initial=0) > 0)


def timings_of(ops: Ops, meta: JobMeta | None, unit: str | None) -> tuple[StepTimings | None, list[Note]]:
    """Times of one job. Raises InputError: no rows, an unknown unit, or too much for memory."""
    if not len(ops):
        raise InputError("no operations in the range of steps that was asked for")
    workers = _workers(ops)
    rows = np.searchsorted(workers.rank, ops.rank).astype(np.int32)
    steps, step_at = np.unique(ops.step, return_inverse=True)
    if len(workers.rank) * len(steps) > MAX_VALUES:
        raise InputError(
            f"{len(workers.rank):,} workers × {len(steps):,} steps do not fit into memory",
            hint="give a range of steps: `--steps 1000:3000`",
        )
    at_step = step_at.reshape(-1).astype(np.int32)
    del step_at
    order = np.argsort(at_step, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(np.bincount(at_step, minlength=len(steps)))))
    shape = (len(workers.rank), len(steps))
    sections: dict[Section, Times] = {}
    num_alone = num_comm = num_twice = 0
    num_stages = int(workers.stage.max()) + 1
    for at in range(len(steps)):
        index = order[bounds[at] : bounds[at + 1]]
        part, row = ops.take(index), rows[index].astype(np.int64)
        twice = _repeated(part)
        if twice.any():
            num_twice += int(np.count_nonzero(twice))
            part, row = part.take(~twice), row[~twice]
        wait, alone = waiting(part, workers.tensor[row], num_stages)
        num_alone += int(np.count_nonzero(alone))
        num_comm += int(np.count_nonzero(_is(part, COMM)))
        for section, values in _sections(part, row, wait, shape[0]).items():
            if section not in sections:
                sections[section] = np.full(shape, np.nan, dtype=np.float32)
            sections[section][:, at] = values
    if not np.any(sections.get(Section.GC, np.zeros(1)) > 0):
        # Marks of duration 0 say that the collector ran, not for how long.
        sections.pop(Section.GC, None)
    factor, notes = _factor(sections[Section.STEP], unit)
    notes += _notes(ops, workers, num_alone, num_comm, num_twice)
    notes += _notes_on_meta(workers, meta)
    notes += _note_on_gaps(workers, sections)
    build = StepRows()
    for number, rank in enumerate(workers.rank):
        present = ~np.isnan(sections[Section.STEP][number])
        build.add(
            int(rank),
            steps[present],
            {
                _WALLS.get(section, section) if workers.are_tensor_ranks else section: values[number][present]
                * factor
                for section, values in sections.items()
            },
        )
        build.place(_place(workers, number))
    timings, more = build.build(SOURCE)
    if timings is not None:
        timings = replace(timings, world_size=_num_rows(workers, meta))
    return timings, [*notes, *more]


def _workers(ops: Ops) -> _Workers:
    rank, first = np.unique(ops.rank, return_index=True)
    dp, stage = ops.dp[first].astype(np.int64), ops.stage[first].astype(np.int64)
    if np.any(ops.dp != dp[np.searchsorted(rank, ops.rank)]) or np.any(
        ops.stage != stage[np.searchsorted(rank, ops.rank)]
    ):
        raise InputError(
            "one rank is in several stages or replicas: several jobs are in one file, or ranks are counted anew in each "
            "replica"
        )
    order = np.lexsort((rank, dp, stage))
    same = np.concatenate(([False], (np.diff(dp[order]) == 0) & (np.diff(stage[order]) == 0)))
    position = np.arange(len(rank))
    starts = np.maximum.accumulate(np.where(same, 0, position))
    tensor = np.empty(len(rank), dtype=np.int64)
    tensor[order] = position - starts
    return _Workers(rank=rank.astype(np.int64), dp=dp, stage=stage, tensor=tensor)


def _repeated(ops: Ops) -> NDArray[np.bool_]:
    """Rows that stand in the trace a second time, to the last digit."""
    order = np.lexsort((ops.duration, ops.start, ops.seq, ops.optype, ops.rank))
    same = np.ones(max(len(ops) - 1, 0), dtype=bool)
    for column in (ops.duration, ops.start, ops.seq, ops.optype, ops.rank):
        same &= column[order][1:] == column[order][:-1]
    twice = np.zeros(len(ops), dtype=bool)
    twice[order[1:]] = same
    return twice


def _is(ops: Ops, names: Collection[str]) -> NDArray[np.bool_]:
    wanted: NDArray[np.bool_] = np.isin(
        np.arange(len(ops.names)), [at for at, name in enumerate(ops.names) if name in names]
    )
    return wanted[ops.optype]


def _sections(ops: Ops, row: Ints, wait: Floats, num_rows: int) -> dict[Section, Floats]:
    """Times of one step in the trace's unit, each of shape (workers,), NaN where a worker has no such operation."""
    found: dict[Section, Floats] = {}
    for section in (*dict.fromkeys(COMPUTE.values()), *PARTS.values()):
        names = [name for name, of in (*COMPUTE.items(), *PARTS.items()) if of is section]
        mine = _is(ops, names)
        if mine.any():
            total = np.bincount(row[mine], weights=ops.duration[mine], minlength=num_rows).astype(np.float64)
            total[np.bincount(row[mine], minlength=num_rows) == 0] = np.nan
            found[section] = total
    end = ops.start + ops.duration
    compute, comm = _is(ops, COMPUTE), _is(ops, COMM)
    if comm.any():
        busy = covered(row[compute], ops.start[compute], end[compute], num_rows)
        come = ops.start[comm] + wait[comm]
        with_wait = covered(
            np.concatenate((row[compute], row[comm])),
            np.concatenate((ops.start[compute], ops.start[comm])),
            np.concatenate((end[compute], come)),
            num_rows,
        )
        either = compute | comm
        everything = covered(row[either], ops.start[either], end[either], num_rows)
        silent = np.bincount(row[comm], minlength=num_rows) == 0
        found[Section.WAIT] = np.where(silent, np.nan, np.maximum(with_wait - busy, 0.0))
        found[Section.TRANSFER] = np.where(silent, np.nan, np.maximum(everything - with_wait, 0.0))
    whole = float(end.max() - ops.start.min())
    found[Section.STEP] = np.where(np.bincount(row, minlength=num_rows) > 0, whole, np.nan)
    return found


def _factor(step: Times, unit: str | None) -> tuple[float, list[Note]]:
    """Milliseconds of one unit of the trace."""
    if unit is not None:
        return UNITS[unit], []
    median = float(np.nanmedian(step))
    low, high = PLAUSIBLE_STEP_S
    if not low <= median <= high:
        raise InputError(
            f"a step takes {median:.4g} if times are in seconds, as in the published traces: they are not",
            hint="say which unit: `--unit ms`, `us` or `ns`, or `--unit s` if it is right",
        )
    return UNITS["s"], []


def _place(workers: _Workers, number: int) -> Place:
    coords = {}
    if workers.dp[number] >= 0:
        coords["dp"] = int(workers.dp[number])
    if workers.stage[number] >= 0:
        coords["pp"] = int(workers.stage[number])
    if workers.are_tensor_ranks:
        coords["tp"] = int(workers.tensor[number])
    return Place(rank=int(workers.rank[number]), coords=coords)


def _num_rows(workers: _Workers, meta: JobMeta | None) -> int:
    """Workers that the trace should have: a grid of replicas × stages, or what the job description says."""
    grid = (int(workers.dp.max()) + 1) * (int(workers.stage.max()) + 1) * (int(workers.tensor.max()) + 1)
    told = meta.num_workers if meta is not None and not workers.are_tensor_ranks else 0
    return max(grid, told, len(workers.rank))


def _notes(ops: Ops, workers: _Workers, num_alone: int, num_comm: int, num_twice: int) -> list[Note]:
    notes = []
    unknown = sorted(
        name for number, name in enumerate(ops.names) if not is_known(name) and np.any(ops.optype == number)
    )
    if unknown:
        notes.append(
            Note(
                kind=NoteKind.DROPPED_VALUES,
                text=f"operations of {len(unknown)} unknown types are in no section: {', '.join(unknown[:6])}"
                + ("…" if len(unknown) > 6 else ""),
            )
        )
    if ops.num_dropped:
        notes.append(
            Note(
                kind=NoteKind.DROPPED_VALUES,
                text=f"{ops.num_dropped} rows have values that cannot be, and were left out",
            )
        )
    if num_twice:
        notes.append(
            Note(
                kind=NoteKind.DUPLICATE_RANKS,
                text=f"{num_twice} operations are there twice; each counts once",
            )
        )
    if num_alone:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"{num_alone} of {num_comm} communications have no partner that can be told in the trace: moving data "
                "counts as waiting in them",
            )
        )
    if workers.are_tensor_ranks:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text="several workers share a stage and a replica: forward and backward hold their waiting for one "
                "another, and name nobody inside such a group",
            )
        )
    return notes


def _note_on_gaps(workers: _Workers, sections: dict[Section, Times]) -> list[Note]:
    """Who has much time in no operation: if that is waiting, it is not seen as such."""
    step = sections[Section.STEP]
    rest = step.copy()
    for section, values in sections.items():
        if role_of(section) in (Role.OWN, Role.WAIT, Role.TRANSFER):
            rest -= np.nan_to_num(values)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.array(
            [np.median(row[~np.isnan(row)]) if np.any(~np.isnan(row)) else 0.0 for row in rest / step]
        )
    ranks = workers.rank[share > MAX_GAP_SHARE]
    if not len(ranks):
        return []
    return [
        Note(
            kind=NoteKind.LIMITED,
            text=f"up to {100 * float(share.max()):.0f} % of a step lies in no recorded operation on "
            f"{named_ranks(ranks.tolist())}: who waits there is not seen to wait",
        )
    ]


def _notes_on_meta(workers: _Workers, meta: JobMeta | None) -> list[Note]:
    notes = []
    rank = workers.rank
    stride = int(np.gcd.reduce(np.diff(rank))) if len(rank) > 1 else 1
    gpus = meta.tp_size if meta is not None and not workers.are_tensor_ranks else 1
    if gpus > 1:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"a row stands for a tensor-parallel group of {gpus} GPUs ({len(rank)} rows, "
                f"{len(rank) * gpus} GPUs): which GPU of the group is slow cannot be told",
                how="measure single GPUs of the group, or record traces of every rank",
            )
        )
    elif stride > 1:
        notes.append(
            Note(
                kind=NoteKind.LIMITED,
                text=f"only every {stride}th rank has rows: a row seems to stand for a group of {stride} GPUs",
            )
        )
    expected = _num_rows(workers, meta)
    if expected > len(rank):
        seen = set(zip(workers.dp.tolist(), workers.stage.tolist(), strict=True))
        lacking = [
            f"dp {dp} stage {stage}"
            for dp in range(int(workers.dp.max()) + 1)
            for stage in range(int(workers.stage.max()) + 1)
            if (dp, stage) not in seen
        ][:8]
        notes.append(
            Note(
                kind=NoteKind.MISSING_RANKS,
                text=f"{expected - len(rank)} of {expected} workers have no rows"
                + (f": {', '.join(lacking)}" if lacking else "")
                + f" (there are ranks {shown_ranks(rank.tolist())})",
                how="give the trace of all workers; who is not seen cannot be ruled out",
            )
        )
    return notes

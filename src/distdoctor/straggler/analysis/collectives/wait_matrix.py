"""From collectives to ranks × steps: how long each rank waited, and how much more own time it took than the others.

Ranks that wait for one another take equally long for a step. So what a rank did not spend in collectives it spent on
its own, and own times of two ranks differ by what their sums in collectives differ, with the sign turned. That holds
through any nesting of groups: when one rank of a tensor-parallel group is late by d, its mates wait d inside the
group, all other ranks wait d in the outer collective, and its own sum alone is smaller by d. Looking at arrivals of
the outer collective alone would show all of its mates equally late.

Two limits, told in `basis`: transfers that overlap with computing make the sums, and so the differences, too large
(each bucket of gradients is late by all that was lost before it); and own time that ends in no collective of these
groups is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.collectives.arrivals import lateness_us
from distdoctor.straggler.analysis.collectives.group_kinds import GroupKinds, joined_ranks, kinds_of
from distdoctor.straggler.analysis.collectives.kinds import OpClass
from distdoctor.straggler.analysis.collectives.match import Matched, State, match, rows_of
from distdoctor.straggler.analysis.peer_median import MAX_LEFT_OUT, median_of_others, row_medians
from distdoctor.straggler.facts.collectives import CollectiveTimings
from distdoctor.straggler.facts.steps import Times
from distdoctor.units import fold_ints

# Fewer windows than this say little of what persists; more than the most, and a window holds too few collectives to
# even out. Our own choice.
MIN_WINDOWS = 20
MAX_WINDOWS = 200

# Steps are used when so many of the collectives tell theirs. Our own choice.
STEPS_KNOWN_SHARE = 0.5

# Ranks × steps. There is no more than one row a value in sound evidence, except where ranks lack steps.
MAX_VALUES = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitMatrix:
    """Arrays have shape (ranks, steps) and are in ms; NaN where a rank lacks a collective of its groups in a step."""

    ranks: tuple[int, ...]
    steps: NDArray[np.int64]
    """Training steps; the first of several that were added up; or numbers of windows when steps are not known."""
    wait_ms: Times
    """Waiting for others in collectives, summed over the step. Where ranks have no evidence it is a lower bound."""
    comm_ms: Times
    """All time in collectives and messages: waiting and transfer. Own time is the step less this."""
    late_ms: Times
    """Own excess: how much less time a rank spent in them than the median of the others that it waits for."""
    late_least_ms: Times
    """What of `late_ms` is certain even if transfers overlap with computing: no more than the largest lateness at
    one collective of the step."""
    joined: tuple[NDArray[np.int64], ...]
    """Sets of rows that wait for one another; ranks of different sets cannot be compared."""
    steps_known: bool
    basis: str
    """In words, what a step is and what the sums can and cannot show."""
    notes: tuple[str, ...]
    """What was left out, with numbers."""


def wait_matrix(
    timings: CollectiveTimings, *, matched: Matched | None = None, kinds: GroupKinds | None = None
) -> WaitMatrix | None:
    """Waiting and own excess by rank and step; None when no collective has two ranks.

    `matched` and `kinds` save the work when they are there already.
    """
    matched = matched or match(timings)
    if matched is None:
        return None
    kinds = kinds or kinds_of(matched)
    usable = (np.diff(matched.start) > 1) & (matched.op_class == OpClass.EVERYBODY)
    usable &= matched.state != State.DAMAGED
    if not usable.any():
        return None
    column, steps, words, steps_known = _columns(matched, kinds)
    size = len(matched.ranks) * len(steps)
    present = column >= 0
    cell = np.where(present, column, 0)[matched.row_collective].astype(np.int64)
    cell += matched.row_rank.astype(np.int64) * len(steps)
    counted = present[matched.row_collective]
    shape = (len(matched.ranks), len(steps))

    comm = np.bincount(cell[counted], matched.duration_us[counted], minlength=size)
    comm_ms = (comm / 1e3).astype(np.float32).reshape(shape)
    del comm
    rows = rows_of(matched, usable & present)
    of = matched.row_collective[rows]
    wait = np.bincount(cell[rows], matched.duration_us[rows] - matched.shortest_us[of], minlength=size)
    wait_ms = (wait / 1e3).astype(np.float32).reshape(shape)
    del wait
    lacking = _lacking(matched, column, shape)
    comm_ms[lacking] = np.nan
    wait_ms[lacking] = np.nan

    joined = joined_ranks(matched)
    late_ms = _excess(comm_ms, joined)
    latest = np.zeros(size, dtype=np.float32)
    np.maximum.at(latest, cell[rows], lateness_us(matched, rows) / np.float32(1e3))
    late_least_ms = np.minimum(late_ms, latest.reshape(shape))
    return WaitMatrix(
        ranks=tuple(matched.ranks.tolist()),
        steps=steps,
        wait_ms=wait_ms,
        comm_ms=comm_ms,
        late_ms=late_ms,
        late_least_ms=late_least_ms,
        joined=joined,
        steps_known=steps_known,
        basis=words,
        notes=_notes(matched, lacking, int(np.sum(~present))),
    )


def _columns(matched: Matched, kinds: GroupKinds) -> tuple[NDArray[np.int64], NDArray[np.int64], str, bool]:
    """For each collective its column (-1: none), what the columns are, and that in words."""
    known = matched.step >= 0
    overlap = "where transfers overlap with computing, sums overstate how late a rank is"
    if np.mean(known) >= STEPS_KNOWN_SHARE:
        steps, inverse = np.unique(matched.step[known], return_inverse=True)
        together = -(-len(steps) * len(matched.ranks) // MAX_VALUES)
        column = np.full(matched.num_collectives, -1, dtype=np.int64)
        column[known] = inverse.reshape(-1) // together
        words = "time in collectives, summed by training step" + (
            f" ({together} steps each)" if together > 1 else ""
        )
        return column, steps[::together], f"{words}; {overlap}", True
    column, num_windows, length = _windows(matched, kinds)
    words = (
        f"time in collectives; steps are not known, so {num_windows} windows of about {length} consecutive "
        f"collective{'s' if length != 1 else ''} of a rank stand for them"
    )
    return column, np.arange(num_windows, dtype=np.int64), f"{words}; {overlap}", False


def _windows(matched: Matched, kinds: GroupKinds) -> tuple[NDArray[np.int64], int, int]:
    """Equal stretches of the numbering of each kind of group, and about how many collectives of a rank one holds.

    Groups of one kind run in step with one another, so that a stretch is the same time on all of them; groups without
    a pattern are cut by their own first and last number.
    """
    kind = kinds.kind_of[matched.group].astype(np.int64)
    by = np.where(kinds.regular[kind], kind, len(kinds.names) + matched.group)
    unit, index = np.unique(by, return_inverse=True)
    index = index.reshape(-1)
    first, last = np.full(len(unit), np.inf), np.full(len(unit), -np.inf)
    seq = matched.seq.astype(np.float64)
    np.minimum.at(first, index, seq)
    np.maximum.at(last, index, seq)
    lengths = last - first + 1
    frequent = lengths[lengths >= MIN_WINDOWS]
    # As many as the rarest kind of collective has, so that each window holds each kind at least once.
    wanted = float(frequent.min()) if len(frequent) else float(lengths.max())
    num_windows = int(min(max(wanted, 1), MAX_WINDOWS, max(1, MAX_VALUES // len(matched.ranks))))
    column = ((seq - first[index]) / lengths[index] * num_windows).astype(np.int64)
    per_rank = len(matched.row_rank) / len(matched.ranks)
    return np.clip(column, 0, num_windows - 1), num_windows, max(1, round(per_rank / num_windows))


def _lacking(matched: Matched, column: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Where a rank has fewer rows than there are collectives of its groups: its sum is not known.

    Messages are not counted: who takes part in one is not known. A rank without any row in a step lacks it.
    """
    num_steps = shape[1]
    counted = (column >= 0) & (matched.op_class != OpClass.POINT_TO_POINT)
    rows = rows_of(matched, counted)
    cell = matched.row_rank[rows].astype(np.int64) * num_steps + column[matched.row_collective[rows]]
    have = np.bincount(cell, minlength=shape[0] * num_steps).reshape(shape)
    expected = np.zeros(shape, dtype=np.int64)
    edges = np.searchsorted(matched.group, np.arange(len(matched.members) + 1))
    for number, here in enumerate(matched.members):
        of_group = slice(edges[number], edges[number + 1])
        columns = column[of_group][counted[of_group]]
        if len(columns):
            expected[here] += np.bincount(columns, minlength=num_steps)
    return np.asarray((have < expected) | (have == 0))


def _excess(comm_ms: Times, joined: tuple[NDArray[np.int64], ...]) -> Times:
    late = np.full_like(comm_ms, np.nan)
    for rows in joined:
        if len(rows) < 2:
            continue
        block = comm_ms[rows]
        if len(rows) <= MAX_LEFT_OUT:
            late[rows] = median_of_others(block) - block
        else:
            late[rows] = row_medians(np.ascontiguousarray(block.T)) - block
    return late


def _notes(matched: Matched, lacking: NDArray[np.bool_], without_step: int) -> tuple[str, ...]:
    notes = []
    total = matched.num_collectives
    partial = int(np.sum(matched.has(State.PARTIAL)))
    if partial:
        notes.append(
            f"{partial:,} of {total:,} collectives lack ranks: who is not seen may have come last, and waiting in "
            "them is a lower bound"
        )
    damaged = int(np.sum(matched.state == State.DAMAGED))
    if damaged:
        notes.append(
            f"{damaged:,} of {total:,} collectives are left out: a rank has two rows, a duration that cannot be, or "
            "ranks disagree on what it was"
        )
    messages = int(np.sum(matched.op_class == OpClass.POINT_TO_POINT))
    if messages:
        notes.append(
            f"{messages:,} messages between two ranks count as time in communication and not as waiting for a rank: "
            "they hold the bubbles of a pipeline"
        )
    if without_step:
        notes.append(f"{without_step:,} of {total:,} collectives tell no step and are left out")
    never = matched.ranks[np.all(lacking, axis=1)]
    if len(never):
        notes.append(f"ranks {fold_ints(never[:64].tolist())} lack rows in every step and cannot be judged")
    return tuple(notes)

"""Which rows are one collective, are all of its ranks here, and how long did the shortest of them take?

Everything is sorted once; ten million rows cost some seconds and about 100 bytes a row beside the rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.collectives.kinds import OpClass, class_of
from distdoctor.straggler.facts.collectives import CollectiveTimings

# Longer than any timeout that people set for a collective (NCCL's default in torch: 10 minutes): a broken number.
# Our own threshold.
MAX_DURATION_US = 24 * 3600 * 1e6

# As everywhere in this room; a larger rank is a broken number.
MAX_RANKS = 1_000_000

# An all-to-all ends on all ranks at once; messages between pipeline stages end when each stage is there. Ends within
# so much, or within a hundredth of the longest wait, are at once: 1-7 us were measured on one host, and clocks of
# different hosts are not compared. Our own threshold.
SAME_END_US = 50.0
SAME_END_SHARE = 0.01
# In at least so many of the messages that all ranks of the group share.
SAME_END_MESSAGES = 0.9

# Packed sort keys stay below this.
_MAX_KEY = 1 << 62


class State(IntEnum):
    """Whether a collective can be judged."""

    COMPLETE = 0
    PARTIAL = 1
    """Ranks of the group have no row: the last one to come may be among them."""
    DAMAGED = 2
    """A rank has two rows, a duration that cannot be, or ranks disagree on what it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Rows by collective and rank, and what each collective is. Only sound rows are kept.

    Rows of collective c are `start[c]:start[c + 1]`, ascending by rank; collectives are ascending by (group, seq).
    """

    timings: CollectiveTimings
    ranks: NDArray[np.int64]
    """Distinct ranks that have a row, ascending."""
    members: tuple[NDArray[np.int64], ...]
    """By group: its ranks that have evidence, as indexes into `ranks`."""
    group_size: NDArray[np.int64]
    """By group: as listed, else as told, else as many as were seen in it."""

    source_row: NDArray[np.int64]
    """(rows,): where the row is in `timings`."""
    row_rank: NDArray[np.int32]
    """(rows,): index into `ranks`."""
    row_collective: NDArray[np.int32]
    duration_us: NDArray[np.float32]

    start: NDArray[np.int64]
    """(collectives + 1,)"""
    group: NDArray[np.int32]
    seq: NDArray[np.int64]
    op: NDArray[np.int32]
    step: NDArray[np.int64]
    """The latest that any of its rows tells; -1: not known."""
    num_bytes: NDArray[np.int64]
    """The most that any of its rows tells; -1: not known."""
    state: NDArray[np.int8]
    op_class: NDArray[np.int8]

    shortest_us: NDArray[np.float32]
    """(collectives,): of the last rank to come: the transfer. NaN where no row is sound."""
    second_us: NDArray[np.float32]
    """NaN where there is one row only."""
    median_us: NDArray[np.float32]
    longest_us: NDArray[np.float32]

    rows_left_out: int
    """Rows that name no group, operation or rank that exists, or whose duration cannot be."""
    rows_twice: int
    """Rows of a rank that has several in one collective: none of them counts."""
    assumed_sizes: int
    """Groups whose size the evidence does not tell: who was never seen in them is not missed."""

    @property
    def num_collectives(self) -> int:
        """How many there are, whatever their state."""
        return len(self.group)

    def has(self, state: State, op_class: OpClass = OpClass.EVERYBODY) -> NDArray[np.bool_]:
        """Which collectives are in this state and of this class."""
        chosen: NDArray[np.bool_] = (self.state == state) & (self.op_class == op_class)
        return chosen


def match(timings: CollectiveTimings) -> Matched | None:
    """Rows of equal (group, seq) as one collective; None when no row is sound enough to belong anywhere."""
    known = _can_be_placed(timings)
    rows = np.flatnonzero(known)
    if not len(rows):
        return None
    present = np.zeros(int(timings.rank[rows].max()) + 1, dtype=bool)
    present[timings.rank[rows]] = True
    ranks = np.flatnonzero(present).astype(np.int64)
    index_of_rank = np.cumsum(present, dtype=np.int64) - 1
    rows = rows[_order(timings, rows, index_of_rank, len(ranks))]
    rank_index = index_of_rank[timings.rank[rows]].astype(np.int32)

    first = np.ones(len(rows), dtype=bool)
    first[1:] = np.diff(timings.group[rows]) != 0
    first[1:] |= np.diff(timings.seq[rows]) != 0
    begins = np.flatnonzero(first)
    collective = (np.cumsum(first) - 1).astype(np.int32)
    twice = np.zeros(len(rows), dtype=bool)
    twice[1:] = (np.diff(rank_index) == 0) & ~first[1:]
    twice[:-1] |= twice[1:]
    ops = timings.op[rows]
    classes = np.asarray([class_of(name) for name in timings.ops], dtype=np.int8)
    # A rank may send and receive under one number.
    twice &= classes[ops] != OpClass.POINT_TO_POINT
    duration = timings.duration_us[rows].astype(np.float32, copy=False)
    with np.errstate(invalid="ignore"):
        sound = (duration > 0) & (duration <= MAX_DURATION_US)
    op = np.minimum.reduceat(ops, begins)
    op_class = classes[op]
    # Two ends of one message may be told as "send" and "recv"; anything else must be one thing on all ranks.
    differs = (op != np.maximum.reduceat(ops, begins)) & (op_class != OpClass.POINT_TO_POINT)
    damaged = differs | np.logical_or.reduceat(twice | ~sound, begins)

    members, sizes, assumed = _members(timings, ranks, timings.group[rows], rank_index)
    group = timings.group[rows[begins]]
    seq = timings.seq[rows[begins]]
    step = np.maximum.reduceat(timings.step[rows], begins)
    num_bytes = np.maximum.reduceat(timings.num_bytes[rows], begins)
    keep = sound & ~twice
    rows, rank_index, collective, duration = rows[keep], rank_index[keep], collective[keep], duration[keep]
    counts = np.bincount(collective, minlength=len(begins))
    start = np.concatenate(([0], np.cumsum(counts)))
    state = np.where(counts < sizes[group], State.PARTIAL, State.COMPLETE)
    state[damaged] = State.DAMAGED
    shortest, second, median, longest = _order_statistics(collective, duration, start)
    matched = Matched(
        timings=timings,
        ranks=ranks,
        members=members,
        group_size=sizes,
        source_row=rows,
        row_rank=rank_index,
        row_collective=collective,
        duration_us=duration,
        start=start,
        group=group,
        seq=seq,
        op=op,
        step=step,
        num_bytes=num_bytes,
        state=state.astype(np.int8),
        op_class=op_class,
        shortest_us=shortest,
        second_us=second,
        median_us=median,
        longest_us=longest,
        rows_left_out=int(np.sum(~known)) + int(np.sum(~sound)),
        rows_twice=int(np.sum(twice & sound)),
        assumed_sizes=assumed,
    )
    _tell_all_to_alls(matched)
    return matched


def rows_of(matched: Matched, collectives: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows belong to the chosen collectives."""
    return np.asarray(collectives[matched.row_collective])


def _can_be_placed(timings: CollectiveTimings) -> NDArray[np.bool_]:
    return np.asarray(
        (timings.rank >= 0)
        & (timings.rank < MAX_RANKS)
        & (timings.group >= 0)
        & (timings.group < len(timings.groups))
        & (timings.op >= 0)
        & (timings.op < len(timings.ops))
    )


def _order(
    timings: CollectiveTimings, rows: NDArray[np.intp], index_of_rank: NDArray[np.int64], num_ranks: int
) -> NDArray[np.intp]:
    """Rows by group, seq and rank. One key of 64 bits sorts three times as fast as three keys."""
    seq = timings.seq[rows]
    least, most = int(seq.min()), int(seq.max())
    span = most - least + 1
    rank = index_of_rank[timings.rank[rows]]
    if span * num_ranks * len(timings.groups) >= _MAX_KEY:
        return np.lexsort((rank, seq, timings.group[rows]))
    key = timings.group[rows].astype(np.int64)
    key *= span
    key += seq - least
    key *= num_ranks
    key += rank
    return np.argsort(key, kind="stable")


def _members(
    timings: CollectiveTimings,
    ranks: NDArray[np.int64],
    row_group: NDArray[np.int32],
    row_rank: NDArray[np.int32],
) -> tuple[tuple[NDArray[np.int64], ...], NDArray[np.int64], int]:
    """By group the indexes of its ranks with evidence, and its size; and how many sizes are assumed."""
    edges = np.searchsorted(row_group, np.arange(len(timings.groups) + 1))
    members, sizes, assumed = [], np.zeros(len(timings.groups), dtype=np.int64), 0
    for number, group in enumerate(timings.groups):
        seen = row_rank[edges[number] : edges[number + 1]].astype(np.int64)
        # Listed ranks may be any integers; what can be no rank has no evidence.
        listed = np.asarray(
            sorted(rank if 0 <= rank < MAX_RANKS else -1 for rank in set(group.ranks or ())), dtype=np.int64
        )
        place = np.searchsorted(ranks, listed)
        is_here = ranks[np.minimum(place, len(ranks) - 1)] == listed
        here = np.union1d(seen, place[is_here])
        members.append(here)
        num_absent = int(np.sum(~is_here))
        sizes[number] = max(len(here) + num_absent, min(group.size or 0, MAX_RANKS))
        assumed += group.ranks is None and group.size is None
    return tuple(members), sizes, assumed


def _order_statistics(
    collective: NDArray[np.int32], duration_us: NDArray[np.float32], start: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Shortest, second shortest, median and longest duration of each collective; NaN where there are too few."""
    # Positive float32 are in the order of their bits, so one sort of 64-bit numbers sorts within collectives.
    packed = collective.astype(np.uint64) << np.uint64(32)
    packed |= np.ascontiguousarray(duration_us).view(np.uint32).astype(np.uint64)
    packed.sort()
    ordered = (packed & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
    first, count = start[:-1], np.diff(start)
    padded = np.append(ordered, np.float32(np.nan))
    none = len(ordered)

    def at(place: NDArray[np.int64], least: int) -> NDArray[np.float32]:
        return np.asarray(padded[np.where(count >= least, first + place, none)])

    zero = np.zeros_like(count)
    median = (at((count - 1) // 2, 1) + at(count // 2, 1)) / np.float32(2)
    return at(zero, 1), at(zero + 1, 2), median, at(count - 1, 1)


def _tell_all_to_alls(matched: Matched) -> None:
    """Messages of three or more ranks that end on all of them at once are all-to-alls: their class is corrected.

    Without end times they stay point to point: a pipeline looks the same by durations.
    """
    end_s = matched.timings.end_s
    if end_s is None:
        return
    host_of = {place.rank: place.host for place in matched.timings.places}
    hosts = [host_of.get(int(rank)) for rank in matched.ranks]
    edges = np.searchsorted(matched.group, np.arange(len(matched.members) + 1))
    for number in np.unique(matched.group[matched.op_class == OpClass.POINT_TO_POINT]):
        if matched.group_size[number] < 3:
            continue
        messages = np.arange(edges[number], edges[number + 1])
        messages = messages[matched.op_class[messages] == OpClass.POINT_TO_POINT]
        num_rows = matched.start[messages + 1] - matched.start[messages]
        whole = (matched.state[messages] == State.COMPLETE) & (num_rows == matched.group_size[number])
        # A pipeline's stages do not send equally often; an all-to-all is one on all ranks.
        if np.mean(whole) < SAME_END_MESSAGES:
            continue
        if _end_at_once(matched, messages[whole], hosts, end_s):
            matched.op_class[messages] = OpClass.EVERYBODY


def _end_at_once(
    matched: Matched,
    collectives: NDArray[np.intp],
    hosts: list[str | None],
    end_s: NDArray[np.float64],
) -> bool:
    """Whether ranks of one host end together, in nearly all of the collectives (at most 2,000 of them)."""
    chosen = collectives[:: max(1, len(collectives) // 2000)]
    together = []
    for collective in chosen:
        rows = slice(matched.start[collective], matched.start[collective + 1])
        ends: dict[str | None, list[float]] = {}
        for rank, row in zip(matched.row_rank[rows], matched.source_row[rows], strict=True):
            ends.setdefault(hosts[rank], []).append(float(end_s[row]))
        spreads = [max(each) - min(each) for each in ends.values() if len(each) > 1]
        if not spreads or not np.all(np.isfinite(spreads)):
            return False
        allowed = max(SAME_END_US, SAME_END_SHARE * float(matched.longest_us[collective]))
        together.append(max(spreads) * 1e6 <= allowed)
    return bool(together) and float(np.mean(together)) >= SAME_END_MESSAGES

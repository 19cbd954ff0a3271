"""Rows of one rank's collectives, and which rows of different ranks are one collective.

Where torch numbered the collectives of a group ("Seq", 2.6 and later) that number decides. Else the n-th of a kind in
a step of a group is the same on all ranks, since a communicator's collectives run in one order; where ranks have
different numbers of them in a step, nothing is matched there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.collectives import CollectiveTimings, Group
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.readers.kineto.gather import Floats, Ints
from distdoctor.straggler.readers.kineto.groups import Registry, is_unnamed

SOURCE = "Kineto traces"

# Rows that are kept of all traces together: some 180 bytes each while they are matched. Our own choice; a thousand
# ranks with five steps of 400 collectives have so many.
MAX_ROWS = 2_000_000

# Ends of one collective agree within microseconds on one host, and on several up to an offset of their clocks that
# does not change within a trace. Where they scatter by more than this, beyond a fixed offset of each rank, and by more
# than this share of the durations, they are not one collective. Our own thresholds.
MAX_SCATTER_US = 200.0
MAX_SCATTER_SHARE = 0.25

# Of a single collective the offset of a rank takes up all scatter.
MIN_FOR_SCATTER = 2


@dataclass(slots=True)
class Rows:
    """Collectives of one rank, shape (rows,), in the order of their starts."""

    group: NDArray[np.int32]
    op: NDArray[np.int32]
    seq: Ints
    """-1: not told."""
    nth: NDArray[np.int32]
    """Which of its kind it is in its step and group, from 0."""
    step: Ints
    duration_us: NDArray[np.float32]
    num_bytes: Ints
    end_s: Floats


def rows_of(
    *,
    group: Ints,
    op: Ints,
    seq: Ints,
    step: Ints,
    start_us: Floats,
    dur_us: Floats,
    num_bytes: Ints,
    base_s: float,
) -> Rows:
    """One rank's rows; kernels of one numbered collective become one row, from first start to last end."""
    order = np.lexsort((start_us, group))
    group, op, seq, step, num_bytes = (each[order] for each in (group, op, seq, step, num_bytes))
    start_us, dur_us = start_us[order], dur_us[order]
    end_us = start_us + dur_us
    begins = np.ones(len(seq), dtype=bool)
    begins[1:] = (seq[1:] < 0) | (seq[1:] != seq[:-1]) | (group[1:] != group[:-1])
    first = np.flatnonzero(begins)
    if len(first) < len(seq):
        end_us = np.maximum.reduceat(end_us, first)
        # Pauses between the kernels of one collective count neither as waiting nor as moving data.
        dur_us = np.add.reduceat(dur_us, first)
        num_bytes = np.maximum.reduceat(num_bytes, first)
        group, op, seq, step = (each[first] for each in (group, op, seq, step))
    return Rows(
        group=group.astype(np.int32),
        op=op.astype(np.int32),
        seq=seq,
        nth=_nth(_codes(group, step, op)).astype(np.int32),
        step=step,
        duration_us=dur_us.astype(np.float32),
        num_bytes=num_bytes,
        end_s=base_s + end_us / 1e6,
    )


def match(
    ranks: Sequence[int],
    rows: list[Rows],
    registry: Registry,
    places: Sequence[Place],
    world_size: int | None,
) -> tuple[CollectiveTimings | None, tuple[Note, ...]]:
    """All ranks' rows with numbers that are the same on all ranks; `rows` is emptied on the way.

    ranks, rows: one of each for each trace; a rank may have several traces of different steps.
    """
    lengths = np.array([len(each.group) for each in rows], dtype=np.int64)
    if not lengths.sum():
        return None, ()
    rank = np.repeat(np.array(ranks, dtype=np.int32), lengths)
    whole = _joined(rows)
    groups = tuple(registry.groups)
    whole.group = _one_of_variants(groups)[whole.group]
    if len(set(ranks)) < len(ranks):
        _forget_repeated(whole, rank)
    seq, is_matched = _numbers(whole, rank, len(groups))
    notes = _note_unmatched(int(np.count_nonzero(~is_matched)), len(is_matched))
    strangers = _not_one_communicator(whole, rank, seq, is_matched, groups)
    if strangers:
        is_matched &= ~np.isin(whole.group, np.array(strangers))
        notes += _note_strangers(len(strangers))
    if not is_matched.any():
        return None, notes
    keep = slice(None) if is_matched.all() else is_matched
    knows_time = bool(np.isfinite(whole.end_s).any())
    return CollectiveTimings(
        source=SOURCE,
        places=tuple(places),
        groups=groups,
        ops=tuple(registry.ops),
        rank=rank[keep],
        group=whole.group[keep],
        op=whole.op[keep],
        seq=seq[keep],
        duration_us=whole.duration_us[keep],
        step=whole.step[keep],
        num_bytes=whole.num_bytes[keep],
        end_s=whole.end_s[keep] if knows_time else None,
        world_size=world_size,
    ), notes


def _joined(rows: list[Rows]) -> Rows:
    """One after another; each column is let go once it is joined, so that there is never a second copy of all."""
    columns: dict[str, Any] = {}  # Any: columns have different types
    for column in fields(Rows):
        columns[column.name] = np.concatenate([getattr(each, column.name) for each in rows])
        for each in rows:
            setattr(each, column.name, None)
    rows.clear()
    return Rows(**columns)


def _one_of_variants(groups: Sequence[Group]) -> NDArray[np.int32]:
    """By group the one that stands for it: communicators that no trace names are one on all ranks or on none.

    A rank in no subgroup tells the ranks of its only group. Of others, which are in several, nobody knows which group a
    collective was in; so nobody knows of the first whether it was in the same.
    """
    stands = np.arange(len(groups), dtype=np.int32)
    unlisted = {
        group.name: number for number, group in enumerate(groups) if is_unnamed(group) and group.ranks is None
    }
    for number, group in enumerate(groups):
        if is_unnamed(group):
            stands[number] = unlisted.get(group.name, number)
    return stands


def _forget_repeated(rows: Rows, rank: NDArray[np.int32]) -> None:
    """Numbers of groups in which a rank tells one twice: the job was started again between two of its traces."""
    numbered = np.flatnonzero(rows.seq >= 0)
    codes = _codes(rows.group[numbered], rows.seq[numbered], rank[numbered])
    if len(codes) and int(codes.max()) + 1 < len(codes):
        again = numbered[np.bincount(codes)[codes] > 1]
        rows.seq[np.isin(rows.group, rows.group[again])] = -1


def _numbers(rows: Rows, rank: NDArray[np.int32], num_groups: int) -> tuple[Ints, NDArray[np.bool_]]:
    """A number for each row, the same on all ranks of its group; and whether there is one."""
    is_numbered = np.ones(num_groups, dtype=bool)
    is_numbered[rows.group[rows.seq < 0]] = False
    numbered = is_numbered[rows.group]
    seq = rows.seq.copy()
    counted = np.flatnonzero(~numbered)
    is_matched = numbered | (rows.step >= 0)
    if not len(counted):
        return seq, is_matched
    kind = _codes(rows.group[counted], rows.step[counted], rows.op[counted])
    # How many of a kind each rank has in a step: equal on all ranks that have any, or nothing is matched.
    of_rank, position = np.unique(kind * (int(rank.max()) + 1) + rank[counted], return_inverse=True)
    counts = np.bincount(position, minlength=len(of_rank))
    kind_of_pair = np.zeros(len(of_rank), dtype=np.int64)
    kind_of_pair[position] = kind
    least = np.full(int(kind.max()) + 1, np.iinfo(np.int64).max)
    most = np.zeros(int(kind.max()) + 1, dtype=np.int64)
    np.minimum.at(least, kind_of_pair, counts)
    np.maximum.at(most, kind_of_pair, counts)
    is_matched[counted] &= (least == most)[kind]
    numbers = _codes(rows.group[counted], rows.step[counted], rows.op[counted], rows.nth[counted])
    lowest = np.full(num_groups, np.iinfo(np.int64).max)
    np.minimum.at(lowest, rows.group[counted], numbers)
    seq[counted] = numbers - lowest[rows.group[counted]]
    return seq, is_matched


def _codes(*columns: NDArray[Any]) -> Ints:  # Any: integers of several widths
    """One dense number for each different row of these columns, in their order."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, dense = np.unique(column, return_inverse=True)
        code = np.unique(code * max(1, len(values)) + dense.reshape(-1), return_inverse=True)[1].reshape(-1)
    return code.astype(np.int64)


def _nth(codes: Ints) -> Ints:
    """For each element: how many equal ones precede it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(codes) else np.empty(0, int)
    nth = np.empty(len(codes), dtype=np.int64)
    nth[order] = np.arange(len(codes)) - np.repeat(begins, np.diff(np.append(begins, len(codes))))
    return nth


def _not_one_communicator(
    rows: Rows, rank: NDArray[np.int32], seq: Ints, is_matched: NDArray[np.bool_], groups: Sequence[Group]
) -> list[int]:
    """Groups whose ranks are not known and whose "collectives" do not end together."""
    strangers = []
    for number, group in enumerate(groups):
        if group.ranks is not None:
            continue
        mine = np.flatnonzero((rows.group == number) & is_matched)
        if len(mine) and _scatters(rows.end_s[mine], rows.duration_us[mine], rank[mine], seq[mine]):
            strangers.append(number)
    return strangers


def _scatters(end_s: Floats, duration_us: NDArray[np.float32], rank: NDArray[np.int32], seq: Ints) -> bool:
    collective = np.unique(seq, return_inverse=True)[1].reshape(-1)
    who = np.unique(rank, return_inverse=True)[1].reshape(-1)
    if who.max() == 0 or len(end_s) < MIN_FOR_SCATTER * (int(who.max()) + 1):
        return False
    apart_us = (end_s - _medians(end_s, collective)[collective]) * 1e6
    apart_us -= _medians(apart_us, who)[who]
    scatter_us = float(np.median(np.abs(apart_us)))
    return scatter_us > max(MAX_SCATTER_US, MAX_SCATTER_SHARE * float(np.median(duration_us)))


def _medians(values: Floats, codes: Ints) -> Floats:
    """Median of the values of each code."""
    order = np.lexsort((values, codes))
    counts = np.bincount(codes)
    begins = np.cumsum(counts) - counts
    ordered = values[order]
    result: Floats = (ordered[begins + (counts - 1) // 2] + ordered[begins + counts // 2]) / 2
    return result


def _note_unmatched(num: int, total: int) -> tuple[Note, ...]:
    if not num:
        return ()
    return (
        Note(
            kind=NoteKind.DROPPED_VALUES,
            text=f"{num:,} of {total:,} collectives could not be matched across ranks: they lie outside steps, or ranks "
            "have different numbers of them in a step",
        ),
    )


def _note_strangers(num: int) -> tuple[Note, ...]:
    return (
        Note(
            kind=NoteKind.LIMITED,
            text=f"collectives of {num} stream{'s' if num > 1 else ''} do not end together on all ranks and the traces "
            "do not say their process groups, so nothing is compared across ranks there",
            how="record with torch 2.2 or later, which writes the process group of each collective",
        ),
    )

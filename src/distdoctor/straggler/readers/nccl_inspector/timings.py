"""Records of one run as arrays, without doubles; nothing is copied that need not be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.collectives import CollectiveTimings, Group
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.readers.nccl_inspector.ranks import Run
from distdoctor.straggler.readers.nccl_inspector.records import Records

SOURCE = "NCCL Inspector"
COUNTED_HERE = "NCCL Inspector, ranks counted here"
"""Beside each number of a rank that the launcher may have given to another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What `Records` holds, as arrays of shape (records,) that share its memory."""

    member: NDArray[np.int32]
    seq: NDArray[np.int64]
    duration_us: NDArray[np.float32]
    num_bytes: NDArray[np.int64]
    end_s: NDArray[np.float64] | None

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Columns:
        """Only these rows, copied."""
        return Columns(
            member=self.member[rows],
            seq=self.seq[rows],
            duration_us=self.duration_us[rows],
            num_bytes=self.num_bytes[rows],
            end_s=None if self.end_s is None else self.end_s[rows],
        )


def columns_of(records: Records) -> Columns:
    """The records as arrays, not copied."""
    return Columns(
        member=np.frombuffer(records.member, dtype=np.int32),
        seq=np.frombuffer(records.seq, dtype=np.int64),
        duration_us=np.frombuffer(records.duration_us, dtype=np.float32),
        num_bytes=np.frombuffer(records.num_bytes, dtype=np.int64),
        end_s=None if records.end_s is None else np.frombuffer(records.end_s, dtype=np.float64),
    )


def timings_of(records: Records, run: Run, columns: Columns) -> tuple[CollectiveTimings | None, int, int]:
    """The run's collectives, how many records were told twice, and how many have no place in the run.

    `columns` holds the records of this run's members. None when nothing is left.
    """
    members = records.members
    groups: list[Group] = []
    ops: list[str] = []
    group_at: dict[tuple[str, int, str], int] = {}
    op_at: dict[str, int] = {}
    ranks_of_comm = _ranks_of_comms(records, run)
    group_of = np.full(len(members), -1, dtype=np.int32)
    op_of = np.full(len(members), -1, dtype=np.int32)
    rank_of = np.full(len(members), -1, dtype=np.int32)
    for index, rank in run.ranks.items():
        member = members[index]
        key = (member.comm, member.num_ranks, member.op)
        if key not in group_at:
            group_at[key] = len(groups)
            groups.append(
                Group(
                    name=f"{member.comm} {member.op}",
                    ranks=ranks_of_comm.get((member.comm, member.num_ranks)),
                    size=member.num_ranks,
                    what=records.comm_names.get(member.comm),
                )
            )
        group_of[index] = group_at[key]
        op_of[index] = op_at.setdefault(member.op, len(op_at))
        rank_of[index] = rank
    ops = list(op_at)
    placed = rank_of[columns.member] >= 0
    num_unplaced = len(placed) - int(np.count_nonzero(placed))
    if num_unplaced:
        columns = columns.take(placed)
    before = len(columns.member)
    if _may_repeat(records, run, group_of, rank_of):
        columns = columns.take(_last_of_each(columns, group_of, rank_of))
    if not len(columns.member):
        return None, 0, num_unplaced
    timings = CollectiveTimings(
        source=COUNTED_HERE if run.num_parts > 1 else SOURCE,
        places=tuple(
            Place(rank=rank, host=process.host or None) for rank, process in sorted(run.places.items())
        ),
        groups=tuple(groups),
        ops=tuple(ops),
        rank=rank_of[columns.member],
        group=group_of[columns.member],
        op=op_of[columns.member],
        seq=columns.seq,
        duration_us=columns.duration_us,
        step=np.full(len(columns.member), -1, dtype=np.int64),
        num_bytes=columns.num_bytes,
        end_s=columns.end_s,
        world_size=run.world_size,
    )
    return timings, before - len(columns.member), num_unplaced


def _ranks_of_comms(records: Records, run: Run) -> dict[tuple[str, int], tuple[int, ...]]:
    """Global ranks of each communicator of which every rank was seen."""
    seen: dict[tuple[str, int], dict[int, int]] = {}
    for index, rank in run.ranks.items():
        member = records.members[index]
        seen.setdefault((member.comm, member.num_ranks), {})[member.rank] = rank
    return {
        key: tuple(ranks[at] for at in sorted(ranks)) for key, ranks in seen.items() if len(ranks) == key[1]
    }


def _may_repeat(records: Records, run: Run, group_of: NDArray[np.int32], rank_of: NDArray[np.int32]) -> bool:
    """Whether a record can be there twice: numbers that do not only rise, or two members in one place."""
    if records.out_of_order & run.ranks.keys():
        return True
    seats = {(int(group_of[index]), int(rank_of[index])) for index in run.ranks}
    return len(seats) < len(run.ranks)


def _last_of_each(
    columns: Columns, group_of: NDArray[np.int32], rank_of: NDArray[np.int32]
) -> NDArray[np.intp]:
    """Of records with equal (group, rank, serial number) the row that was read last, in the order of rows."""
    order = np.lexsort((columns.seq, rank_of[columns.member], group_of[columns.member]))
    member, seq = columns.member[order], columns.seq[order]
    is_last = np.ones(len(order), dtype=bool)
    # lexsort is stable: of equal keys the last row stands last.
    is_last[:-1] = (
        (seq[1:] != seq[:-1])
        | (group_of[member[1:]] != group_of[member[:-1]])
        | (rank_of[member[1:]] != rank_of[member[:-1]])
    )
    return np.sort(order[is_last])

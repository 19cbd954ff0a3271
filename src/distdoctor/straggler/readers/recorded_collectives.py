"""Collectives of our own recordings: the rows of all ranks together, their groups and names put on one footing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from distdoctor.errors import InputError
from distdoctor.straggler.facts.collectives import CollectiveTimings, Group
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.columns import MAX_RANKS
from distdoctor.straggler.readers.rank_rows import MAX_MS
from distdoctor.straggler.recording_format import COLLECTIVE_COLUMNS, EVENT_GROUPS

# Rows of all ranks together: 60 million are 2.6 GB.
MAX_ROWS = 60_000_000

# Communicators and names of operations of one rank.
MAX_GROUPS = 100_000

Header = Mapping[str, object]


class RecordedCollectives:
    """Collects the files of ranks and makes one `CollectiveTimings` of them."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._groups: dict[Group, int] = {}
        self._ops: dict[str, int] = {}
        self._places: dict[int, Place] = {}
        self._world_sizes: list[int] = []
        self._columns: list[dict[str, NDArray[np.generic]]] = []
        self._num_rows = 0

    def add(
        self,
        path: str,
        parts: Sequence[tuple[Header, list[NDArray[np.float64]], Sequence[Header]]],
        options: ReadOptions,
    ) -> None:
        """One file: of each part its header, its rows and its events. Raises InputError with one line."""
        for header, rows, events in parts:
            rank = _whole(header.get("rank"))
            if rank is None or rank >= MAX_RANKS:
                raise InputError("its header tells no rank")
            names = header.get("columns", list(COLLECTIVE_COLUMNS))
            if not isinstance(names, list) or not {"group", "seq", "duration_us"} <= {
                str(name) for name in names
            }:
                raise InputError("its header names no columns group, seq and duration_us")
            groups, ops = self._lists(header, events)
            host, size = header.get("host"), _whole(header.get("world_size"))
            self._places.setdefault(
                rank, Place(rank=rank, host=host[:255] if isinstance(host, str) and host else None)
            )
            if size and size <= MAX_RANKS:
                self._world_sizes.append(size)
            for table in rows:
                self._add_rows(
                    path,
                    rank,
                    table,
                    names=[str(name) for name in names],
                    groups=groups,
                    ops=ops,
                    options=options,
                )

    def build(self) -> CollectiveTimings | None:
        """All rows; None when there are none."""
        if not self._num_rows:
            return None
        joined = {name: np.concatenate([each[name] for each in self._columns]) for name in self._columns[0]}
        return CollectiveTimings(
            source="distdoctor recordings",
            places=tuple(self._places[rank] for rank in sorted(self._places)),
            groups=tuple(self._groups),
            ops=tuple(self._ops),
            rank=joined["rank"].astype(np.int32),
            group=joined["group"].astype(np.int32),
            op=joined["op"].astype(np.int32),
            seq=joined["seq"].astype(np.int64),
            duration_us=joined["duration_us"].astype(np.float32),
            step=joined["step"].astype(np.int64),
            num_bytes=joined["bytes"].astype(np.int64),
            world_size=max(self._world_sizes) if self._world_sizes else None,
        )

    def _lists(self, header: Header, events: Sequence[Header]) -> tuple[list[int], list[int]]:
        """Our numbers of the file's groups and operations. Groups that are made later come in events, behind them."""
        groups: list[object] = list(_list(header.get("groups")))
        ops: list[object] = list(_list(header.get("ops")))
        for event in events:
            if event.get("event") == EVENT_GROUPS:
                groups += _list(event.get("groups"))
                ops += _list(event.get("ops"))
        if len(groups) > MAX_GROUPS or len(ops) > MAX_GROUPS:
            raise InputError(f"it names more than {MAX_GROUPS:,} groups")
        return (
            [
                self._groups.setdefault(_group(each, number), len(self._groups))
                for number, each in enumerate(groups)
            ],
            [self._ops.setdefault(str(each)[:64], len(self._ops)) for each in ops],
        )

    def _add_rows(
        self,
        path: str,
        rank: int,
        table: NDArray[np.float64],
        *,
        names: list[str],
        groups: list[int],
        ops: list[int],
        options: ReadOptions,
    ) -> None:
        column = {name: table[:, index] for index, name in enumerate(names)}
        nothing = np.full(len(table), np.nan)
        group, seq, duration = column["group"], column["seq"], column["duration_us"]
        step = column.get("step", nothing)
        with np.errstate(invalid="ignore"):
            is_kept = (group >= 0) & (group < len(groups)) & (seq >= 0) & (seq < 2**53)
            is_kept &= (duration >= 0) & (duration <= MAX_MS * 1e3)
            wanted = np.ones(len(table), dtype=bool)
            if options.first_step is not None:
                wanted &= ~(step < options.first_step)
            if options.last_step is not None:
                wanted &= ~(step > options.last_step)
        if not np.all(is_kept):
            self.notes.append(
                Note(
                    kind=NoteKind.DROPPED_VALUES,
                    text=f"{int(np.count_nonzero(~is_kept)):,} collectives of `{path}` have no duration or an unknown group and "
                    "were left out",
                )
            )
        rows = np.flatnonzero(is_kept & wanted)
        if self._num_rows + len(rows) > MAX_ROWS:
            raise InputError(
                f"more than {MAX_ROWS:,} collectives", hint="give a range of steps: `--steps 1000:3000`"
            )
        numbers = _whole_or(column.get("op", nothing)[rows], -1)
        is_known = (numbers >= 0) & (numbers < len(ops))
        op = np.asarray([*ops, 0], dtype=np.int32)[np.where(is_known, numbers, 0)]
        if not np.all(is_known):
            op[~is_known] = self._ops.setdefault("unknown", len(self._ops))
        self._columns.append(
            {
                "rank": np.full(len(rows), rank, dtype=np.int32),
                "group": np.asarray(groups, dtype=np.int32)[group[rows].astype(np.int64)],
                "op": op,
                "seq": seq[rows].astype(np.int64),
                "duration_us": duration[rows].astype(np.float32),
                "step": _whole_or(step[rows], -1),
                "bytes": _whole_or(column.get("bytes", nothing)[rows], -1),
            }
        )
        self._num_rows += len(rows)


def _whole_or(values: NDArray[np.float64], otherwise: int) -> NDArray[np.int64]:
    with np.errstate(invalid="ignore"):
        is_whole = (values >= 0) & (values < 2**53)
    return np.where(is_whole, values, otherwise).astype(np.int64)


def _group(told: object, number: int) -> Group:
    if not isinstance(told, dict):
        return Group(name=str(told)[:128])
    ranks = told.get("ranks")
    members = (
        tuple(sorted({rank for each in ranks if (rank := _whole(each)) is not None}))
        if isinstance(ranks, list)
        else None
    )
    size = _whole(told.get("size"))
    what = told.get("what")
    return Group(
        name=str(told.get("name", number))[:128],
        ranks=members or None,
        size=len(members) if members else size,
        what=what[:128] if isinstance(what, str) else None,
    )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None

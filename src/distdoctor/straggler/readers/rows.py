"""Rows of (rank, step, times) as arrays of ranks × steps: duplicates, restarts and changing world sizes named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distdoctor.errors import InputError
from distdoctor.straggler.column_medians import column_medians
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings, Times
from distdoctor.straggler.readers.rank_words import missing_ranks, named_ranks

# Values of one array of ranks × steps. 16,384 ranks × 5,000 steps are 82 million; four times that is 1.3 GB a section.
MAX_VALUES = 330_000_000

# A gap between steps that is so many times the median gap is a restart or a checkpoint, not a clock; a step back in
# time of more than this many seconds is a clock. Our own threshold.
CLOCK_BACK_S = 1.0


@dataclass(slots=True)
class _OneRank:
    """Chunks of one rank in the order in which they were read."""

    steps: list[NDArray[np.int64]] = field(default_factory=list)
    started_s: list[NDArray[np.float64]] = field(default_factory=list)
    values: dict[Section, list[tuple[int, Times]]] = field(default_factory=dict)
    """(rows before this chunk, the chunk)"""
    num_rows: int = 0


class StepRows:
    """Collects rows rank by rank, in any order, and makes `StepTimings` of them.

    When a rank tells a step twice (it was restarted from a checkpoint), the row that was added last counts: add the
    files of earlier attempts first. Nothing is summed or averaged.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, _OneRank] = {}
        self._places: dict[int, Place] = {}
        self._notes: list[Note] = []
        self.world_sizes: list[int] = []

    @property
    def is_empty(self) -> bool:
        """No row was added."""
        return not any(each.num_rows for each in self._ranks.values())

    def add(
        self,
        rank: int,
        steps: ArrayLike,
        sections: Mapping[Section, ArrayLike],
        *,
        started_s: ArrayLike | None = None,
    ) -> None:
        """Rows of one rank: `steps` of shape (n,), each section (n,) in milliseconds, NaN where not measured."""
        numbers = np.asarray(steps, dtype=np.int64)
        one = self._ranks.setdefault(rank, _OneRank())
        begins = np.full(len(numbers), np.nan) if started_s is None else np.asarray(started_s, np.float64)
        one.steps.append(numbers)
        one.started_s.append(begins)
        for section, values in sections.items():
            one.values.setdefault(section, []).append((one.num_rows, np.asarray(values, dtype=np.float32)))
        one.num_rows += len(numbers)

    def place(self, place: Place) -> None:
        """Where a rank runs; what is already known of it is kept where the new one says nothing."""
        known = self._places.get(place.rank)
        if known is not None:
            place = replace(
                place,
                host=place.host or known.host,
                local_rank=place.local_rank if place.local_rank is not None else known.local_rank,
                gpu=place.gpu or known.gpu,
                pod=place.pod or known.pod,
                coords=place.coords or known.coords,
            )
        self._places[place.rank] = place

    def note(self, kind: NoteKind, text: str, *, how: str | None = None) -> None:
        """Something odd that the reader saw."""
        self._notes.append(Note(kind=kind, text=text, how=how))

    def build(self, source: str) -> tuple[StepTimings | None, tuple[Note, ...]]:
        """The arrays and all notes; None when there is no row. Raises InputError when they would not fit."""
        ranks = sorted(rank for rank, one in self._ranks.items() if one.num_rows)
        if not ranks:
            return None, tuple(self._notes)
        joined = {rank: _in_order(self._ranks[rank]) for rank in ranks}
        steps = np.unique(np.concatenate([each.steps for each in joined.values()]))
        if len(ranks) * len(steps) > MAX_VALUES:
            raise InputError(
                f"{len(ranks):,} ranks × {len(steps):,} steps do not fit into memory",
                hint="give a range of steps: `--steps 1000:3000`, or pack the files first: `distdoctor straggler pack`",
            )
        sections = {
            section: self._array(section, ranks, joined, steps)
            for section in Section
            if any(section in self._ranks[rank].values for rank in ranks)
        }
        world_size = max(self.world_sizes) if self.world_sizes else None
        self._note_odd(joined, steps, world_size)
        timings = StepTimings(
            source=source,
            places=tuple(self._places.get(rank, Place(rank=rank)) for rank in ranks),
            steps=steps,
            sections=sections,
            started_s=_started(list(joined.values()), steps),
            world_size=world_size,
            told_again=sum(each.num_again for each in joined.values())
            / sum(self._ranks[rank].num_rows for rank in ranks),
        )
        return timings, tuple(self._notes)

    def _array(
        self, section: Section, ranks: list[int], joined: Mapping[int, _Ordered], steps: NDArray[np.int64]
    ) -> Times:
        array = np.full((len(ranks), len(steps)), np.nan, dtype=np.float32)
        for row, rank in enumerate(ranks):
            one = self._ranks[rank]
            chunks = one.values.get(section)
            if chunks is None:
                continue
            values = np.full(one.num_rows, np.nan, dtype=np.float32)
            for start, chunk in chunks:
                values[start : start + len(chunk)] = chunk
            order = joined[rank]
            array[row, np.searchsorted(steps, order.steps)] = values[order.kept]
        return array

    def _note_odd(
        self, joined: Mapping[int, _Ordered], steps: NDArray[np.int64], world_size: int | None
    ) -> None:
        ranks = list(joined)
        again = {rank: each.num_again for rank, each in joined.items() if each.num_again}
        if again:
            self.note(
                NoteKind.RESTARTED,
                f"{named_ranks(again)} tell{'' if len(again) > 1 else 's'} "
                f"up to {max(again.values())} steps twice, as after a restart; the later rows count: those further down, or "
                "of the file that begins later",
            )
        self._notes += missing_ranks(ranks, world_size)
        if len(set(self.world_sizes)) > 1:
            self.note(
                NoteKind.WORLD_CHANGED,
                f"the world size changed: {', '.join(str(size) for size in sorted(set(self.world_sizes)))} ranks",
            )
        partial = [rank for rank, each in joined.items() if len(each.steps) < 0.9 * len(steps)]
        if partial and len(ranks) > 1:
            fewest = min(len(joined[rank].steps) for rank in partial)
            self.note(
                NoteKind.DROPPED_VALUES,
                f"{named_ranks(partial)} lack{'' if len(partial) > 1 else 's'} steps that "
                f"others have (the fewest: {fewest} of {len(steps)})",
            )
        back = [rank for rank, each in joined.items() if each.clock_back]
        if back:
            self.note(
                NoteKind.CLOCK_JUMP,
                f"the clock of {named_ranks(back)} went back; durations do not depend on it, times of day do",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ordered:
    steps: NDArray[np.int64]
    """Distinct, ascending."""
    kept: NDArray[np.intp]
    """For each of them the row that counts: the last one told."""
    started_s: NDArray[np.float64]
    num_again: int
    clock_back: bool


def _in_order(one: _OneRank) -> _Ordered:
    steps = np.concatenate(one.steps)
    started = np.concatenate(one.started_s)
    # The last row of a step: of the reversed rows the first.
    distinct, first_reversed = np.unique(steps[::-1], return_index=True)
    kept = len(steps) - 1 - first_reversed
    begins = started[kept]
    known = begins[~np.isnan(begins)]
    return _Ordered(
        steps=distinct,
        kept=kept,
        started_s=begins,
        num_again=len(steps) - len(distinct),
        clock_back=bool(len(known) > 1 and np.min(np.diff(known)) < -CLOCK_BACK_S),
    )


def _started(all_ranks: list[_Ordered], steps: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """When each step began: of the first ranks that tell it (at most 64), the median, since clocks of hosts differ."""
    tellers = [each for each in all_ranks if not np.all(np.isnan(each.started_s))][:64]
    if not tellers:
        return None
    told = np.full((len(tellers), len(steps)), np.nan)
    for row, each in enumerate(tellers):
        told[row, np.searchsorted(steps, each.steps)] = each.started_s
    return column_medians(told)

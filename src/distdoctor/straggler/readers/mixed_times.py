"""Does a column called `bwd` hold waiting for other ranks? Told from the numbers that stand beside it.

Under DDP a timed backward pass holds the wait in its all-reduces, and then it is equally long on all ranks and names
nobody. A column of communication beside it lies either behind it or inside it, and that shows: either the parts with
the communication add up to the step, or the parts without it do. What does not show is taken as a wall time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import Times
from distdoctor.straggler.readers.column_names import Said
from distdoctor.straggler.readers.column_plan import Key
from distdoctor.straggler.readers.rank_rows import RankRows

# The sample: steps of so many ranks, so many steps. Enough for medians, and 100,000 rows at most.
SAMPLE_RANKS = 256
SAMPLE_STEPS = 400

# Fewer rows decide nothing. Our own choice.
MIN_ROWS = 8

# One of two sums fits better when what it leaves open varies less than half as much as with the other. Our own.
CLEAR_SHARE = 0.5

# Parts add up to a step when no more than this share of it is missing: loops spend a few per cent on nothing that
# is timed. Our own threshold.
CLOSE_SHARE = 0.05

# Dimensions of parallelism that put collectives into forward and backward; `dp` and `dp_replicate` do not.
_INSIDE_DIMENSIONS = frozenset({"tp", "pp", "cp", "ep", "dp_shard"})

_COMM = (Section.COMM, Section.WAIT, Section.TRANSFER)
_ALWAYS = (Section.DATA, Section.H2D, Section.OPTIMIZER, Section.OTHER)
_SPARSE = (Section.CHECKPOINT,)


class Comm(Enum):
    """Where the time of collectives lies."""

    NONE = "no column of it"
    OUTSIDE = "beside forward and backward"
    INSIDE = "inside forward and backward"
    UNKNOWN = "cannot be told"


class Use(Enum):
    """What becomes of a column."""

    AS_IS = "as it is"
    LESS_COMM = "without the collectives inside it"


@dataclass(slots=True, kw_only=True)
class Decision:
    """Which section each loosely named column becomes; those left out are not used."""

    sections: dict[Key, tuple[Section, Use]] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)


def decide(rows: Sequence[RankRows], places: Mapping[int, Place], columns: Mapping[Key, str]) -> Decision:
    """What the columns of one run are; `columns` are their names, for the notes."""
    keys = list(dict.fromkeys(key for each in rows for key in each.values))
    decision = Decision(sections={key: (key[0], Use.AS_IS) for key in keys if key[1] is Said.EXACTLY})
    loose = [key for key in keys if key[1] is not Said.EXACTLY]
    if not loose:
        return decision
    sample = _Sample.of(rows, keys)
    comm = sample.where_comm()
    names = {key: f"`{columns.get(key, key[0].value)}`" for key in keys}
    inside = sorted(_dimensions(places))
    knows_mesh = any(place.coords for place in places.values())
    for key in sorted(loose, key=lambda each: each[0].value):
        match key:
            case (Section.FORWARD, _):
                _forward(key, names[key], comm, inside, decision, knows_mesh=knows_mesh)
            case (Section.BACKWARD, _):
                _backward(key, names[key], comm, inside, decision, has_wall=_has(keys, Section.BACKWARD_WALL))
    own_passes = any(
        section in (Section.FORWARD, Section.BACKWARD) for section, _ in decision.sections.values()
    )
    for key in [key for key in loose if key[0] is Section.COMPUTE]:
        _compute(key, names[key], comm, sample, decision, beside_passes=own_passes)
    return decision


def _forward(
    key: Key, name: str, comm: Comm, inside: list[str], decision: Decision, *, knows_mesh: bool
) -> None:
    if inside and comm is not Comm.OUTSIDE:
        decision.sections[key] = (Section.FORWARD_WALL, Use.AS_IS)
        _limit(
            decision,
            f"{name} holds the collectives of {' and '.join(inside)} parallelism: own work and waiting in one",
        )
    elif (Section.FORWARD, Said.EXACTLY) not in decision.sections:
        decision.sections[key] = (Section.FORWARD, Use.AS_IS)
        if comm is Comm.NONE and not knows_mesh:
            _limit(
                decision,
                f"{name} is taken as own work, as it is under DDP; under FSDP or tensor parallelism it holds waiting too",
                how="name it fwd_wall_ms then, or add columns for the coordinates: dp_shard, tp, pp",
            )


def _backward(
    key: Key, name: str, comm: Comm, inside: list[str], decision: Decision, *, has_wall: bool
) -> None:
    if (Section.BACKWARD, Said.EXACTLY) in decision.sections:
        if not has_wall:
            decision.sections[key] = (Section.BACKWARD_WALL, Use.AS_IS)
    elif comm is Comm.OUTSIDE or (has_wall and not inside):
        decision.sections[key] = (Section.BACKWARD, Use.AS_IS)
    elif comm is Comm.INSIDE and not inside:
        decision.sections[key] = (Section.BACKWARD, Use.LESS_COMM)
        _limit(decision, f"{name} holds the time in collectives, by its sums; it was subtracted")
    elif not has_wall:
        decision.sections[key] = (Section.BACKWARD_WALL, Use.AS_IS)
        why = "" if comm is Comm.NONE else ", or whether it does cannot be told"
        _limit(
            decision,
            f"{name} holds the local backward pass and the wait in its collectives in one{why}; alone it names no "
            "slow rank",
            how="time the local part and the wait apart: `distdoctor straggler record`, or columns bwd_local, bwd_wait",
        )


def _compute(
    key: Key, name: str, comm: Comm, sample: _Sample, decision: Decision, *, beside_passes: bool
) -> None:
    if beside_passes:
        return
    if comm is Comm.INSIDE:
        decision.sections[key] = (Section.COMPUTE, Use.LESS_COMM)
        _limit(decision, f"{name} holds the time in collectives, by its sums; it was subtracted")
    elif comm is Comm.OUTSIDE or (
        key[1] is Said.LOOSELY and (comm is Comm.UNKNOWN or not sample.parts_fill_the_step())
    ):
        decision.sections[key] = (Section.COMPUTE, Use.AS_IS)
    elif not any(section is Section.BACKWARD_WALL for section, _ in decision.sections.values()):
        decision.sections[key] = (Section.BACKWARD_WALL, Use.AS_IS)
        _limit(
            decision,
            f"{name} holds work and waiting in one, since with the other parts it fills the whole step; it is shown "
            "as backward_wall and names no slow rank",
            how="add a column for the time in collectives, such as wait_ms or comm_ms",
        )


def _limit(decision: Decision, text: str, how: str | None = None) -> None:
    decision.notes.append(Note(kind=NoteKind.LIMITED, text=text, how=how))


def _has(keys: Sequence[Key], section: Section) -> bool:
    return any(key[0] is section for key in keys)


def _dimensions(places: Mapping[int, Place]) -> set[str]:
    """Dimensions of more than one coordinate that put collectives into forward and backward."""
    return {
        name
        for place in places.values()
        for name, value in place.coords.items()
        if name in _INSIDE_DIMENSIONS and value > 0
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """The same steps of some ranks; arrays of shape (rows,)."""

    steps: NDArray[np.int64]
    own: Times
    """Sum of the parts without collectives."""
    comm: tuple[Times, ...]
    """What the time in collectives may be: all columns of it together, or the first alone."""
    step: Times | None
    compute: Times | None

    @staticmethod
    def of(rows: Sequence[RankRows], keys: Sequence[Key]) -> _Sample:
        chosen = rows[:: _every(len(rows), SAMPLE_RANKS)]
        longest = max((each.steps for each in chosen), key=len, default=np.empty(0, np.int64))
        numbers = longest[:: _every(len(longest), SAMPLE_STEPS)]
        columns: dict[Key, list[Times]] = {key: [] for key in keys}
        steps: list[NDArray[np.int64]] = []
        for each in chosen:
            where = np.flatnonzero(np.isin(each.steps, numbers))
            steps.append(each.steps[where])
            for key in keys:
                found = each.values.get(key)
                columns[key].append(
                    np.full(len(where), np.nan, np.float32) if found is None else found[where]
                )
        joined = {key: np.concatenate(arrays) for key, arrays in columns.items() if arrays}
        return _Sample(
            steps=np.concatenate(steps) if steps else np.empty(0, np.int64),
            own=_own(joined),
            comm=_comm(joined),
            step=joined.get((Section.STEP, Said.EXACTLY)),
            compute=next((array for key, array in joined.items() if key[0] is Section.COMPUTE), None),
        )

    def where_comm(self) -> Comm:
        """Which of the two sums fits the steps, or, where there are none, is equal on all ranks."""
        if not self.comm:
            return Comm.NONE
        verdicts = [
            self._fits_step(comm) if self.step is not None else self._equal_over_ranks(comm)
            for comm in self.comm
        ]
        return next((verdict for verdict in verdicts if verdict is not Comm.UNKNOWN), Comm.UNKNOWN)

    def parts_fill_the_step(self) -> bool:
        """Whether the parts leave no room for waiting beside them: then waiting is inside one of them."""
        if self.step is None:
            return self._evens_out()
        with np.errstate(invalid="ignore", divide="ignore"):
            share = self.own / self.step
        share = share[np.isfinite(share)]
        return len(share) > 0 and float(np.median(share)) >= 1 - CLOSE_SHARE

    def _fits_step(self, comm: Times) -> Comm:
        if self.step is None:
            return Comm.UNKNOWN
        inside = self.step - self.own
        known = np.isfinite(inside) & np.isfinite(comm) & (self.step > 0)
        if np.count_nonzero(known) < MIN_ROWS:
            return Comm.UNKNOWN
        inside, comm, step = inside[known], comm[known], self.step[known]
        outside = inside - comm
        size = float(np.median(comm))
        slack = 0.02 * float(np.median(step))
        may_be_outside = float(np.median(outside)) >= -min(slack, CLEAR_SHARE * size)
        may_be_inside = float(np.median(inside)) >= -slack
        if not may_be_outside:
            return Comm.INSIDE if may_be_inside else Comm.UNKNOWN
        spread_outside, spread_inside = _spread(outside), _spread(inside)
        if spread_outside < CLEAR_SHARE * spread_inside:
            return Comm.OUTSIDE
        if may_be_inside and spread_inside < CLEAR_SHARE * spread_outside:
            return Comm.INSIDE
        # What varies does not tell; what is left open may: less than half of the communication, and little.
        left_outside, left_inside = float(np.median(np.abs(outside))), float(np.median(np.abs(inside)))
        little = CLOSE_SHARE * float(np.median(step))
        if left_outside < min(CLEAR_SHARE * size, little):
            return Comm.OUTSIDE
        if left_inside < min(CLEAR_SHARE * size, little):
            return Comm.INSIDE
        return Comm.UNKNOWN

    def _equal_over_ranks(self, comm: Times) -> Comm:
        """In synchronous training the sum that makes up the step is equal on all ranks."""
        alone, together = self._range_over_ranks(self.own), self._range_over_ranks(self.own + comm)
        if alone is None or together is None:
            return Comm.UNKNOWN
        if together < CLEAR_SHARE * alone:
            return Comm.OUTSIDE
        return Comm.INSIDE if alone < CLEAR_SHARE * together else Comm.UNKNOWN

    def _evens_out(self) -> bool:
        """Whether computing takes longer on a rank exactly where its other parts are shorter."""
        if self.compute is None:
            return False
        alone, together = self._range_over_ranks(self.compute), self._range_over_ranks(self.own)
        return alone is not None and together is not None and together < CLEAR_SHARE * alone

    def _range_over_ranks(self, values: Times) -> float | None:
        """Median over steps of the range over ranks; None when too few steps have two ranks."""
        known = np.isfinite(values)
        steps, values = self.steps[known], values[known]
        if not len(steps):
            return None
        order = np.argsort(steps, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(steps[order]) != 0])
        counts = np.diff(np.r_[starts, len(steps)])
        ranges = np.maximum.reduceat(values[order], starts) - np.minimum.reduceat(values[order], starts)
        ranges = ranges[counts > 1]
        return float(np.median(ranges)) if len(ranges) >= MIN_ROWS else None


def _own(columns: Mapping[Key, Times]) -> Times:
    """Parts without collectives, one column for each; what happens now and then counts as 0 elsewhere."""
    by_section: dict[Section, Times] = {}
    for (section, _), array in columns.items():
        by_section.setdefault(section, array)
    both = columns.get((Section.COMPUTE, Said.BOTH_PASSES))
    passes = [by_section[section] for section in (Section.FORWARD, Section.BACKWARD) if section in by_section]
    if not passes and Section.FORWARD_WALL in by_section:
        passes = [by_section[Section.FORWARD_WALL]]
    computing = passes or (
        [both] if both is not None else [by_section[Section.COMPUTE]] if Section.COMPUTE in by_section else []
    )
    parts = computing + [by_section[section] for section in _ALWAYS if section in by_section]
    sparse = [np.nan_to_num(by_section[section], nan=0.0) for section in _SPARSE if section in by_section]
    length = len(next(iter(columns.values()), np.empty(0)))
    total = np.zeros(length, dtype=np.float32)
    for part in [*parts, *sparse]:
        total = total + part
    return total if computing else np.full(length, np.nan, dtype=np.float32)


def _comm(columns: Mapping[Key, Times]) -> tuple[Times, ...]:
    found = [columns[section, Said.EXACTLY] for section in _COMM if (section, Said.EXACTLY) in columns]
    if not found:
        return ()
    together: Times = np.sum(np.stack(found), axis=0)
    return (together, found[0]) if len(found) > 1 else (together,)


def _spread(values: Times) -> float:
    quarter, three = np.percentile(values, [25, 75])
    return float(three - quarter)


def _every(num: int, most: int) -> int:
    """Stride that leaves at most `most` of `num`."""
    return max(1, -(-num // most))

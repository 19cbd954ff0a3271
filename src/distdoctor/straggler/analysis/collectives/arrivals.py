"""Who comes last to collectives, and how long do the others wait? Without comparing clocks.

A collective ends on all ranks at once. So how long a rank spent in it, less the shortest time that any rank of the
group spent, is how long it waited, and the rank of the shortest time came last. Only collectives in which every rank
needs every other one count, and only those of which all ranks are here. These are figures; who is slow is judged
elsewhere, with the own times beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.collectives.group_kinds import GroupKinds, kinds_of
from distdoctor.straggler.analysis.collectives.kinds import OpClass
from distdoctor.straggler.analysis.collectives.match import Matched, State, rows_of
from distdoctor.straggler.analysis.collectives.value_order import medians_by

# The shortest and the next shortest time must differ by more than this, or nobody was last. The share is of the
# shortest time. Our own thresholds; ends on one host were measured to differ by 1 to 7 us.
TIE_US = 2.0
TIE_SHARE = 0.01

# A rank is late in a kind of group when its lateness there is at least half of that in the kind in which it is
# latest: a delay before an inner group's collective is seen again, whole, in the next outer one. Our own threshold.
LATE_IN_ALL_SHARE = 0.5
# ... and at least this share of the median rank's time in collectives, or it is noise. Our own threshold.
LATE_FLOOR_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class KindArrivals:
    """Arrivals at collectives of one kind of group; arrays have shape (ranks,)."""

    name: str
    num_groups: int
    num_collectives: int
    """Of which all ranks are here."""
    num: NDArray[np.int64]
    """In how many of them a rank took part."""
    num_last: NDArray[np.int64]
    wait_ms: NDArray[np.float64]
    """Sum."""
    late_ms: NDArray[np.float64]
    """Sum of how much later it came than the median of its group; below 0: earlier. In a group of two the other one
    is the median."""
    median_late_us: NDArray[np.float32]
    """Per collective; NaN where a rank took part in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Arrivals over all kinds of groups; arrays have shape (ranks,)."""

    ranks: tuple[int, ...]
    hosts: tuple[str | None, ...]
    kinds: tuple[KindArrivals, ...]
    num: NDArray[np.int64]
    num_last: NDArray[np.int64]
    wait_ms: NDArray[np.float64]
    median_wait_us: NDArray[np.float32]
    wait_share: NDArray[np.float64]
    """Waiting over the time from the first collective to the last one by the rank's own clock; NaN where times of
    day are not told."""
    late_in_all: NDArray[np.bool_]
    """Late in every kind of group that it is in. Ranks that only wait for a slow one inside their group are late in
    outer groups too, and not in the inner one."""
    num_collectives: int
    """Complete ones that count as evidence."""
    num_nobody_last: int
    """Of these: all came at once, within the tie."""
    num_partial: int
    num_damaged: int
    num_rooted: int
    """Not evidence: some ranks may leave them early, or the name is not known."""
    num_point_to_point: int
    rows_left_out: int
    rows_twice: int


def arrivals_of(matched: Matched, kinds: GroupKinds | None = None) -> Arrivals:
    """Waiting and order of arrival of each rank, from complete collectives."""
    kinds = kinds or kinds_of(matched)
    num_ranks, num_kinds = len(matched.ranks), len(kinds.names)
    chosen = matched.has(State.COMPLETE) & (np.diff(matched.start) > 1)
    rows = rows_of(matched, chosen)
    rank, of = matched.row_rank[rows], matched.row_collective[rows]
    wait = matched.duration_us[rows] - matched.shortest_us[of]
    late = lateness_us(matched, rows)
    cell = kinds.kind_of[matched.group[of]].astype(np.int64) * num_ranks + rank
    shape = (num_kinds, num_ranks)

    def per_cell(weights: NDArray[np.float32] | None = None) -> NDArray[np.float64]:
        return np.asarray(np.bincount(cell, weights, minlength=num_kinds * num_ranks), np.float64).reshape(
            shape
        )

    num, wait_ms, late_ms = per_cell().astype(np.int64), per_cell(wait) / 1e3, per_cell(late) / 1e3
    spent = np.bincount(rank, matched.duration_us[rows], minlength=num_ranks) / 1e3
    median_late = medians_by(cell, late, num_kinds * num_ranks).reshape(shape)
    last_of = last_ranks(matched)
    someone = np.flatnonzero(last_of >= 0)
    last_cell = kinds.kind_of[matched.group[someone]].astype(np.int64) * num_ranks + last_of[someone]
    num_last = np.bincount(last_cell, minlength=num_kinds * num_ranks).reshape(shape)
    kind_of_collective = kinds.kind_of[matched.group]
    groups_of_kind = [np.unique(matched.group[chosen & (kind_of_collective == k)]) for k in range(num_kinds)]
    host_of = {place.rank: place.host for place in matched.timings.places}
    return Arrivals(
        ranks=tuple(matched.ranks.tolist()),
        hosts=tuple(host_of.get(each) for each in matched.ranks.tolist()),
        kinds=tuple(
            KindArrivals(
                name=kinds.names[k],
                num_groups=len(groups_of_kind[k]),
                num_collectives=int(np.sum(chosen & (kind_of_collective == k))),
                num=num[k],
                num_last=num_last[k],
                wait_ms=wait_ms[k],
                late_ms=late_ms[k],
                median_late_us=median_late[k],
            )
            for k in range(num_kinds)
            if len(groups_of_kind[k])
        ),
        num=num.sum(axis=0),
        num_last=num_last.sum(axis=0),
        wait_ms=wait_ms.sum(axis=0),
        median_wait_us=medians_by(rank, wait, num_ranks),
        wait_share=_share(matched, wait_ms.sum(axis=0)),
        late_in_all=_late_in_all(
            num, late_ms, float(np.median(spent[spent > 0])) if np.any(spent > 0) else 0.0
        ),
        num_collectives=int(np.sum(chosen)),
        num_nobody_last=int(np.sum(chosen)) - len(someone),
        num_partial=int(np.sum(matched.has(State.PARTIAL))),
        num_damaged=int(np.sum(matched.state == State.DAMAGED)),
        num_rooted=int(np.sum(matched.op_class == OpClass.OTHER)),
        num_point_to_point=int(np.sum(matched.op_class == OpClass.POINT_TO_POINT)),
        rows_left_out=matched.rows_left_out,
        rows_twice=matched.rows_twice,
    )


def last_ranks(matched: Matched) -> NDArray[np.int32]:
    """Who came last, for each collective, as an index into `ranks`; -1: nobody, or it cannot be told."""
    last = np.full(matched.num_collectives, -1, dtype=np.int32)
    with np.errstate(invalid="ignore"):
        gap = matched.second_us - matched.shortest_us
        clear = gap > np.maximum(TIE_US, TIE_SHARE * matched.shortest_us)
    clear &= matched.has(State.COMPLETE)
    of = matched.row_collective
    shortest = (matched.duration_us == matched.shortest_us[of]) & clear[of]
    last[of[shortest]] = matched.row_rank[shortest]
    return last


def lateness_us(matched: Matched, rows: NDArray[np.bool_]) -> NDArray[np.float32]:
    """How much later than the median of its group a row's rank came; of two the other one is the median."""
    of = matched.row_collective[rows]
    late = matched.median_us[of] - matched.duration_us[rows]
    late[np.diff(matched.start)[of] == 2] *= 2
    return np.asarray(late)


def _late_in_all(num: NDArray[np.int64], late_ms: NDArray[np.float64], spent_ms: float) -> NDArray[np.bool_]:
    took_part = num > 0
    most = late_ms.max(axis=0, initial=0.0)
    enough = late_ms >= np.maximum(LATE_IN_ALL_SHARE * most, LATE_FLOOR_SHARE * spent_ms)
    return np.asarray((most > 0) & np.all(enough | ~took_part, axis=0) & took_part.any(axis=0))


def _share(matched: Matched, wait_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    share = np.full(len(matched.ranks), np.nan)
    if matched.timings.end_s is None:
        return share
    end = matched.timings.end_s[matched.source_row]
    begin = end - matched.duration_us / 1e6
    first, last = np.full_like(share, np.inf), np.full_like(share, -np.inf)
    np.fmin.at(first, matched.row_rank, begin)
    np.fmax.at(last, matched.row_rank, end)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = wait_ms / ((last - first) * 1e3)
    # A clock that was set meanwhile, or none.
    share[~((share >= 0) & (share <= 1))] = np.nan
    return share

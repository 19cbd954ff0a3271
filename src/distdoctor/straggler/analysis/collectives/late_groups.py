"""Is a whole group late, while no rank is late inside it? Then the group is named and none of its ranks.

A pipeline stage with more work, a slow host whose GPUs are one tensor-parallel group, a group whose own collectives
are missing from the evidence: all of its ranks come equally late to collectives with others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.collectives.match import Matched
from distdoctor.straggler.analysis.collectives.wait_matrix import WaitMatrix
from distdoctor.straggler.analysis.peer_median import row_medians
from distdoctor.units import fold_ints

# A group stands out when its least late rank is later than so many median absolute deviations of all ranks, and by
# this share of the median time in collectives, and by this much. Our own thresholds.
STANDS_OUT_MADS = 5.0
STANDS_OUT_SHARE = 0.05
STANDS_OUT_MS = 0.05

# Its ranks are equally late when they differ by at most this share of the least. Our own threshold.
EQUALLY_LATE_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LateGroup:
    """Ranks that are late together, and the groups that hold them. Groups that share ranks are one."""

    names: tuple[str, ...]
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    late_ms: float
    """Of the least late of its ranks, median over steps."""


def late_groups(matrix: WaitMatrix, matched: Matched) -> tuple[LateGroup, ...]:
    """Groups of two and more ranks, at most half of those that wait for one another, latest first."""
    late = row_medians(matrix.late_ms)
    comm = row_medians(matrix.comm_ms)
    found: list[tuple[set[int], list[str]]] = []
    candidates = [*_recorded(matched), *_by_coordinates(matched)]
    for joined in matrix.joined:
        inside = set(joined.tolist())
        floor = _floor(late[joined], comm[joined])
        for name, here in candidates:
            if len(here) < 2 or 2 * len(here) > len(joined) or int(here[0]) not in inside:
                continue
            values = late[here]
            if not np.all(np.isfinite(values)) or values.min() < floor:
                continue
            if values.max() - values.min() > EQUALLY_LATE_SHARE * values.min():
                continue
            _add(found, set(here.tolist()), name)
    groups = [_group(matrix, matched, late, rows, names) for rows, names in found]
    return tuple(sorted(groups, key=lambda each: (-each.late_ms, each.ranks)))


def _recorded(matched: Matched) -> list[tuple[str, NDArray[np.int64]]]:
    return [(group.name, here) for group, here in zip(matched.timings.groups, matched.members, strict=True)]


def _by_coordinates(matched: Matched) -> list[tuple[str, NDArray[np.int64]]]:
    """Ranks that differ in one coordinate only: groups whose own collectives may not be in the evidence."""
    row_of = {int(rank): row for row, rank in enumerate(matched.ranks)}
    sets: dict[tuple[str, tuple[tuple[str, int], ...]], list[int]] = {}
    for place in matched.timings.places:
        if place.rank not in row_of:
            continue
        for dimension in place.coords:
            others = tuple(sorted((name, at) for name, at in place.coords.items() if name != dimension))
            sets.setdefault((dimension, others), []).append(row_of[place.rank])
    return [
        (f"{dimension} of ranks {fold_ints(matched.ranks[rows].tolist())}", np.asarray(sorted(rows)))
        for (dimension, _), rows in sets.items()
        if len(rows) > 1
    ]


def _floor(late: NDArray[np.float32], comm: NDArray[np.float32]) -> float:
    seen = late[np.isfinite(late)]
    if len(seen) < 4:
        return float("inf")
    mad = float(np.median(np.abs(seen - np.median(seen))))
    return max(STANDS_OUT_MADS * mad, STANDS_OUT_SHARE * float(np.nanmedian(comm)), STANDS_OUT_MS)


def _add(found: list[tuple[set[int], list[str]]], rows: set[int], name: str) -> None:
    """Groups that share a rank become one."""
    names = [name]
    for other in [each for each in found if each[0] & rows]:
        found.remove(other)
        rows = rows | other[0]
        names = other[1] + names
    found.append((rows, names))


def _group(
    matrix: WaitMatrix, matched: Matched, late: NDArray[np.float32], rows: set[int], names: list[str]
) -> LateGroup:
    ordered = sorted(rows)
    ranks = tuple(matrix.ranks[row] for row in ordered)
    host_of = {place.rank: place.host for place in matched.timings.places}
    hosts = dict.fromkeys(host for rank in ranks if (host := host_of.get(rank)) is not None)
    return LateGroup(
        names=tuple(dict.fromkeys(names)),
        ranks=ranks,
        hosts=tuple(hosts),
        late_ms=float(np.min(late[ordered])),
    )

"""Which communicators are of one kind (all tensor-parallel groups, all data-parallel ones), and which ranks are joined?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.collective_match import Matched

# What torch says of a communicator whose creator said nothing.
_TELLS_NOTHING = frozenset(("", "undefined", "default", "none", "unknown"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKinds:
    """Groups of one kind have as many ranks and the same purpose or, where none is told, the same distance between
    their ranks."""

    kind_of: NDArray[np.int32]
    """(groups,): which kind; -1 for groups without evidence."""
    names: tuple[str, ...]
    """One a kind: "mesh_dp", or "groups of 8 ranks, 4 apart" where the evidence tells no purpose."""
    regular: NDArray[np.bool_]
    """(kinds,): its groups run in step with one another; not for groups of no pattern."""


def kinds_of(matched: Matched) -> GroupKinds:
    """Groups sorted into kinds, by what the evidence calls them and by the pattern of their ranks."""
    kinds: dict[tuple[str, int, int], int] = {}
    kind_of = np.full(len(matched.members), -1, dtype=np.int32)
    for number in np.unique(matched.group):
        here = matched.members[number]
        size = int(matched.group_size[number])
        what = (matched.timings.groups[number].what or "").strip()
        what = "" if what.lower() in _TELLS_NOTHING else what
        distances = np.unique(np.diff(matched.ranks[here]))
        # Where ranks are missing their distance says nothing of the pattern.
        is_pattern = not what and len(distances) == 1 and len(here) == size
        apart = int(distances[0]) if is_pattern else 0
        kind_of[number] = kinds.setdefault((what, size, apart), len(kinds))
    return GroupKinds(
        kind_of=kind_of,
        names=_names(list(kinds)),
        regular=np.asarray([bool(what) or apart > 0 or size == 1 for what, size, apart in kinds], dtype=bool),
    )


def joined_ranks(matched: Matched) -> tuple[NDArray[np.int64], ...]:
    """Sets of ranks that wait for one another, directly or through others; indexes into `ranks`, ascending.

    Messages between pipeline stages join too: whoever waits there waits.
    """
    parent = list(range(len(matched.ranks)))

    def root(rank: int) -> int:
        while parent[rank] != rank:
            parent[rank] = parent[parent[rank]]
            rank = parent[rank]
        return rank

    for number in np.unique(matched.group):
        here = matched.members[number].tolist()
        for rank in here[1:]:
            parent[root(rank)] = root(here[0])
    roots = np.asarray([root(rank) for rank in range(len(parent))])
    return tuple(np.flatnonzero(roots == each) for each in np.unique(roots))


def _names(keys: list[tuple[str, int, int]]) -> tuple[str, ...]:
    whats = [what for what, _, _ in keys]
    names = []
    for what, size, apart in keys:
        ranks = f"{size} rank{'s' if size != 1 else ''}"
        pattern = f"{ranks}, {apart} apart" if apart > 1 else f"{ranks} in a row" if apart == 1 else ranks
        names.append(
            (what if whats.count(what) == 1 else f"{what} ({pattern})") if what else f"groups of {pattern}"
        )
    return tuple(names)

"""Which communicators are of one kind (all tensor-parallel groups, all data-parallel ones), and which ranks are joined?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.collectives.match import Matched

# Dimensions of a job are a handful; groups beyond so many kinds are one kind of no pattern. Our own limit.
MAX_KINDS = 32
_OTHERS = ("", 0, 0)

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
    numbers = np.unique(matched.group).tolist()
    purposes = [_purpose(matched, number) for number in numbers]
    num_of = Counter(purposes)
    kinds: dict[tuple[str, int, int], int] = {}
    kind_of = np.full(len(matched.members), -1, dtype=np.int32)
    told: list[set[str]] = []
    for number, purpose in zip(numbers, purposes, strict=True):
        # A purpose that one group alone has is a name of its own, and says nothing of its kind.
        shared = purpose if num_of[purpose] > 1 else ""
        size = int(matched.group_size[number])
        key = (shared, size, 0 if shared else _distance(matched, number))
        if key not in kinds and len(kinds) >= MAX_KINDS - 1:
            key = _OTHERS
        kind = kinds.setdefault(key, len(kinds))
        kind_of[number] = kind
        told += [set()] if kind == len(told) else []
        told[kind].add(purpose)
    return GroupKinds(
        kind_of=kind_of,
        names=_names(list(kinds), told),
        regular=np.asarray(
            [
                (bool(key[0]) or key[2] > 0) and _disjoint(matched, kind_of == kind)
                for key, kind in kinds.items()
            ],
            dtype=bool,
        ),
    )


def _purpose(matched: Matched, number: int) -> str:
    what = (matched.timings.groups[number].what or "").strip()
    return "" if what.lower() in _TELLS_NOTHING else what


def _distance(matched: Matched, number: int) -> int:
    """Between one rank and the next; 0 where it varies, or where ranks are missing and it is not known."""
    here = matched.members[number]
    distances = np.unique(np.diff(matched.ranks[here]))
    return int(distances[0]) if len(distances) == 1 and len(here) == matched.group_size[number] else 0


def _disjoint(matched: Matched, groups: NDArray[np.bool_]) -> bool:
    members = [matched.members[number] for number in np.flatnonzero(groups)]
    return len(np.unique(np.concatenate(members))) == sum(len(each) for each in members)


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


def _names(keys: list[tuple[str, int, int]], told: list[set[str]]) -> tuple[str, ...]:
    whats = [what for what, _, _ in keys]
    names = []
    for (what, size, apart), purposes in zip(keys, told, strict=True):
        ranks = f"{size} rank{'s' if size != 1 else ''}"
        pattern = f"{ranks}, {apart} apart" if apart > 1 else f"{ranks} in a row" if apart == 1 else ranks
        if (what, size, apart) == _OTHERS:
            names.append("other groups")
        elif what:
            names.append(what if whats.count(what) == 1 else f"{what} ({ranks})")
        else:
            alone = next(iter(purposes)) if len(purposes) == 1 else ""
            names.append(alone or f"groups of {pattern}")
    return tuple(names)

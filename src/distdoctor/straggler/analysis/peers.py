"""With whom a rank may be compared: those that do the same work on other data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.places import Place

# Dimensions whose ranks do the same work on other data.
DATA_DIMENSIONS = frozenset(
    ("dp", "dp_replicate", "dp_shard", "fsdp", "ddp", "replicate", "shard", "data", "hsdp", "dp_cp")
)

# Of the dimensions in which work may differ, those that are given up first when groups are too small: ranks of one
# tensor-parallel group hold equal slices by design, context-parallel ones nearly so.
_GIVEN_UP = (("tp", "etp"), ("cp", "sp", "dsp"), ("ep",))

# Of these, dimensions whose ranks have unequal work for good reasons: experts that more tokens choose, the later parts of
# a sequence under a causal mask.
UNEVEN_DIMENSIONS = frozenset(("cp", "sp", "dsp", "ep"))

# A coordinate of ours: ranks that wait for one another, directly or through others. Ranks of different sets cannot be
# compared, whatever else is known of them.
WAITING_SET = "waiting set"

# A claim across ranks needs that many ranks of one kind: of two nobody can say who is slow, of three only by luck.
MIN_PEERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Groups of ranks that do the same work."""

    group_of: NDArray[np.int32]
    """Shape (ranks,): which group a rank is in, counted from 0."""
    keys: tuple[tuple[tuple[str, int], ...], ...]
    """The coordinates that a group's ranks share, by group: `(("pp", 3),)`."""
    known: bool
    """The evidence tells coordinates. False: all ranks are taken as one kind, which may be wrong."""
    given_up: tuple[str, ...] = ()
    """Dimensions in which ranks of a group differ after all, because groups would be too small."""
    is_whole: bool = True
    """Each rank has coordinates of its own: no dimension is left untold."""

    @property
    def num_groups(self) -> int:
        """How many kinds of ranks there are."""
        return len(self.keys)

    def members(self, group: int) -> NDArray[np.intp]:
        """Rows of one group."""
        return np.flatnonzero(self.group_of == group)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Ranks in each group."""
        return np.bincount(self.group_of, minlength=self.num_groups)

    def words(self) -> str:
        """ "ranks of the same pp and tp", "all ranks (no parallel coordinates in the evidence)"."""
        if not self.known:
            return "all other ranks (the evidence tells no parallel coordinates)"
        names = list(dict.fromkeys(name for key in self.keys for name, _ in key))
        other = f", whatever their {' and '.join(self.given_up)}" if self.given_up else ""
        if not names:
            return f"all other ranks{other or ' (data parallel)'}"
        return f"ranks of the same {' and '.join(names)}{other}"


def peers_of(places: Sequence[Place]) -> Peers:
    """Ranks by their coordinates in the dimensions where work differs; coarser where groups would be too small.

    A pipeline stage is never given up: stages have different work. Ranks with equal coordinates of data parallelism, and
    no others, differ in a dimension that nobody told: that is no better than no coordinates.
    """
    names = sorted({name for place in places for name in place.coords if name not in DATA_DIMENSIONS})
    is_whole = len({tuple(sorted(place.coords.items())) for place in places}) == len(places)
    known = bool(places) and all(set(place.coords) - {WAITING_SET} for place in places)
    if not known or not (set(names) - {WAITING_SET} or is_whole):
        return _grouped(places, (WAITING_SET,), known=False)
    peers = replace(_grouped(places, names, known=True), is_whole=is_whole)
    given_up: list[str] = []
    for dimensions in _GIVEN_UP:
        if min(peers.sizes) >= MIN_PEERS:
            break
        if any(name in names for name in dimensions):
            given_up += [name for name in names if name in dimensions]
            names = [name for name in names if name not in dimensions]
            peers = replace(_grouped(places, names, known=True), is_whole=is_whole, given_up=tuple(given_up))
    return peers


def _grouped(places: Sequence[Place], names: Sequence[str], *, known: bool) -> Peers:
    keys: dict[tuple[tuple[str, int], ...], int] = {}
    group_of = np.zeros(len(places), dtype=np.int32)
    for row, place in enumerate(places):
        key = tuple((name, place.coords[name]) for name in names if name in place.coords)
        group_of[row] = keys.setdefault(key, len(keys))
    return Peers(group_of=group_of, keys=tuple(keys), known=known)

"""Slow ranks that form a pattern: a block, or every k-th. Without coordinates nobody can say what they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

# From this share of the ranks on it is a group of ranks rather than some slow ones. Our own threshold: pipelines of
# more than 16 stages are rare.
MIN_GROUP_SHARE = 1 / 16


class Shape(Enum):
    """What a set of ranks looks like."""

    SCATTERED = "scattered"
    BLOCK = "one block"
    STRIDED = "every k-th rank"
    MANY = "many ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPattern:
    """The set of slow ranks and what it could be."""

    shape: Shape
    ranks: tuple[int, ...]
    at_end: bool = False
    """The block holds the first or the last rank: where pipelines have their embedding and their head."""


def pattern_of(ranks: Sequence[int], num_ranks: int) -> RankPattern:
    """What the slow `ranks` of `num_ranks` look like; SCATTERED for a single rank."""
    ordered = tuple(sorted(ranks))
    if len(ordered) < 2:
        return RankPattern(shape=Shape.SCATTERED, ranks=ordered)
    gaps = np.diff(ordered)
    is_group = len(ordered) >= max(2, num_ranks * MIN_GROUP_SHARE)
    if bool(np.all(gaps == 1)):
        divides = num_ranks % len(ordered) == 0 and ordered[0] % len(ordered) == 0
        if is_group and divides:
            at_end = ordered[0] == 0 or ordered[-1] == num_ranks - 1
            return RankPattern(shape=Shape.BLOCK, ranks=ordered, at_end=at_end)
    elif bool(np.all(gaps == gaps[0])) and is_group and len(ordered) * int(gaps[0]) >= num_ranks:
        return RankPattern(shape=Shape.STRIDED, ranks=ordered)
    if len(ordered) > max(2, num_ranks / 4):
        return RankPattern(shape=Shape.MANY, ranks=ordered)
    return RankPattern(shape=Shape.SCATTERED, ranks=ordered)

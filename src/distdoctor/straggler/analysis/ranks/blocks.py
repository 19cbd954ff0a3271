"""Slow ranks that form a pattern: a block, or every k-th. Without coordinates nobody can say what they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

# A block or a stride counts as slow when this share of it crossed the threshold: single ranks stay below by noise.
MIN_FILLED = 0.75

# More slow ranks than this share, in no such pattern, are no single machines either. Our own threshold.
MANY_SHARE = 1 / 8
_AT_LEAST = 4


class Shape(Enum):
    """What a set of ranks looks like."""

    SCATTERED = "scattered"
    BLOCK = "one block"
    STRIDED = "every k-th rank"
    MANY = "many ranks"
    HALF = "half of all ranks or more"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPattern:
    """The set of slow ranks and what it could be."""

    shape: Shape
    ranks: tuple[int, ...]
    at_end: bool = False
    """The block holds the first or the last rank: where pipelines have their embedding and their head."""


def pattern_of(ranks: Sequence[int], num_ranks: int) -> RankPattern:
    """What the slow `ranks` of `num_ranks` look like; SCATTERED for a single rank.

    Blocks and strides are those that divide the ranks evenly, as dimensions of a mesh do.
    """
    ordered = tuple(sorted(ranks))
    if len(ordered) < 2:
        return RankPattern(shape=Shape.SCATTERED, ranks=ordered)
    numbers = np.array(ordered)
    for size in range(2, num_ranks // 2 + 1):
        if num_ranks % size:
            continue
        blocks = numbers // size
        if blocks[0] == blocks[-1] and len(ordered) >= MIN_FILLED * size:
            last = num_ranks // size - 1
            return RankPattern(shape=Shape.BLOCK, ranks=ordered, at_end=int(blocks[0]) in (0, last))
        rests = numbers % size
        if np.all(rests == rests[0]) and len(ordered) >= MIN_FILLED * (num_ranks // size):
            return RankPattern(shape=Shape.STRIDED, ranks=ordered)
    if 2 * len(ordered) >= num_ranks:
        return RankPattern(shape=Shape.HALF, ranks=ordered)
    if len(ordered) >= max(_AT_LEAST, num_ranks * MANY_SHARE):
        return RankPattern(shape=Shape.MANY, ranks=ordered)
    return RankPattern(shape=Shape.SCATTERED, ranks=ordered)

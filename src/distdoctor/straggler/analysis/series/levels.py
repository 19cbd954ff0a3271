"""Between two changes: is the level flat, and is a change a jump or part of a slow drift?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from distdoctor.straggler.analysis.series.changes import MIN_LENGTH, Split
from distdoctor.straggler.analysis.series.running import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A stretch of values without a jump. Times in the unit of the series."""

    start: int
    """Its first value."""
    end: int
    """One past its last value."""
    time: float
    """What a step of it usually takes."""
    first: float
    """... at its beginning, and below at its end: both equal `time` where nothing drifts."""
    last: float
    score: float = 0.0
    """How clearly it drifts, in standard errors; 0: flat."""

    @property
    def size(self) -> int:
        """Values."""
        return self.end - self.start

    @property
    def drift(self) -> float:
        """Time at the end over time at the beginning."""
        return self.last / self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A jump between two levels."""

    index: int
    """The first value of the new level."""
    ratio: float
    """Time after over time before."""
    num_before: int
    """Values of the level before, and below of the one after."""
    num_after: int
    score: float
    """Difference in standard errors."""


def levels_of(
    drawn_in: Values, splits: Sequence[Split], offset: int
) -> tuple[tuple[Level, ...], tuple[Change, ...]]:
    """Levels and the jumps between them, one fewer.

    drawn_in: logarithms of times without far outliers, shape (values,). offset: added to every index.
    """
    edges = [0, *(split.index for split in splits), len(drawn_in)]
    jumps = [
        split
        for at, split in enumerate(splits)
        if not _is_gradual(drawn_in[edges[at] : edges[at + 2]], split.index - edges[at])
    ]
    bounds = [0, *(split.index for split in jumps), len(drawn_in)]
    levels = []
    for start, end in pairwise(bounds):
        inside = [split.score for split in splits if start < split.index < end]
        levels.append(_level(drawn_in[start:end], start + offset, max(inside, default=0.0)))
    changes = tuple(
        Change(
            index=split.index + offset,
            ratio=after.first / before.last,
            num_before=before.size,
            num_after=after.size,
            score=split.score,
        )
        for split, before, after in zip(jumps, levels[:-1], levels[1:], strict=True)
    )
    return tuple(levels), changes


def _is_gradual(values: Values, split: int) -> bool:
    """Whether a line with a knee at the split fits better than two levels; both have three numbers to choose."""
    at = np.arange(len(values), dtype=np.float64) - split
    knee = np.stack([np.ones_like(at), np.minimum(at, 0.0), np.maximum(at, 0.0)], axis=1)
    fitted = knee @ np.linalg.lstsq(knee, values, rcond=None)[0]
    before, after = values[:split], values[split:]
    steps = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    return float(((values - fitted) ** 2).sum()) < steps


def _level(values: Values, start: int, score: float) -> Level:
    time = float(np.exp(values.mean()))
    first = last = time
    if score:
        end = max(MIN_LENGTH, len(values) // 10)
        first, last = float(np.exp(values[:end].mean())), float(np.exp(values[-end:].mean()))
    return Level(start=start, end=start + len(values), time=time, first=first, last=last, score=score)

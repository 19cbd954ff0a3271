"""Lengths of unions of intervals: how long at least one of several things was going on. Times in microseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def union_us(start: Floats, end: Floats) -> float:
    """How long at least one of the intervals lasted; arrays of shape (intervals,), in any order."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    begins, ends = start[order], end[order]
    reached = np.maximum.accumulate(ends)
    new = np.maximum(begins[1:], reached[:-1])
    return float(ends[0] - begins[0] + np.sum(np.maximum(ends[1:] - new, 0.0)))


@dataclass(frozen=True, slots=True)
class Busy:
    """The union of many intervals, to be asked for the part of it before a time."""

    begins: Floats
    """Of disjoint spans, ascending."""
    ends: Floats
    before: Floats
    """Length of all spans before each."""

    @classmethod
    def of(cls, start: Floats, end: Floats) -> Busy:
        """The union of intervals of shape (intervals,), in any order."""
        order = np.argsort(start, kind="stable")
        begins, ends = start[order], end[order]
        reached = np.maximum.accumulate(ends) if len(ends) else ends
        is_first = np.ones(len(begins), dtype=bool)
        is_first[1:] = begins[1:] > reached[:-1]
        firsts = np.flatnonzero(is_first)
        lasts = np.append(firsts[1:] - 1, len(begins) - 1) if len(firsts) else firsts
        spans, span_ends = begins[firsts], reached[lasts]
        lengths = span_ends - spans
        return cls(spans, span_ends, np.cumsum(lengths) - lengths)

    def until(self, times: Floats) -> Floats:
        """How much of the union lies before each of `times`."""
        if not len(self.begins):
            return np.zeros(len(times))
        at = np.searchsorted(self.begins, times, side="right") - 1
        inside = np.maximum(at, 0)
        length = self.before[inside] + np.minimum(times, self.ends[inside]) - self.begins[inside]
        return np.where(at < 0, 0.0, length)

"""How do a few repeats of one measurement lie? Medians, percentiles, spread and clusters of short sequences.

Pure Python: a cell has three to ten repeats, and a table is judged without numpy. The samples of a live run
(thousands of iterations) are condensed elsewhere, by numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

# Two modes of one cell are at least this far apart. Our own threshold; 4.61 against 2.11 GB/s (2.2-fold) was seen
# in three repetitions of one all_gather: eunomia-bpf/nccl-eBPF, docs/tmp/allgather-default-vs-simple.md.
CLUSTER_GAP = 1.4

# ... and the members of one mode agree at least this well. Our own threshold.
CLUSTER_WIDTH = 1.15


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises ValueError when there is none."""
    if not values:
        raise ValueError("the median of no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile, as nccl-tests: always one of the values; p99 of fewer than 100 is the largest.

    `percent` is above 0 and at most 100. Raises ValueError otherwise, and when there are no values.
    """
    if not values or not 0 < percent <= 100:
        raise ValueError(f"percentile {percent} of {len(values)} values")
    ordered = sorted(values)
    return ordered[max(1, math.ceil(percent * len(ordered) / 100)) - 1]


def relative_spread(repeats: Sequence[float]) -> float | None:
    """(largest - smallest) / median; None for fewer than two repeats or a median of 0."""
    if len(repeats) < 2:
        return None
    middle = median(repeats)
    return (max(repeats) - min(repeats)) / middle if middle > 0 else None


def max_over_min(repeats: Sequence[float]) -> float | None:
    """Largest over smallest: 1.5 reads "differ 1.5-fold"; None for fewer than two repeats or a smallest of 0."""
    if len(repeats) < 2 or min(repeats) <= 0:
        return None
    return max(repeats) / min(repeats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clusters:
    """Repeats of one cell that fall in two modes; same unit as the repeats."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median of the high mode over median of the low one."""
        return median(self.high) / median(self.low)


def two_clusters(repeats: Sequence[float]) -> Clusters | None:
    """The two modes of at least three positive repeats, or None when they lie in one or in no clear group."""
    ordered = sorted(repeats)
    if len(ordered) < 3 or ordered[0] <= 0:
        return None
    gaps = [high / low for low, high in pairwise(ordered)]
    cut = gaps.index(max(gaps)) + 1
    low, high = tuple(ordered[:cut]), tuple(ordered[cut:])
    widths = (low[-1] / low[0], high[-1] / high[0])
    if gaps[cut - 1] < CLUSTER_GAP or max(widths) > CLUSTER_WIDTH:
        return None
    return Clusters(low=low, high=high)

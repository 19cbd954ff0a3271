"""Which ends of a matrix send or receive slowly, and which single cells are slow though their ends are not.

The rule is that of exoneration: noise only makes transfers slower, so one fast transfer shows that both its ends
can. An end is suspected when not even its best transfer, with any partner that is not suspected itself, comes near
what the others reach among themselves. How near is near depends on the noise (`matrix_cells.slow_ratio`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Generic, TypeVar

# The best of a suspected end must lie this many deviations (of the logarithm) below the others' median; a single
# cell, which was measured less often, more. Our own choice.
END_DEVIATIONS = 2.0
LINK_DEVIATIONS = 3.0

# At least so many partners that are not suspected themselves; with one, either of the two may be slow.
MIN_PARTNERS = 2

# Of the ends, at most this part can be slow "beside the others"; when more are, nobody is.
MAX_SLOW_PART = 0.5

# The ratio is halved at most this often less one: an end that is slow at the last is 16 times slower. Our own choice.
MAX_STRICTNESS = 4

# Makes a median absolute deviation comparable with a standard deviation (normal distribution).
_MAD_TO_DEVIATION = 1.4826

End = TypeVar("End", bound=Hashable)


class Direction(str, Enum):
    """Which way an end is slow."""

    EGRESS = "egress"
    INGRESS = "ingress"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowEnd(Generic[End]):
    """One suspected end of transfers."""

    end: End
    direction: Direction
    ratio: float
    """Median of its cells over the median of the others' among themselves; of the worse direction for both."""
    cells: tuple[tuple[End, End], ...]
    """Its slow cells with partners that are not suspected."""
    gbps: float
    others_gbps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowCell(Generic[End]):
    """One suspected direction between two ends."""

    source: End
    target: End
    ratio: float
    """Over the lower of its ends' medians with others."""
    gbps: float
    others_gbps: float


def slow_ends(cells: Mapping[tuple[End, End], float], slow_ratio: float) -> list[SlowEnd[End]]:
    """Suspected ends, slowest first; none when more than half are slow, or when there is nobody to compare with.

    `slow_ratio`: slower than this part of what the others reach is slow. Where noise makes more than half look slow,
    a stricter ratio tells whether some of them are far slower still.
    """
    for strictness in range(MAX_STRICTNESS):
        found = _slow_ends(cells, slow_ratio / 2**strictness)
        if found is not None:
            return found
    return []


def _slow_ends(cells: Mapping[tuple[End, End], float], slow_ratio: float) -> list[SlowEnd[End]] | None:
    """Suspects by one ratio; None when they are more than half of the ends."""
    outgoing, incoming = _best_by_end(cells, 0), _best_by_end(cells, 1)
    senders, receivers = _far_below(outgoing, slow_ratio), _far_below(incoming, slow_ratio)
    ends = outgoing.keys() | incoming.keys()
    suspected = senders | receivers
    if len(suspected) > MAX_SLOW_PART * len(ends):
        return None
    others = [speed for pair, speed in cells.items() if not suspected & set(pair)]
    found: dict[End, list[SlowEnd[End]]] = {}
    for direction, members in ((Direction.EGRESS, senders), (Direction.INGRESS, receivers)):
        for end in members:
            slow = _judge_end(
                cells, end, direction, suspected=suspected, others=others, slow_ratio=slow_ratio
            )
            if slow is not None:
                found.setdefault(end, []).append(slow)
    return sorted((_join(each) for each in found.values()), key=lambda each: (each.ratio, str(each.end)))


def slow_cells(
    cells: Mapping[tuple[End, End], float], ends: Sequence[SlowEnd[End]], slow_ratio: float
) -> list[SlowCell[End]]:
    """Suspected single cells, slowest first: far below the other cells of both their ends.

    What a slow end makes of its own cells is in the comparison: a link of it is suspected only when it is far slower
    still. A cell whose end has no other partner is no suspect: nothing tells the link from the end.
    """
    senders = {each.end for each in ends if each.direction is not Direction.INGRESS}
    receivers = {each.end for each in ends if each.direction is not Direction.EGRESS}
    usual = [speed for pair, speed in cells.items() if pair[0] not in senders and pair[1] not in receivers]
    if len(usual) < MIN_PARTNERS:
        return []
    by_source, by_target = _by_end(cells, 0), _by_end(cells, 1)
    middle, deviation = _middle_and_deviation([math.log(speed) for speed in usual])
    bound = middle - max(-math.log(slow_ratio), LINK_DEVIATIONS * deviation)
    found: list[SlowCell[End]] = []
    for pair, speed in cells.items():
        if math.log(speed) > bound:
            continue
        source, target = pair
        # Not with others that are slow for a reason of their own at the far end.
        from_source = [
            other for each, other in by_source[source] if each != pair and each[1] not in receivers - {target}
        ]
        to_target = [
            other for each, other in by_target[target] if each != pair and each[0] not in senders - {source}
        ]
        if not from_source or not to_target:
            continue
        reference = min(median(from_source), median(to_target))
        if speed < slow_ratio * reference:
            found.append(
                SlowCell(
                    source=source,
                    target=target,
                    ratio=speed / reference,
                    gbps=speed,
                    others_gbps=reference,
                )
            )
    return sorted(found, key=lambda each: (each.ratio, str(each.source), str(each.target)))


def _judge_end(
    cells: Mapping[tuple[End, End], float],
    end: End,
    direction: Direction,
    *,
    suspected: set[End],
    others: Sequence[float],
    slow_ratio: float,
) -> SlowEnd[End] | None:
    """The end as a suspect, unless its cells with good partners, or the noise among the others, clear it."""
    side = 0 if direction is Direction.EGRESS else 1
    own = {
        pair: speed for pair, speed in cells.items() if pair[side] == end and pair[1 - side] not in suspected
    }
    if len(own) < MIN_PARTNERS or len(others) < MIN_PARTNERS:
        return None
    best, reference = max(own.values()), median(others)
    middle, deviation = _middle_and_deviation([math.log(speed) for speed in others])
    far = max(-math.log(slow_ratio), END_DEVIATIONS * deviation)
    lower_quarter = sorted(others)[len(others) // 4]
    if math.log(best) > middle - far or best >= lower_quarter:
        return None
    return SlowEnd(
        end=end,
        direction=direction,
        ratio=median(own.values()) / reference,
        cells=tuple(own),
        gbps=median(own.values()),
        others_gbps=reference,
    )


def _join(directions: Sequence[SlowEnd[End]]) -> SlowEnd[End]:
    worse = min(directions, key=lambda each: each.ratio)
    return SlowEnd(
        end=worse.end,
        direction=worse.direction if len(directions) == 1 else Direction.BOTH,
        ratio=worse.ratio,
        cells=tuple(pair for each in directions for pair in each.cells),
        gbps=worse.gbps,
        others_gbps=worse.others_gbps,
    )


def _best_by_end(cells: Mapping[tuple[End, End], float], side: int) -> dict[End, float]:
    best: dict[End, float] = {}
    for pair, speed in cells.items():
        best[pair[side]] = max(best.get(pair[side], 0.0), speed)
    return best


def _far_below(best: Mapping[End, float], slow_ratio: float) -> set[End]:
    """Ends whose best is far below the upper quarter's: that is reached while at most half of them are slow."""
    if len(best) < MIN_PARTNERS + 1:
        return set()
    upper = sorted(best.values(), reverse=True)[(len(best) - 1) // 4]
    return {end for end, speed in best.items() if speed < slow_ratio * upper}


def _by_end(
    cells: Mapping[tuple[End, End], float], side: int
) -> dict[End, list[tuple[tuple[End, End], float]]]:
    grouped: dict[End, list[tuple[tuple[End, End], float]]] = {}
    for pair, speed in cells.items():
        grouped.setdefault(pair[side], []).append((pair, speed))
    return grouped


def _middle_and_deviation(logs: Sequence[float]) -> tuple[float, float]:
    middle = median(logs)
    return middle, _MAD_TO_DEVIATION * median(abs(each - middle) for each in logs)

"""How fast each host sends and receives beside the others: one number each, for the table that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from distdoctor.nccl_bench.analysis.slow_ends import End

# With more ends than this one of them does not move the median of all, and leaving it out would cost minutes.
MAX_LEFT_OUT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class EndScore:
    """One host (or rank of the only host): its median over the median of the pairs that do not touch it."""

    name: str
    egress: float | None
    ingress: float | None
    """None: nothing to compare with."""


def end_scores(cells: Mapping[tuple[End, End], float], names: Mapping[End, str]) -> tuple[EndScore, ...]:
    """Scores of the ends that `names` lists, in its order."""
    outgoing: dict[End, list[float]] = {}
    incoming: dict[End, list[float]] = {}
    for (source, target), speed in cells.items():
        outgoing.setdefault(source, []).append(speed)
        incoming.setdefault(target, []).append(speed)
    everything = median(cells.values()) if cells else None
    scores = []
    for end, name in names.items():
        rest = everything
        if len(names) <= MAX_LEFT_OUT:
            others = [speed for pair, speed in cells.items() if end not in pair]
            rest = median(others) if others else None
        scores.append(
            EndScore(
                name=name,
                egress=_over(outgoing.get(end, ()), rest),
                ingress=_over(incoming.get(end, ()), rest),
            )
        )
    return tuple(scores)


def _over(own: Sequence[float], rest: float | None) -> float | None:
    return median(own) / rest if own and rest else None

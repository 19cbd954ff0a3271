"""Does one pipeline stage (or another coordinate of the model) have more work on every replica?

That is how the model was cut, not a slow machine: all ranks of the stage are alike, and none of them is named.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peers import Peers

# Ranks of a heavier coordinate are alike when they differ from one another by at most this share of what it is
# heavier: of two ranks one slow machine would lift the mean of both. Our own threshold.
ALIKE_SHARE = 0.5

# A coordinate counts as heavier from here on; below it stages of healthy jobs differ. Our own threshold.
MIN_HEAVIER = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyGroup:
    """Ranks of one coordinate that all take longer than the other coordinates."""

    dimension: str
    coordinate: int
    rows: tuple[int, ...]
    heavier: float
    """Than the median coordinate: 0.62 is 62 % longer, of its time or of what was given as the scale."""
    own_ms: float
    typical_ms: float
    alike: float
    """Spread of the group's own ranks, relative: how well they agree."""
    is_last: bool
    is_first: bool


def heavy_groups(
    medians: NDArray[np.float32],
    peers: Peers,
    effect: NDArray[np.float32],
    *,
    scale_ms: float | None = None,
) -> tuple[HeavyGroup, ...]:
    """Coordinates whose ranks take at least MIN_HEAVIER longer than the median coordinate of the same dimension.

    `medians`: shape (groups, steps), ms. One dimension is looked at a time, the others averaged over. `scale_ms`: what
    the difference is relative to where times are only a small part of a step; None: to the median coordinate.
    """
    if peers.num_groups < 2 or not peers.known:
        return ()
    times = np.array([_median(each) for each in medians])
    found: list[HeavyGroup] = []
    names = list(dict.fromkeys(name for key in peers.keys for name, _ in key))
    for name in names:
        groups: dict[int, list[int]] = {}
        for group, key in enumerate(peers.keys):
            coordinate = dict(key).get(name)
            if coordinate is not None and np.isfinite(times[group]):
                groups.setdefault(coordinate, []).append(group)
        if len(groups) < 2:
            continue
        means = {coordinate: float(np.mean(times[each])) for coordinate, each in groups.items()}
        typical = _typical(means)
        for coordinate, mean in means.items():
            heavier = (mean - typical) / (scale_ms or typical) if scale_ms or typical > 0 else 0.0
            if heavier <= MIN_HEAVIER:
                continue
            rows = np.concatenate([peers.members(group) for group in groups[coordinate]])
            values = effect[rows][np.isfinite(effect[rows])]
            alike = float(np.median(np.abs(values))) if len(values) else 0.0
            if alike > ALIKE_SHARE * heavier:
                continue
            found.append(
                HeavyGroup(
                    dimension=name,
                    coordinate=coordinate,
                    rows=tuple(int(row) for row in np.sort(rows)),
                    heavier=heavier,
                    own_ms=mean,
                    typical_ms=typical,
                    alike=alike,
                    is_last=coordinate == max(means),
                    is_first=coordinate == min(means),
                )
            )
    return tuple(sorted(found, key=lambda each: -each.heavier))


def _typical(means: dict[int, float]) -> float:
    """Of two the smaller one: then the larger is the heavier stage. Of more the median."""
    values = sorted(means.values())
    return values[0] if len(values) == 2 else float(np.median(values))


def _median(values: NDArray[np.float32]) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")

"""What slow ranks cost: how long the job would take if they were like their peers.

In synchronous training a step lasts as long as its slowest rank, so making one rank faster gains only as much as the
next slowest one allows. An estimate: everything that is not own time is taken to stay as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Shares of the job's time: 0.1 is a tenth."""

    alone: Mapping[int, float]
    """By row: what is gained if this rank alone were like its peers."""
    together: float
    """If all of them were."""
    step_ms: float
    """The mean time of a step that the shares are of."""
    step_is_measured: bool
    """False: the slowest rank's own time stands for the step."""


def cost_of(
    suspects: Mapping[int, NDArray[np.float32]],
    as_peers: Mapping[int, NDArray[np.float32]],
    slowest_other: NDArray[np.float32],
    *,
    step_ms: float | None,
) -> Cost:
    """`suspects`: row → own times; `as_peers`: row → what its peers took; `slowest_other`: the slowest of all other
    ranks; all of shape (steps,), ms. `step_ms`: mean step by the wall clock, None if not measured.
    """
    now = np.maximum.reduce([slowest_other, *suspects.values()])
    known = np.isfinite(now)
    mean_step = step_ms if step_ms else float(np.mean(now[known])) if known.any() else float("nan")
    alone = {}
    for row, peer in as_peers.items():
        others = [times for other, times in suspects.items() if other != row]
        without = np.fmax(np.maximum.reduce([slowest_other, *others]), peer)
        alone[row] = _share(now - without, mean_step)
    without_all = np.fmax.reduce([slowest_other, *as_peers.values()])
    return Cost(
        alone=alone,
        together=_share(now - without_all, mean_step),
        step_ms=mean_step,
        step_is_measured=step_ms is not None,
    )


def _share(saved_ms: NDArray[np.float32], step_ms: float) -> float:
    known = saved_ms[np.isfinite(saved_ms)]
    if not len(known) or not step_ms > 0:
        return 0.0
    return float(np.clip(np.mean(known) / step_ms, 0.0, 1.0))

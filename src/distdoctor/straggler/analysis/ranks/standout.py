"""Nobody is accused, yet one rank accounts for much of the time: too seldom, too late or in no timed part.

Medians and counts of steps decide who is accused. They do not see a rank that loses half of the time in one step of
eight, nor one whose work hides below an outstanding receive. Totals do: of own work, and of waiting, which such a rank
hardly does while all others do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peers import MIN_PEERS, Peers
from distdoctor.straggler.facts.steps import Times

# Of all the time: from this share on one rank is worth a word before all are cleared. Twice of it for waiting, which
# differs among healthy ranks by who is the root of a collective. Our own thresholds.
MIN_SHARE = 0.05
MIN_WAIT_SHARE = 0.10

# It stands out while at most a quarter of the ranks come near it, by half. Our own choice.
NEAR = 0.5
MAX_NEAR = 0.25

# Who waits less than its peers waits less than this share of what they do. Our own threshold.
LITTLE_WAIT = 0.5

_ROWS_AT_ONCE = 256


class By(Enum):
    """What stands out."""

    OWN_WORK = "own work, all steps together"
    WAITING = "waits less than all others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standout:
    """A rank that cannot be cleared."""

    row: int
    by: By
    share: float
    """Of the job's time: lost by its own work, or waited less than its peers."""


def standout_of(
    excess: Times,
    peer_ms: NDArray[np.float32],
    peers: Peers,
    *,
    scale_ms: float | None,
    step_ms: float | None,
    wait: Times | None,
    least: float,
) -> Standout | None:
    """The one rank that stands out by its totals, own work first; None when there is none.

    `excess`: (ranks, steps), relative; `peer_ms`: (groups, steps); `wait`: (ranks, steps) as measured, None: it was not;
    `least`: what the noise of this job hides anyway, as a share.
    """
    usual_ms = step_ms or _mean(peer_ms)
    if not usual_ms or excess.shape[1] == 0:
        return None
    row, lost_ms = _alone(_mean_excess_ms(excess, peer_ms, peers, scale_ms))
    # The usual step is a median, which rare long ones are not in.
    share = lost_ms / (usual_ms + lost_ms)
    if row is not None and share >= max(MIN_SHARE, least):
        return Standout(row=row, by=By.OWN_WORK, share=share)
    if wait is None:
        return None
    waited, usual = _waits(wait, peers)
    row, share = _alone((usual - waited) / usual_ms)
    if row is not None and share >= max(MIN_WAIT_SHARE, least) and waited[row] < LITTLE_WAIT * usual[row]:
        return Standout(row=row, by=By.WAITING, share=share)
    return None


def _alone(shares: NDArray[np.float64]) -> tuple[int | None, float]:
    """The row with the most, if hardly any other comes near it."""
    known = np.isfinite(shares)
    if known.sum() < MIN_PEERS:
        return None, 0.0
    filled = np.where(known, shares, -np.inf)
    row = int(np.argmax(filled))
    most = float(filled[row])
    near = int(np.sum(filled >= NEAR * most))
    return (row, most) if most > 0 and near <= max(1, MAX_NEAR * known.sum()) else (None, 0.0)


def _mean_excess_ms(
    excess: Times, peer_ms: NDArray[np.float32], peers: Peers, scale_ms: float | None
) -> NDArray[np.float64]:
    means = np.full(len(excess), np.nan)
    for start in range(0, len(excess), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        unit = peer_ms[peers.group_of[rows]] if scale_ms is None else np.float32(scale_ms)
        means[rows] = _row_means(excess[rows] * unit)
    return means


def _waits(wait: Times, peers: Peers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean waiting of each rank, and the median of it in its group; NaN in groups too small to compare."""
    waited = np.full(len(wait), np.nan)
    for start in range(0, len(wait), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        waited[rows] = _row_means(wait[rows])
    usual = np.full(len(wait), np.nan)
    for group in range(peers.num_groups):
        members = peers.members(group)
        known = waited[members][np.isfinite(waited[members])]
        if len(known) >= MIN_PEERS:
            usual[members] = np.median(known)
    return waited, usual


def _row_means(block: Times) -> NDArray[np.float64]:
    count = np.sum(np.isfinite(block), axis=1)
    total = np.sum(np.where(np.isfinite(block), block, 0), axis=1, dtype=np.float64)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _mean(values: NDArray[np.float32]) -> float:
    known = values[np.isfinite(values)]
    return float(np.mean(known)) if len(known) else 0.0

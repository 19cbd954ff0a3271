"""What the others took in the same step: the median over a rank's peers without the rank itself.

Taken per step, so that whatever slows all of them alike (longer sequences, a warm afternoon) cancels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peers import Peers
from distdoctor.straggler.facts.steps import Times

# Up to this many peers a rank's own value moves the median enough to be left out exactly.
MAX_LEFT_OUT = 32

# Of larger groups the median of that many ranks, evenly chosen, stands for all: on 2,048 ranks it changes no rank's
# effect by more than 0.06 % (docs/measurements) and costs an eighth.
SAMPLED_PEERS = 257

# Steps at once, so that a transposed copy of a group stays small: 257 ranks × 4,096 steps are 4 MB.
_STEPS_AT_ONCE = 4096


def relative_excess(
    own: Times, peers: Peers, *, scale_ms: float | None = None
) -> tuple[Times, NDArray[np.float32]]:
    """`own / median of the peers − 1` IN PLACE of `own`, and the medians, shape (groups, steps).

    With `scale_ms` it is `(own − median) / scale_ms`: for times that are only a small part of what they are set
    against. NaN where a rank has no value or no peer has one. Groups of one rank become NaN.
    """
    medians = np.full((peers.num_groups, own.shape[1]), np.nan, dtype=np.float32)
    for group in range(peers.num_groups):
        rows = peers.members(group)
        whole = len(rows) == own.shape[0]
        block = own if whole else own[rows]
        if len(rows) <= MAX_LEFT_OUT:
            others = median_of_others(block)
            with np.errstate(invalid="ignore"):
                medians[group] = _median(block)
        else:
            step = max(1, len(rows) // SAMPLED_PEERS)
            others = _median(block[::step])
            medians[group] = others
        with np.errstate(divide="ignore", invalid="ignore"):
            if scale_ms is None:
                np.divide(block, others, out=block)
                block -= 1
            else:
                block -= others
                block /= np.float32(scale_ms)
        block[~np.isfinite(block)] = np.nan
        if not whole:
            own[rows] = block
    return own, medians


def median_of_others(block: Times) -> Times:
    """For each value of `block` (ranks, steps) the median of the other ranks in the same step; NaN where none is."""
    num_ranks, num_steps = block.shape
    ordered = np.sort(block, axis=0)  # NaN last
    if not np.isnan(ordered[-1]).any():
        return _others_of_full(block, ordered)
    count = np.sum(~np.isnan(block), axis=0)
    others = np.full_like(block, np.nan)
    columns = np.arange(num_steps)
    for row in range(num_ranks):
        value = block[row]
        present = ~np.isnan(value)
        rest = count - present
        place = np.sum(ordered < value, axis=0)  # where this value stands; ties give the same median
        low, high = (rest - 1) // 2, rest // 2
        low = np.where(present & (low >= place), low + 1, low)
        high = np.where(present & (high >= place), high + 1, high)
        safe_low, safe_high = np.clip(low, 0, num_ranks - 1), np.clip(high, 0, num_ranks - 1)
        middle = (ordered[safe_low, columns] + ordered[safe_high, columns]) / 2
        others[row] = np.where(rest > 0, middle, np.nan)
    return others


def _others_of_full(block: Times, ordered: Times) -> Times:
    n = len(block)
    if n == 1:
        return np.full_like(block, np.nan)
    if n % 2 == 0:
        low, high = ordered[n // 2 - 1], ordered[n // 2]
        return np.asarray(np.where(block <= low, high, low))
    c = n // 2
    below, middle, above = ordered[c - 1], ordered[c], ordered[c + 1]
    upper, lower, around = (middle + above) / 2, (below + middle) / 2, (below + above) / 2
    return np.asarray(np.where(block < middle, upper, np.where(block > middle, lower, around)))


def _median(block: Times) -> NDArray[np.float32]:
    """Median over ranks in each step, NaN left out."""
    medians = np.empty(block.shape[1], dtype=np.float32)
    for start in range(0, block.shape[1], _STEPS_AT_ONCE):
        part = np.ascontiguousarray(block[:, start : start + _STEPS_AT_ONCE].T)
        if np.isnan(part).any():
            medians[start : start + len(part)] = row_medians(part)
            continue
        medians[start : start + len(part)] = _full_row_medians(part)
    return medians


def _full_row_medians(rows: Times) -> NDArray[np.float32]:
    n = rows.shape[1]
    if n % 2:
        return np.asarray(np.partition(rows, n // 2, axis=1)[:, n // 2])
    parted = np.partition(rows, (n // 2 - 1, n // 2), axis=1)
    return np.asarray((parted[:, n // 2 - 1] + parted[:, n // 2]) / 2)


def row_medians(rows: Times) -> NDArray[np.float32]:
    """Median of each row, NaN left out; NaN for a row without values."""
    if rows.shape[1] == 0:
        return np.full(len(rows), np.nan, dtype=np.float32)
    if not np.isnan(rows).any():
        return _full_row_medians(rows)
    ordered = np.sort(rows, axis=1)
    count = np.sum(~np.isnan(rows), axis=1)
    at = np.arange(len(rows))
    low = ordered[at, np.maximum((count - 1) // 2, 0)]
    high = ordered[at, np.maximum(count // 2, 0)]
    return np.asarray(np.where(count > 0, (low + high) / 2, np.nan), dtype=np.float32)

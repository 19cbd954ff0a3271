"""Does a rank count its steps differently from its peers? Then it is compared with their steps before or after.

Where batches differ in length, all ranks are long in the same steps. A rank that writes its step number before it is
raised, where the others write it after, seems long in steps in which they are short.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A rank may be so many steps off. Our own choice: writing before or after an increment makes one, warm-up steps that
# are not counted make two or three.
MAX_OFF = 3

# It is off when it follows its peers at least so well in other steps, and by so much better than in its own. Our own
# thresholds.
MIN_CORRELATION = 0.5
MIN_BETTER = 0.3

_MIN_STEPS = 20


def steps_off(own: NDArray[np.float32], peer: NDArray[np.float32]) -> int:
    """By how many steps a rank's times are behind its peers', both of shape (steps,); 0: not off, or it cannot be told.

    Positive: what the peers have in step s the rank has in step s + that.
    """
    found = {off: _correlation(own, peer, off) for off in range(-MAX_OFF, MAX_OFF + 1)}
    best = max(found, key=lambda off: found[off])
    if best == 0 or found[best] < MIN_CORRELATION or found[best] < found[0] + MIN_BETTER:
        return 0
    return best


def _correlation(own: NDArray[np.float32], peer: NDArray[np.float32], off: int) -> float:
    """Of the orders of values, so that one stall neither makes nor breaks it."""
    end = len(own)
    mine = own[max(off, 0) : end + min(off, 0)]
    theirs = peer[max(-off, 0) : end - max(off, 0)]
    known = np.isfinite(mine) & np.isfinite(theirs)
    if known.sum() < _MIN_STEPS:
        return 0.0
    a, b = _ordered(mine[known]), _ordered(theirs[known])
    spread = float(a.std() * b.std())
    return float(np.mean((a - a.mean()) * (b - b.mean()))) / spread if spread > 0 else 0.0


def _ordered(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Place of each value in ascending order; equal values share one."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(middles[place], dtype=np.float64)

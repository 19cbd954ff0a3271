"""Do timed parts add up to the same on all ranks, though each differs? Then one of them holds the waiting for the others.

A loss that is read, a norm of all gradients, a barrier in a loader: whoever works longer in one part waits less in
such another one, and the sum tells nobody from anybody.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.steps import Times

# Of independent parts the variance between ranks adds up: the ratio is 1. Below this share they even out. Our own
# threshold.
EVEN_SHARE = 0.1

# Of fewer ranks or steps it is not told.
_MIN_RANKS = 4
_MIN_STEPS = 5

_MAX_ROWS = 64
_MAX_COLUMNS = 512


def parts_even_out(parts: Iterable[Times]) -> bool:
    """Whether the sum differs far less between ranks than the parts do. Each part: (ranks, steps), ms; read one by one."""
    samples = [_sample(part) for part in parts]
    if len(samples) < 2 or samples[0].shape[0] < _MIN_RANKS or samples[0].shape[1] < _MIN_STEPS:
        return False
    of_parts = np.sum([sample.var(axis=0) for sample in samples], axis=0)
    of_sum = np.sum(samples, axis=0).var(axis=0)
    known = of_parts > 0
    return bool(known.any()) and float(np.median(of_sum[known] / of_parts[known])) < EVEN_SHARE


def _sample(part: Times) -> NDArray[np.float64]:
    rows, columns = (
        max(1, size // most) for size, most in zip(part.shape, (_MAX_ROWS, _MAX_COLUMNS), strict=True)
    )
    return np.nan_to_num(part[::rows, ::columns]).astype(np.float64)

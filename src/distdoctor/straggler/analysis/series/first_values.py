"""How many values at the start are warm-up: compilation, caches, autotuning, the first batches?"""

from __future__ import annotations

import math

import numpy as np

from distdoctor.straggler.analysis.series.running import MAD_TO_SIGMA, Values

# More values are no warm-up but a slow start, which is told as a change of level. Our own choice.
MAX_WARMUP = 20

# What follows, to compare with.
REFERENCE = 64
MIN_REFERENCE = 2

# A first value counts as unusual from here on, and from so many sigma of what follows. Our own thresholds.
MIN_UNUSUAL = math.log(1.05)
UNUSUAL_SIGMAS = 5.0

# Among so many first values short ones are warm-up too.
MAX_SHORT = 5

# So many first values, each slower than all that follow, are a slow start even where the scatter is large: by chance
# that happens once in 200 times or less. Our own threshold.
MIN_SEPARATED = 3


def num_warm_up(logs: Values, *, rounding: float = 0.0) -> int:
    """Values at the start to leave out. logs: logarithms of times, shape (values,); 0 for fewer than three values."""
    limit = min(MAX_WARMUP, len(logs) // 3)
    if limit < 1 or len(logs) - limit < MIN_REFERENCE:
        return 0
    reference = logs[limit : limit + REFERENCE]
    middle = float(np.median(reference))
    sigma = max(MAD_TO_SIGMA * float(np.median(np.abs(reference - middle))), rounding)
    beyond = (logs[:limit] - middle) / max(MIN_UNUSUAL, UNUSUAL_SIGMAS * sigma)
    slow = beyond > 1
    # A clock that is read before the device is done makes some of the very first steps short.
    away = slow | ((beyond < -1) & (np.arange(limit) < MAX_SHORT))
    most = [end for end in range(1, limit + 1) if away[end - 1] and 2 * away[:end].sum() >= end]
    return max(most[-1] if most and slow[: most[-1]].any() else 0, _separated(logs, limit))


def _separated(logs: Values, limit: int) -> int:
    for end in range(limit, MIN_SEPARATED - 1, -1):
        reference = logs[end : end + REFERENCE]
        apart = logs[:end].mean() - reference.mean() >= MIN_UNUSUAL
        if apart and logs[:end].min() > reference.max():
            return end
    return 0

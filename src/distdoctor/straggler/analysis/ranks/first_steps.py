"""How many steps at the start are warm-up: compilation, caches, the first checkpoint read."""

from __future__ import annotations

import numpy as np

from distdoctor.straggler.column_medians import column_medians
from distdoctor.straggler.facts.steps import Times

# Steps at the start that take so much longer than usual are warm-up; at most a tenth of the run, or ten steps of a
# run that has more than sixty. Our own thresholds.
SLOW_START = 1.25
MAX_SHARE = 0.1
MAX_STEPS = 10
# From this length on one step can be spared: the first one allocates, connects and compiles.
_MIN_TO_SPARE = 20


def num_warm_up(own: Times) -> int:
    """Columns of `own` (ranks, steps) to leave out at the start."""
    num_steps = own.shape[1]
    if num_steps < _MIN_TO_SPARE:
        return 0
    sample = own[:: max(1, len(own) // 64)]
    usual = column_medians(sample)
    level = float(np.nanmedian(usual)) if np.isfinite(usual).any() else float("nan")
    limit = max(int(num_steps * MAX_SHARE), MAX_STEPS if num_steps >= 6 * MAX_STEPS else 1)
    slow = ~(usual[:limit] <= SLOW_START * level)
    settled = np.flatnonzero(~slow)
    return max(1, int(settled[0]) if len(settled) else limit)

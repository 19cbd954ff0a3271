"""What must hold before a rank is accused. A wrong name costs a host its place; so every gate must be passed."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peers import MIN_PEERS
from distdoctor.straggler.analysis.ranks.judgement import Gate
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.analysis.ranks.threshold import FLOOR, Threshold

# Fewer steps than this prove nothing, however large the difference: one page fault or one checkpoint does as much.
MIN_STEPS = 5

# Below this many steps (profiler traces often have five to ten) the noise cannot be estimated well, so the effect must
# be large, beyond doubt by the noise there is, and there in every single step. Our own thresholds.
FEW_STEPS = 20
FEW_STEPS_EFFECT = 0.10
FEW_STEPS_ERRORS = 6.0

# An effect must be this many standard errors of the rank's own median.
MIN_ERRORS = 3.0

# The rank must wait less by at least this share of what it works longer. In the ideal it is all of it; overlapped
# communication and bubbles of pipelines take their part.
MIN_WAIT_SHARE = 0.3

# What is less than this share of a step is minor: told, but nobody is accused of it.
MIN_SHARE_OF_STEP = 0.01

# A rank that is slow is so in all parts of the time, give or take noise: at least by this share of its effect in all but
# one of eight. Our own threshold.
_PARTS = 8
STEADY_SHARE = 1 / 3

# Wall times of whole steps are equal in synchronous training. One that is not holds no waiting, and only a large
# difference is beyond doubt.
WALL_EFFECT = 0.10


def failed_gates(
    values: NDArray[np.float32],
    *,
    effect: float,
    standard_error: float,
    excess_ms: float,
    wait_deficit_ms: float | None,
    wait_is_derived: bool,
    step_ms: float | None,
    num_peers: int,
    basis: Basis,
    threshold: Threshold,
    usual_error: float,
) -> tuple[Gate, ...]:
    """The gates that a rank did not pass. `values`: its excess in the steps judged, relative, NaN left out.

    `num_peers`: ranks in its group, itself among them. `usual_error`: the median standard error of all ranks.
    """
    failed: list[Gate] = []
    few = len(values) < FEW_STEPS and not _beyond_doubt(values, effect, standard_error)
    if few or len(values) < MIN_STEPS:
        failed.append(Gate.STEPS)
    if num_peers < MIN_PEERS:
        failed.append(Gate.PEERS)
    noisier = max(standard_error**2 - usual_error**2, 0.0)
    own_limit = max(FLOOR, threshold.critical * math.sqrt(threshold.scale**2 + noisier))
    if effect < MIN_ERRORS * standard_error or (len(values) >= FEW_STEPS and effect < own_limit):
        failed.append(Gate.NOISE)
    if basis is Basis.WALL_ONLY and effect < WALL_EFFECT:
        failed.append(Gate.NOISE)
    if len(values) >= 2 * MIN_STEPS and not _lasts(values, effect):
        failed.append(Gate.LASTING)
    measured = wait_deficit_ms is not None and not wait_is_derived
    if measured and wait_deficit_ms is not None and wait_deficit_ms < MIN_WAIT_SHARE * excess_ms:
        failed.append(Gate.WAIT)
    if step_ms and excess_ms < MIN_SHARE_OF_STEP * step_ms:
        failed.append(Gate.SHARE)
    return tuple(dict.fromkeys(failed))


def _beyond_doubt(values: NDArray[np.float32], effect: float, standard_error: float) -> bool:
    return (
        effect >= FEW_STEPS_EFFECT
        and effect >= FEW_STEPS_ERRORS * standard_error
        and float(np.min(values)) > effect / 2
    )


def _lasts(values: NDArray[np.float32], effect: float) -> bool:
    """In both halves, and in all but one of eight parts: what wanders up and down for long is no slow rank.

    Where neighbouring steps resemble one another closely, a rank is above its peers for a while by chance alone.
    """
    middle = len(values) // 2
    if any(float(np.median(half)) <= effect / 2 for half in (values[:middle], values[middle:])):
        return False
    if len(values) < _PARTS * MIN_STEPS:
        return True
    parts = np.array_split(values, _PARTS)
    low = sum(float(np.median(part)) <= effect * STEADY_SHARE for part in parts)
    return low <= 1

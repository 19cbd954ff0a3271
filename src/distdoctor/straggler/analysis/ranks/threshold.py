"""From which effect on a rank is slow, rather than the slowest of many healthy ones?

Among N healthy ranks one is always the slowest, and with N it stands out more. The threshold is set so that in a
healthy job of any size the chance that any rank crosses it is small; docs/straggler-accuracy.md has the error rates
that were measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from distdoctor.straggler.analysis.peers import Peers
from distdoctor.straggler.analysis.ranks.effects import MAD_TO_SD, Effects

# Below this nobody is named whatever the statistics say: ranks of healthy jobs differ by as much for good reasons.
FLOOR = 0.03

# The chance, by the model below, that any rank of a healthy job crosses any threshold. Real noise has heavier tails, which
# matter the more the further out a threshold lies: among many ranks it is set lower, so that the benchmark's 1 in 200
# holds. Set on its development seeds.
FAMILY_ERROR = 0.005
FAMILY_ERROR_OF_MANY = 0.003
MANY_RANKS = 128
FAMILY_ERROR_OF_THOUSANDS = 0.001
THOUSANDS_OF_RANKS = 1024

# What is assumed of the spread between healthy ranks before looking: 0.5 %, and more where steps are noisier, with the
# weight of so many degrees of freedom. It decides for few ranks, whose own spread cannot be estimated. Set on
# development seeds of benchmarks/straggler_accuracy.py.
PRIOR_SPREAD = 0.005
PRIOR_SPREAD_OF_NOISE = 0.08
# Of lateness relative to the time in collectives: that is a small part of a step, and what it is of one nobody tells
# where only waiting is. Ranks whose own work differs by 0.5 % differ by 5 % of collectives that take a tenth of it.
PRIOR_SPREAD_OF_LATENESS = 0.05
PRIOR_RANKS = 40.0

# From so many degrees of freedom on (some 30 ranks) a spread above the assumed one is taken as it is seen.
_TRUSTED_FREEDOM = 10.0

# From MANY_RANKS on the lower tail is looked at too: so far from the median is 7 % of a normal distribution.
LOWER_TAIL = 0.07
_LOWER_TAIL_SDS = 1.4758

# A MAD tells as much of a spread as a standard deviation of 0.37 times as many normal values.
MAD_EFFICIENCY = 0.37


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Where "slow" begins in this job. Relative: 0.04 is 4 %."""

    value: float
    """An effect over all steps above this names a rank, if every other gate is passed."""
    scale: float
    """Standard deviation of healthy ranks' effects: their spread and what noise adds."""
    critical: float
    """How many scales."""
    spread: float
    """Of the ranks seen here, robust."""
    noise: float
    """Median over ranks of the noise from step to step."""
    rank_error: float
    """The error probability given to one rank."""


def threshold_for(
    effects: Effects,
    peers: Peers,
    *,
    share: float = 1.0,
    steps_share: float = 1.0,
    prior_spread: float = PRIOR_SPREAD,
) -> Threshold:
    """The threshold for effects over `steps_share` of the steps, with `share` of the error probability.

    Ranks without a value are not counted. `prior_spread`: what healthy ranks are assumed to differ by.
    """
    seen = np.isfinite(effects.effect)
    num_ranks = max(int(seen.sum()), 1)
    noise = _median(effects.noise[seen])
    error = _median(effects.standard_error[seen & np.isfinite(effects.standard_error)]) / math.sqrt(
        steps_share
    )
    # The peers' median has noise of its own, which matters for few peers.
    smallest = max(int(min(peers.sizes)) - 1, 1)
    error *= math.sqrt(1 + math.pi / 2 / smallest)
    prior = (prior_spread + PRIOR_SPREAD_OF_NOISE * noise) * math.sqrt(1 + math.pi / 2 / smallest)
    spread = scatter(effects, peers)
    freedom = MAD_EFFICIENCY * max(num_ranks - peers.num_groups, 0)
    expected = prior**2 + error**2
    # `spread` holds the noise of all steps already; over fewer steps more is added.
    extra = error**2 * (1 - steps_share)
    observed = spread**2 + extra
    variance = (PRIOR_RANKS * expected + freedom * observed) / (PRIOR_RANKS + freedom)
    rank_error = family_error(num_ranks) * share / num_ranks
    critical = student_quantile(1 - rank_error, PRIOR_RANKS + freedom)
    if freedom >= _TRUSTED_FREEDOM:
        # Ranks that differ more than was assumed are believed: the floor grows with what is seen.
        variance = max(variance, observed)
    scale = math.sqrt(variance)
    return Threshold(
        value=max(FLOOR, critical * scale),
        scale=scale,
        critical=critical,
        spread=spread,
        noise=noise,
        rank_error=rank_error,
    )


def family_error(num_ranks: int) -> float:
    """The chance that is given to all ranks of a healthy job together."""
    if num_ranks >= THOUSANDS_OF_RANKS:
        return FAMILY_ERROR_OF_THOUSANDS
    return FAMILY_ERROR_OF_MANY if num_ranks >= MANY_RANKS else FAMILY_ERROR


def scatter(effects: Effects, peers: Peers) -> float:
    """Robust standard deviation of effects around the median of their own group; 0 where no group has 2 ranks.

    The MAD; among many ranks the mean of it and of the lower tail, which slow ranks do not reach. The two vary less
    together than the MAD alone, and a spread that is seen too small by chance accuses healthy ranks.
    """
    deviations = []
    for group in range(peers.num_groups):
        values = effects.effect[peers.members(group)]
        values = values[np.isfinite(values)]
        if len(values) > 1:
            deviations.append(values - np.median(values))
    if not deviations:
        return 0.0
    pooled = np.concatenate(deviations)
    spread = float(np.median(np.abs(pooled))) * MAD_TO_SD
    if len(pooled) < MANY_RANKS:
        return spread
    return (spread - float(np.quantile(pooled, LOWER_TAIL)) / _LOWER_TAIL_SDS) / 2


def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t by the expansion of Cornish and Fisher around the normal (Abramowitz and Stegun 26.7.5).

    Within 1 % for 12 degrees of freedom and more, up to probabilities of 1 − 1e-8.
    """
    z = NormalDist().inv_cdf(min(probability, 1 - 1e-15))
    n = freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


def _median(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
    return float(np.median(values)) if len(values) else 0.0

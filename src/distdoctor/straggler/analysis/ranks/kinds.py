"""Do ranks fall into two kinds, of which neither is the exception?

When half of the ranks take longer than the other half, the median says nothing about who is slow: it may be two kinds
of GPU, two pipeline stages of which nobody told, or a cooling loop that failed for half of them. Nobody is named then,
and "nobody is slow" would be wrong as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peers import MIN_PEERS, Peers
from distdoctor.straggler.analysis.ranks.effects import MAD_TO_SD, Effects
from distdoctor.straggler.analysis.ranks.threshold import FLOOR

# Each kind has at least this share of the ranks, and two of them: fewer are exceptions, and are looked at one by one.
MIN_SHARE = 0.25
_MIN_RANKS = 2

# The gap between the kinds is so many times the spread within them, and so many standard errors of a rank. Of one
# normal distribution, or of one with heavy tails, no gap in the middle comes near. Our own thresholds.
MIN_SPREADS = 4.0
MIN_ERRORS = 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoKinds:
    """Ranks that should be alike and are of two kinds."""

    longer: tuple[int, ...]
    """Rows of those that take longer."""
    num_ranks: int
    """Of both kinds."""
    apart: float
    """How much longer, relative to what effects are relative to."""


def two_kinds(
    effects: Effects,
    peers: Peers,
    own_ms: NDArray[np.float32],
    *,
    rounding: float = 0.0,
    scale_ms: float | None = None,
) -> TwoKinds | None:
    """The first group of peers that falls into two kinds; None when there is none.

    `own_ms`: median own time, shape (ranks,); `rounding`: a distance that rounded times can make. `scale_ms`: what
    effects are relative to; None: to the peers' time.
    """
    known = effects.standard_error[np.isfinite(effects.standard_error)]
    error = float(np.median(known)) if len(known) else float("inf")
    least = max(FLOOR, rounding)
    for group in range(peers.num_groups):
        members = peers.members(group)
        members = members[np.isfinite(effects.effect[members]) & np.isfinite(own_ms[members])]
        if len(members) < MIN_PEERS:
            continue
        order = members[np.argsort(effects.effect[members], kind="stable")]
        at = _split(effects.effect[order], max(least, MIN_ERRORS * error))
        if at is None:
            continue
        # Not from effects: with half of the ranks slow, each kind is measured by the other one.
        shorter, longer = float(np.median(own_ms[order[:at]])), float(np.median(own_ms[order[at:]]))
        apart = (longer - shorter) / (scale_ms or shorter) if scale_ms or shorter > 0 else 0.0
        if apart >= least:
            return TwoKinds(
                longer=tuple(int(row) for row in np.sort(order[at:])), num_ranks=len(members), apart=apart
            )
    return None


def _split(ordered: NDArray[np.float32], least_gap: float) -> int | None:
    """Index of the first of the longer kind, for ascending effects."""
    n = len(ordered)
    least = max(_MIN_RANKS, int(np.ceil(MIN_SHARE * n)))
    gaps = np.diff(ordered)[least - 1 : n - least]
    if not len(gaps):
        return None
    at = least + int(np.argmax(gaps))
    low, high = ordered[:at], ordered[at:]
    inside = np.concatenate([low - np.median(low), high - np.median(high)])
    spread = float(np.median(np.abs(inside))) * MAD_TO_SD
    return at if float(gaps[at - least]) >= max(least_gap, MIN_SPREADS * spread) else None

"""The same rank numbers several times over in the same steps: several runs, or ranks that were counted on each host.

Each set alone may look even. Where the sets differ from one another and they are one job, a whole host is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from distdoctor.straggler.analysed import Judged
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.analysis.ranks.threshold import FLOOR
from distdoctor.straggler.words import percent

# Each is compared with each. Our own bound.
_MAX_SETS = 64

_HOW = "number ranks over the whole job (RANK, not LOCAL_RANK), or give one run at a time"


def why_sets_clear_nobody(judged: Sequence[Judged]) -> tuple[str, str] | None:
    """The reason and the remedy, where sets of the same ranks and steps take unequally long; None otherwise."""
    for one, other in combinations(judged[:_MAX_SETS], 2):
        if not _are_beside_one_another(one, other):
            continue
        slower, apart = _apart(one, other)
        if apart > max(FLOOR, one.judgement.threshold.value, other.judgement.threshold.value):
            return (
                f"the same ranks are told twice, in {slower.source} {percent(apart)} slower: ranks of each host, or "
                "several runs",
                _HOW,
            )
    return None


def _are_beside_one_another(one: Judged, other: Judged) -> bool:
    """Equal own sections of the same ranks in the same steps, and no clock that says one came after the other."""
    first, second = one.timings, other.timings
    shared = len(set(first.ranks) & set(second.ranks))
    if 2 * shared < max(first.num_ranks, second.num_ranks) or not len(
        np.intersect1d(first.steps, second.steps)
    ):
        return False
    if one.judgement.own_sections != other.judgement.own_sections or one.judgement.basis is Basis.WAIT_ONLY:
        return False
    spans = [(np.nanmin(each.started_s), np.nanmax(each.started_s)) for each in (first, second)
             if each.started_s is not None and np.isfinite(each.started_s).any()]  # fmt: skip
    return len(spans) < 2 or not (spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0])


def _apart(one: Judged, other: Judged) -> tuple[Judged, float]:
    """The slower one, and by what share."""
    levels = [_level(one), _level(other)]
    slower = one if levels[0] >= levels[1] else other
    least = min(levels)
    return slower, max(levels) / least - 1 if least > 0 else 0.0


def _level(judged: Judged) -> float:
    own = judged.judgement.own_ms
    return float(np.nanmedian(own)) if own is not None and np.isfinite(own).any() else 0.0

"""Is it the rank or its host? All ranks of a host slow alike point to what they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import row_medians
from distdoctor.straggler.analysis.ranks.effects import MAD_TO_SD, MEDIAN_SE
from distdoctor.straggler.analysis.ranks.threshold import MAD_EFFICIENCY, PRIOR_RANKS, student_quantile
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.steps import Times

# Of a host's ranks at least this share must be slow before the host is. From the nested test of Minder and others:
# three of four; a host with two ranks needs both.
MIN_SHARE = 0.75

# A host is compared with others of its kind; fewer than this many hosts cannot be.
MIN_HOSTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHost:
    """A host whose ranks are slow together."""

    host: str
    rows: tuple[int, ...]
    """Of all its ranks seen here."""
    effect: float
    """Median over its ranks, in the stretch."""
    num_slow: int
    threshold: float
    start: int
    end: int
    """Columns [start, end) in which it is slow."""


def rows_by_host(places: Sequence[Place]) -> dict[str, tuple[int, ...]]:
    """Rows of each host that is named."""
    rows: dict[str, list[int]] = {}
    for row, place in enumerate(places):
        if place.host is not None:
            rows.setdefault(place.host, []).append(row)
    return {host: tuple(each) for host, each in rows.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccusedRank:
    """What is known already of a rank: by how much and in which columns [start, end) it is slow."""

    row: int
    effect: float
    start: int
    end: int


def slow_hosts(
    excess: Times,
    effect: NDArray[np.float32],
    places: Sequence[Place],
    *,
    accused: Sequence[AccusedRank],
    rank_threshold: float,
    rank_scale: float,
    floor: float,
    error: float,
) -> tuple[SlowHost, ...]:
    """Hosts with at least 2 ranks whose median effect stands out among hosts and that MIN_SHARE of their ranks share.

    `excess`: (ranks, steps) relative to peers; `effect`: its median, one value a rank. A host is tested with `error`
    over the number of hosts; one with a rank that is accused already needs no more than ranks that share at least half
    of its effect in the same steps.
    """
    hosts = {
        host: rows
        for host, rows in rows_by_host(places).items()
        if len(rows) > 1 and np.isfinite(effect[list(rows)]).all()
    }
    if len(hosts) < MIN_HOSTS:
        return ()
    medians = np.array([np.median(effect[list(rows)]) for rows in hosts.values()])
    centre = float(np.median(medians))
    seen = float(np.median(np.abs(medians - centre))) * MAD_TO_SD
    # Ranks of one host are no independent witnesses: half of their variance is taken as shared.
    typical = float(np.median([len(rows) for rows in hosts.values()]))
    expected = rank_scale * math.sqrt(0.5 + 0.5 * MEDIAN_SE**2 / typical)
    freedom = MAD_EFFICIENCY * max(len(hosts) - 1, 0)
    scale = math.sqrt((PRIOR_RANKS * expected**2 + freedom * seen**2) / (PRIOR_RANKS + freedom))
    limit = max(floor, student_quantile(1 - error / len(hosts), PRIOR_RANKS + freedom) * scale)
    found = []
    for (host, rows), median in zip(hosts.items(), medians, strict=True):
        named = max(
            (each for each in accused if each.row in rows), key=lambda each: each.effect, default=None
        )
        start, end = (named.start, named.end) if named is not None else (0, excess.shape[1])
        whole = end - start == excess.shape[1]
        values = effect[list(rows)] if whole else row_medians(excess[list(rows), start:end])
        needed = (named.effect if named is not None else max(rank_threshold, float(median))) / 2
        num_slow = int(np.sum(values >= needed))
        together = num_slow >= max(2, math.ceil(MIN_SHARE * len(rows)))
        if together and (named is not None or median > limit):
            found.append(
                SlowHost(
                    host=host,
                    rows=rows,
                    effect=float(np.median(values)),
                    num_slow=num_slow,
                    threshold=limit,
                    start=start,
                    end=end,
                )
            )
    return tuple(found)

"""What else speaks for or against a suspect: does it wait less than its peers, and in which part is it slow?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import SAMPLED_PEERS
from distdoctor.straggler.analysis.peers import Peers
from distdoctor.straggler.facts.sections import Role, Section, role_of
from distdoctor.straggler.facts.steps import Times

Columns = NDArray[np.intp]


def deficit(times: Times, peers: Peers, row: int, columns: Columns) -> float | None:
    """By how many ms the peers' median is above this rank's value, median over `columns`; None: not measured.

    `times`: shape (ranks, steps). Of waiting it should be about as large as the rank's own excess.
    """
    others = _peer_rows(peers, row)
    if not len(others) or not len(columns):
        return None
    with np.errstate(invalid="ignore"):
        usual = _median_columns(times[np.ix_(others, columns)])
        difference = usual - times[row, columns]
    known = difference[np.isfinite(difference)]
    return float(np.median(known)) if len(known) else None


def section_excess(
    sections: Mapping[Section, Times],
    peers: Peers,
    stretches: Mapping[int, Columns],
) -> dict[int, dict[Section, float]]:
    """Row → section → by how many ms a step it is longer than the peers'. Mean over the columns of each row.

    Only sections of own work and causes inside them; walls and waiting are equal or reversed. Reads one at a time.
    """
    found: dict[int, dict[Section, float]] = {row: {} for row in stretches}
    for section in sections:
        if role_of(section) not in (Role.OWN, Role.PART) or not stretches:
            continue
        times = sections[section]
        for row, columns in stretches.items():
            others = _peer_rows(peers, row)
            if not len(others):
                continue
            mine = times[row, columns]
            usual = _median_columns(times[np.ix_(others, columns)])
            if section is Section.GC:
                # Collections are rare: in most steps the median of peers is nothing.
                mine, usual = (
                    np.nan_to_num(mine),
                    np.nan_to_num(_mean_columns(times[np.ix_(others, columns)])),
                )
            difference = mine - usual
            known = difference[np.isfinite(difference)]
            if len(known):
                found[row][section] = float(np.mean(known))
    return found


def _peer_rows(peers: Peers, row: int) -> NDArray[np.intp]:
    rows = peers.members(int(peers.group_of[row]))
    rows = rows[:: max(1, len(rows) // SAMPLED_PEERS)]
    return np.asarray(rows[rows != row])


def _median_columns(block: Times) -> Times:
    known = np.isfinite(block).any(axis=0)
    medians = np.full(block.shape[1], np.nan, dtype=np.float32)
    medians[known] = np.nanmedian(block[:, known], axis=0)
    return medians


def _mean_columns(block: Times) -> Times:
    known = np.isfinite(block).any(axis=0)
    means = np.full(block.shape[1], np.nan, dtype=np.float32)
    means[known] = np.nanmean(block[:, known], axis=0)
    return means


def columns_of(indexes: Sequence[int] | range) -> Columns:
    """Columns as an index array."""
    return np.asarray(indexes, dtype=np.intp)

"""What else speaks for or against a suspect: does it wait less than its peers, and in which part is it slow?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import SAMPLED_PEERS, median_of_others, row_medians
from distdoctor.straggler.analysis.peers import MIN_PEERS, Peers
from distdoctor.straggler.analysis.ranks.effects import MAD_TO_SD, MEDIAN_SE
from distdoctor.straggler.column_medians import column_medians
from distdoctor.straggler.facts.sections import Role, Section, role_of
from distdoctor.straggler.facts.steps import Times

# A single section must stand out by so many standard errors, of itself and above the slowest peer. Our own threshold;
# errors are taken three times as large as for independent steps (autocorrelation 0.5).
SECTION_ERRORS = 5.0

Columns = NDArray[np.intp]


def deficit(times: Times, peers: Peers, row: int, columns: Columns) -> float | None:
    """By how many ms the peers' median is above this rank's value, median over `columns`; None: not measured.

    `times`: shape (ranks, steps). Of waiting it should be about as large as the rank's own excess.
    """
    others = _peer_rows(peers, row)
    if not len(others) or not len(columns):
        return None
    with np.errstate(invalid="ignore"):
        usual = column_medians(times[np.ix_(others, columns)])
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
            usual = column_medians(times[np.ix_(others, columns)])
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


def stands_out(times: Times, peers: Peers, row: int, columns: Columns) -> bool:
    """Whether one section alone is beyond doubt: far above its own noise, and far above all peers in that section.

    A rank may be noisy in one part of the step and clearly slow in another.
    """
    members = np.append(_peer_rows(peers, row), row)
    if len(members) < MIN_PEERS or len(columns) < 2 * MIN_PEERS:
        return False
    block = times[np.ix_(members, columns)]
    excess = block - median_of_others(block)
    medians = row_medians(excess)
    mine, others = float(medians[-1]), medians[:-1][np.isfinite(medians[:-1])]
    if not np.isfinite(mine) or len(others) < MIN_PEERS - 1:
        return False
    around = np.abs(excess[-1] - mine)
    error = MEDIAN_SE * MAD_TO_SD * float(np.nanmedian(around)) / np.sqrt(len(columns) / 3)
    apart = max(float(np.median(np.abs(others - np.median(others)))) * MAD_TO_SD, error)
    return bool(mine > SECTION_ERRORS * error and mine > float(others.max()) + SECTION_ERRORS * apart)


def _peer_rows(peers: Peers, row: int) -> NDArray[np.intp]:
    rows = peers.members(int(peers.group_of[row]))
    rows = rows[:: max(1, len(rows) // SAMPLED_PEERS)]
    return np.asarray(rows[rows != row])


def _mean_columns(block: Times) -> Times:
    known = np.isfinite(block).any(axis=0)
    means = np.full(block.shape[1], np.nan, dtype=np.float32)
    means[known] = np.nanmean(block[:, known], axis=0)
    return means

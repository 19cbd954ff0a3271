"""Excess over ranks and time, small enough for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import row_medians
from distdoctor.straggler.facts.steps import Times

# What a report can show; more would be a blur.
MAX_ROWS = 48
MAX_COLUMNS = 48


def heat_of(
    excess: Times, suspects: Sequence[int]
) -> tuple[NDArray[np.float32], tuple[int, ...], tuple[int, ...]]:
    """Median excess of some ranks in stretches of steps, the rows shown, and where stretches begin (and the end).

    All ranks where they fit; else the suspects and others evenly chosen.
    """
    num_ranks, num_steps = excess.shape
    rows = _rows(num_ranks, suspects)
    num_columns = min(num_steps, MAX_COLUMNS)
    edges = np.linspace(0, num_steps, num_columns + 1).astype(int)
    chosen = excess[list(rows)]
    heat = np.stack([row_medians(chosen[:, start:end]) for start, end in pairwise(edges)], axis=1)
    return heat, rows, tuple(int(edge) for edge in edges)


def _rows(num_ranks: int, suspects: Sequence[int]) -> tuple[int, ...]:
    if num_ranks <= MAX_ROWS:
        return tuple(range(num_ranks))
    kept = list(suspects[: MAX_ROWS // 2])
    others = np.linspace(0, num_ranks - 1, MAX_ROWS - len(kept)).astype(int)
    return tuple(sorted({*kept, *(int(row) for row in others)}))

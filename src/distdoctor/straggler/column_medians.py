"""The median of each step over ranks, of which some have no value."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = TypeVar("Floats", np.float32, np.float64)


def column_medians(values: NDArray[Floats]) -> NDArray[Floats]:
    """Of `values`, shape (ranks, steps), the median of each step over the ranks that have one, shape (steps,).

    NaN where no rank has a finite one; numpy's nanmedian would warn there.
    """
    known = np.isfinite(values).any(axis=0)
    medians = np.full(values.shape[1], np.nan, dtype=values.dtype)
    medians[known] = np.nanmedian(values[:, known], axis=0)
    return medians

"""Each GPU beside the others in the same moment; arrays have shape (gpus, bins)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peer_median import MAX_LEFT_OUT, median_of_others, row_medians


def relative_to_others(table: NDArray[np.float32], use: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(gpus, bins): value over the median of the others in the same bin; NaN where either is missing."""
    block = np.where(use, table, np.float32(np.nan)).astype(np.float32)
    others = others_of(block)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = block / others
    ratio[~np.isfinite(ratio)] = np.nan
    return np.asarray(ratio)


def others_of(block: NDArray[np.float32]) -> NDArray[np.float32]:
    """(gpus, bins): the median of the others in the same bin; of many GPUs that of all."""
    if len(block) <= MAX_LEFT_OUT:
        return median_of_others(block)
    return np.broadcast_to(row_medians(np.ascontiguousarray(block.T)), block.shape)

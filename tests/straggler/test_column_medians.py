"""The median of each step over the ranks that have a value."""

from __future__ import annotations

import warnings

import numpy as np

from distdoctor.straggler.column_medians import column_medians


def test_ranks_without_a_value_do_not_count_and_a_step_without_any_is_not_measured() -> None:
    nan = np.nan
    values = np.array([[1, nan, nan], [2, 5, nan], [9, 7, nan]], dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        medians = column_medians(values)
    assert medians.dtype == np.float32
    assert np.array_equal(medians, [2, 6, nan], equal_nan=True)

"""The median of the others in the same step, against its plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.straggler.analysis.peer_median import (
    MAX_LEFT_OUT,
    median_of_others,
    relative_excess,
    row_medians,
)
from distdoctor.straggler.analysis.peers import Peers
from distdoctor.straggler.facts.sections import Section
from straggler.worlds import job

NAN = float("nan")

# Few distinct values, so that ties are common; NaN is not measured.
values = st.sampled_from([1.0, 2.0, 2.0, 3.0, 5.0, 8.0, 400.5, NAN])


@st.composite
def blocks(draw: st.DrawFn) -> np.ndarray:
    num_ranks, num_steps = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    cells = draw(st.lists(values, min_size=num_ranks * num_steps, max_size=num_ranks * num_steps))
    return np.array(cells, dtype=np.float32).reshape(num_ranks, num_steps)


def plainly(block: np.ndarray) -> np.ndarray:
    """Row by row, without the rank itself and without what was not measured."""
    others = np.full_like(block, np.nan)
    for row in range(len(block)):
        rest = np.delete(block, row, axis=0)
        for step in range(block.shape[1]):
            known = rest[:, step][~np.isnan(rest[:, step])]
            if len(known):
                others[row, step] = np.median(known)
    return others


def one_group(num_ranks: int) -> Peers:
    return Peers(group_of=np.zeros(num_ranks, dtype=np.int32), keys=((),), known=True)


@given(blocks())
def test_the_median_leaves_out_the_rank_itself(block: np.ndarray) -> None:
    np.testing.assert_array_equal(median_of_others(block), plainly(block))


@pytest.mark.parametrize("num_ranks", range(1, 41))
def test_even_and_odd_groups_without_gaps_agree_with_the_definition(num_ranks: int) -> None:
    block = np.random.default_rng(num_ranks).normal(100, 5, (num_ranks, 6)).astype(np.float32)
    np.testing.assert_allclose(median_of_others(block), plainly(block))


def test_a_single_rank_has_no_others() -> None:
    assert np.isnan(median_of_others(np.ones((1, 3), dtype=np.float32))).all()


@pytest.mark.parametrize("num_ranks", [4, 9, MAX_LEFT_OUT + 10])
def test_what_slows_all_ranks_in_a_step_alike_cancels(num_ranks: int) -> None:
    own = np.random.default_rng(2).normal(100, 3, (num_ranks, 50)).astype(np.float32)
    factor = np.random.default_rng(3).uniform(0.5, 20, 50).astype(np.float32)
    plain, _ = relative_excess(own.copy(), one_group(num_ranks))
    longer, _ = relative_excess(own * factor, one_group(num_ranks))
    np.testing.assert_allclose(plain, longer, atol=1e-5)


def test_the_excess_is_relative_to_the_rest_of_the_group() -> None:
    own = np.array([[100], [100], [120], [100]], dtype=np.float32)
    excess, medians = relative_excess(own, one_group(4))
    np.testing.assert_allclose(excess[:, 0], [0, 0, 0.2, 0], atol=1e-6)
    assert medians[0, 0] == 100


def test_groups_are_not_compared_with_one_another() -> None:
    peers = Peers(
        group_of=np.array([0, 0, 0, 1, 1, 1], dtype=np.int32), keys=((("pp", 0),), (("pp", 1),)), known=True
    )
    own = np.array([[100], [100], [110], [200], [200], [220]], dtype=np.float32)
    excess, medians = relative_excess(own, peers)
    np.testing.assert_allclose(excess[:, 0], [-0.047619, -0.047619, 0.1] * 2, atol=1e-5)
    assert medians[:, 0].tolist() == [100, 200]


def test_with_a_scale_the_excess_is_a_share_of_it() -> None:
    own = np.array([[4], [4], [10], [4]], dtype=np.float32)
    excess, _ = relative_excess(own, one_group(4), scale_ms=300.0)
    assert excess[2, 0] == pytest.approx(6 / 300)


@pytest.mark.parametrize("others", [0.0, NAN])
def test_what_cannot_be_divided_is_not_measured(others: float) -> None:
    own = np.array([[5], [others], [others], [others]], dtype=np.float32)
    excess, _ = relative_excess(own, one_group(4))
    assert np.isnan(excess[0, 0])


def test_of_a_large_group_some_ranks_stand_for_all() -> None:
    block = job(2000, 30, noise=0.02).sections[Section.FORWARD]
    sampled, _ = relative_excess(block.copy(), one_group(2000))
    plain = block / np.median(block, axis=0) - 1
    assert np.abs(np.median(sampled, axis=1) - np.median(plain, axis=1)).max() < 0.004


@given(blocks())
def test_row_medians_leave_out_what_was_not_measured(block: np.ndarray) -> None:
    expected = [np.median(row[~np.isnan(row)]) if not np.isnan(row).all() else NAN for row in block]
    np.testing.assert_allclose(row_medians(block), expected)


def test_a_row_without_columns_has_no_median() -> None:
    assert np.isnan(row_medians(np.empty((3, 0), dtype=np.float32))).all()

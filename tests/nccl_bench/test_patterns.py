"""What ranks put in stays exact in every type, in whatever order it is added, over up to 16,384 ranks."""

from __future__ import annotations

import functools
import math
import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.nccl_bench.dtypes import DTYPES, OPS, DType, Kind
from distdoctor.nccl_bench.measure.patterns import (
    MAX_TOLERANCE,
    MIN_PERIOD,
    PREMUL_FACTOR,
    moved,
    next_prime,
    phase,
    poison,
    reduced,
    shares,
    window_sums,
)

MANY = 16_384
COUNTS = (1, 2, 3, 8, 64, 127, 128, 300, 1024, MANY)

by_name = functools.partial(pytest.mark.parametrize, "dtype", DTYPES, ids=lambda dtype: dtype.name)
dtypes = st.sampled_from(DTYPES)
numbers_of_ranks = st.integers(2, 2000) | st.just(MANY)

REDUCE = {
    "sum": sum,
    "premul_sum": lambda values: PREMUL_FACTOR * sum(values),
    "product": math.prod,
    "min": min,
    "max": max,
    "band": lambda values: functools.reduce(operator.and_, values),
    "bor": lambda values: functools.reduce(operator.or_, values),
    "bxor": lambda values: functools.reduce(operator.xor, values),
}


def contributions(table: tuple[int, ...], num_ranks: int, index: int, block: int = 0) -> list[int]:
    """What each rank has at one index of a block, rank by rank."""
    return [table[(index + phase(rank, block)) % len(table)] for rank in range(num_ranks)]


@pytest.mark.parametrize("num_ranks", COUNTS)
@by_name()
@pytest.mark.parametrize("op", ["sum", "product", "premul_sum"])
def test_nothing_exceeds_what_the_type_holds_exactly(op: str, dtype: DType, num_ranks: int) -> None:
    """Contributions are not negative, so that the complete result bounds every partial one."""
    pattern = reduced(op, dtype, num_ranks)
    assert min(pattern.table) >= 0
    assert max(pattern.expected) <= dtype.exact_limit


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(REDUCE)), dtypes, numbers_of_ranks, st.integers(0, 10**9), st.integers(0, 500))
def test_the_expected_value_is_what_rank_after_rank_gives(
    op: str, dtype: DType, num_ranks: int, index: int, block: int
) -> None:
    pattern = reduced(op, dtype, num_ranks)
    period = len(pattern.table)
    assert len(pattern.expected) == period
    here = contributions(pattern.table, num_ranks, index, block)
    assert pattern.expected[(index + phase(0, block)) % period] == REDUCE[op](here)


@settings(max_examples=40, deadline=None)
@given(dtypes, numbers_of_ranks, st.integers(0, 10**6))
def test_an_average_is_the_sum_divided(dtype: DType, num_ranks: int, index: int) -> None:
    pattern = reduced("avg", dtype, num_ranks)
    total = sum(contributions(pattern.table, num_ranks, index))
    expected = pattern.expected[index % len(pattern.table)]
    if dtype.kind in (Kind.FLOAT, Kind.COMPLEX):
        assert expected == total / num_ranks
        assert 0 < pattern.tolerance <= MAX_TOLERANCE
    else:
        assert expected == total // num_ranks
        assert pattern.tolerance == 0


def test_the_tolerance_of_an_average_is_a_few_ulp() -> None:
    float32 = next(dtype for dtype in DTYPES if dtype.name == "float32")
    for num_ranks in (2, 8, 64):
        assert 2**-23 < reduced("avg", float32, num_ranks).tolerance <= 12 * 2**-23


@pytest.mark.parametrize("num_ranks", COUNTS[1:])
@by_name()
def test_a_call_that_does_nothing_is_seen(dtype: DType, num_ranks: int) -> None:
    """Some element of each rank's own contribution is not the sum; every one while all can contribute."""
    pattern = reduced("sum", dtype, num_ranks)
    same = [own == must for own, must in zip(pattern.table, pattern.expected, strict=True)]
    assert not all(same)
    if num_ranks <= dtype.exact_limit:
        assert not any(same)


@pytest.mark.parametrize("num_ranks", COUNTS)
@by_name()
def test_every_rank_contributes_something_to_a_sum(dtype: DType, num_ranks: int) -> None:
    assert max(reduced("sum", dtype, num_ranks).table) > 0


@pytest.mark.parametrize("num_ranks", COUNTS)
@by_name()
def test_parts_of_no_two_ranks_look_alike(dtype: DType, num_ranks: int) -> None:
    """A period is a prime at least as long as the number of ranks: no two phases are the same."""
    table = moved(dtype, num_ranks).table
    assert len(table) >= max(num_ranks, MIN_PERIOD)
    assert next_prime(len(table)) == len(table)
    assert max(table) <= dtype.exact_limit
    for shift in (1, 2, 7, len(table) // 2, len(table) - 1):
        turned = (*table[shift:], *table[:shift])
        assert sum(a != b for a, b in zip(table, turned, strict=True)) > len(table) // 4


@given(st.lists(st.integers(0, 1000) | st.floats(0, 1), min_size=1))
def test_poison_is_wrong_everywhere(expected: list[float]) -> None:
    assert all(bad != must for bad, must in zip(poison(expected), expected, strict=True))


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 3000))
def test_shares_keep_to_their_total(total: int, num_ranks: int) -> None:
    table = shares(total, num_ranks)
    assert max(window_sums(table, min(num_ranks, len(table)))) <= total
    assert len(table) >= num_ranks


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30), st.data())
def test_window_sums_go_round_the_end(table: list[int], data: st.DataObject) -> None:
    width = data.draw(st.integers(1, len(table)))
    twice = table * 2
    assert list(window_sums(table, width)) == [sum(twice[at : at + width]) for at in range(len(table))]


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(ValueError, match="no reduction"):
        reduced("median", DTYPES[0], 2)
    for op in OPS:
        reduced(op, DTYPES[0], 2)

"""Sizes, factors and ranks agree with nccl-tests' own formulas, written here once more in its own terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.nccl_bench.definitions import (
    BY_NAME,
    DEFINITIONS,
    Factor,
    algbw_gbps,
    busbw_gbps,
    canonical_name,
    ranks_from_ratio,
)

# GetBw of each test in nccl-tests, in its words: (count elements, bytes of one, seconds, ranks) → (algbw, busbw).
# baseBw is the bytes of `size` over the time; count is what the row prints.


def all_reduce(count: int, width: int, seconds: float, ranks: int) -> tuple[float, float]:
    base = count * width / 1.0e9 / seconds
    return base, base * (2 * (ranks - 1)) / ranks


def gathered(count: int, width: int, seconds: float, ranks: int) -> tuple[float, float]:
    base = count * ranks * width / 1.0e9 / seconds
    return base, base * (ranks - 1) / ranks


def one_way(count: int, width: int, seconds: float, _ranks: int) -> tuple[float, float]:
    base = count * width / 1.0e9 / seconds
    return base, base


THEIRS = {
    "all_reduce": all_reduce,
    "all_gather": gathered,
    "reduce_scatter": gathered,
    "all_to_all": gathered,
    "all_to_all_uneven": gathered,
    "gather": gathered,
    "scatter": gathered,
    "broadcast": one_way,
    "reduce": one_way,
    "sendrecv": one_way,
}

RANKS = st.integers(2, 4096)


def test_every_collective_is_compared() -> None:
    assert set(THEIRS) == set(BY_NAME)


@given(
    name=st.sampled_from(sorted(BY_NAME)),
    count=st.integers(1, 1 << 32),
    width=st.sampled_from([1, 2, 4, 8]),
    seconds=st.floats(1e-6, 100),
    ranks=RANKS,
)
def test_bandwidths_are_those_of_nccl_tests(
    name: str, count: int, width: int, seconds: float, ranks: int
) -> None:
    size = count * width * (ranks if BY_NAME[name].is_split else 1)
    algbw, busbw = THEIRS[name](count, width, seconds, ranks)
    assert algbw_gbps(size, seconds * 1e6) == pytest.approx(algbw)
    assert busbw_gbps(name, size, seconds * 1e6, ranks) == pytest.approx(busbw)


@given(name=st.sampled_from(sorted(BY_NAME)), ranks=RANKS)
def test_ranks_follow_from_the_ratio_where_the_factor_tells(name: str, ranks: int) -> None:
    definition = BY_NAME[name]
    found = ranks_from_ratio(name, definition.factor.of(ranks))
    assert found == (None if definition.factor is Factor.ONE else ranks)


@given(
    name=st.sampled_from(["all_reduce", "all_gather"]), ranks=st.integers(2, 64), error=st.floats(-5e-5, 5e-5)
)
def test_rounding_of_a_printed_ratio_does_no_harm_up_to_64_ranks(name: str, ranks: int, error: float) -> None:
    factor = BY_NAME[name].factor.of(ranks)
    assert ranks_from_ratio(name, factor + error) == ranks


@pytest.mark.parametrize("ratio", [-0.1, 2.0, 2.5, float("inf")])
def test_impossible_ratios_give_no_ranks(ratio: float) -> None:
    assert ranks_from_ratio("all_reduce", ratio) is None


def test_one_rank_has_no_bus() -> None:
    for definition in DEFINITIONS:
        assert busbw_gbps(definition.name, 1 << 20, 10.0, 1) is None
    assert ranks_from_ratio("all_reduce", 0.0) == 1


@pytest.mark.parametrize(("size", "time"), [(0, 1.0), (-4, 1.0), (8, 0.0), (8, -1.0)])
def test_nothing_moved_and_nothing_measured_is_no_bandwidth(size: int, time: float) -> None:
    assert algbw_gbps(size, time) is None


@pytest.mark.parametrize(
    ("written", "ours"),
    [
        ("AllReduce", "all_reduce"),
        ("all_reduce_perf", "all_reduce"),
        ("all_gather_perf_mpi", "all_gather"),
        ("alltoall_perf", "all_to_all"),
        ("AlltoAllv", "all_to_all_uneven"),
        ("SendRecv", "sendrecv"),
        ("ReduceScatter", "reduce_scatter"),
        ("Broadcast", "broadcast"),
        ("hypercube_perf", None),
        ("", None),
    ],
)
def test_names_of_others_become_ours(written: str, ours: str | None) -> None:
    assert canonical_name(written) == ours

"""Samples of ranks: what travels comes back, nonsense is refused, and rows and arrivals are what they are defined as."""

from __future__ import annotations

import statistics
import struct
from array import array
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.nccl_bench.analysis.samples import (
    MAX_KEPT,
    RankSamples,
    RowHeader,
    arrivals_from_samples,
    row_from_samples,
)
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Style
from distdoctor.ranks.messages import PayloadError

GROUP = Group(kind=GroupKind.JOB, label="job", ranks=(0, 1, 2))
HEADER = RowHeader(collective="all_reduce", group=GROUP, size_bytes=3_000_000, op="sum", style=Style.ISOLATED)


@dataclass
class Loop:
    own_us: list[float] | array[float]
    barrier_us: list[float] | array[float]
    operation_us: list[float] | array[float]
    total_us: list[float] | array[float]
    loop_us: float


def streaming(*times_us: float) -> RankSamples:
    nothing = [0.0] * len(times_us)
    return RankSamples.of(Loop(nothing, nothing, nothing, list(times_us), sum(times_us)))


def isolated(own: list[float], barrier: list[float], operation: list[float]) -> RankSamples:
    return RankSamples.of(Loop(own, barrier, operation, operation, 1000.0))


times = st.floats(0, 1e9, width=32)


@given(st.lists(st.tuples(times, times, times, times), min_size=1, max_size=400), times)
def test_what_travels_comes_back(rows: list[tuple[float, ...]], loop_us: float) -> None:
    own, barrier, operation, total = (array("d", column) for column in zip(*rows, strict=True))
    samples = RankSamples.of(Loop(own, barrier, operation, total, loop_us))
    back = RankSamples.decode(samples.encode())
    assert (back.iters, back.every, back.loop_us) == (len(rows), samples.every, loop_us)
    assert len(back.total_us) <= MAX_KEPT
    for name in ("own_us", "barrier_us", "operation_us", "total_us"):
        sent, got = getattr(samples, name), getattr(back, name)
        assert (sent is None) == (got is None)
        assert sent is None or np.array_equal(sent, got)
    assert np.array_equal(back.total_us, np.float32(total[:: samples.every]))
    assert (back.own_us is None) == (not any(barrier))


def test_samples_are_compact() -> None:
    assert len(streaming(*[1.0] * 100).encode()) == 18 + 400
    assert len(isolated([1.0] * 100, [1.0] * 100, [1.0] * 100).encode()) == 18 + 1600
    assert len(streaming(*[1.0] * 1_000_000).encode()) <= 18 + 4 * MAX_KEPT


GOOD = streaming(1.0, 2.0, 3.0).encode()


def altered(offset: int, data: bytes) -> bytes:
    return GOOD[:offset] + data + GOOD[offset + len(data) :]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:10],
        GOOD[:-1],
        GOOD + b"\0",
        altered(0, b"\x02"),
        altered(1, b"\x01"),
        altered(1, b"\xff"),
        altered(2, struct.pack("<I", 0)),
        altered(2, struct.pack("<I", 2**32 - 1)),
        altered(6, struct.pack("<I", 0)),
        altered(6, struct.pack("<I", 2**32 - 1)),
        altered(10, struct.pack("<d", float("nan"))),
        altered(10, struct.pack("<d", -1.0)),
        altered(10, struct.pack("<d", 1e300)),
        altered(18, struct.pack("<f", float("nan"))),
        altered(18, struct.pack("<f", float("inf"))),
        altered(18, struct.pack("<f", -1.0)),
    ],
)
def test_nonsense_of_a_peer_is_refused(data: bytes) -> None:
    with pytest.raises(PayloadError):
        RankSamples.decode(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_samples_or_refused(data: bytes) -> None:
    try:
        samples = RankSamples.decode(data)
    except PayloadError:
        return
    assert samples.encode() == data


def test_an_iteration_takes_as_long_as_its_slowest_rank() -> None:
    repeats = [
        {0: streaming(10, 11, 12), 1: streaming(20, 9, 14), 2: streaming(8, 30, 13)},
        {0: streaming(40, 40, 40), 1: streaming(41, 42, 43), 2: streaming(1, 1, 1)},
        {0: streaming(15, 15, 15), 1: streaming(16, 17, 18), 2: streaming(2, 2, 2)},
    ]
    row = row_from_samples(HEADER, repeats)
    assert row is not None
    assert row.repeats_us == (20, 42, 17)
    assert row.time_us == 20
    assert (row.min_us, row.max_us) == (14, 43)
    assert (row.p95_us, row.p99_us) == (43, 43)
    everything = [float(each) for repeat in repeats for rank in repeat.values() for each in rank.total_us]
    assert row.mean_us == pytest.approx(statistics.mean(everything))
    assert row.fastest_rank_us == statistics.median([8, 9, 12, 1, 1, 1, 2, 2, 2])
    assert (row.num_ranks, row.iters) == (3, 3)
    # 3 MB in 20 µs is 150 GB/s; three ranks make 2 · 2/3 of it.
    assert row.algbw_gbps == pytest.approx(150)
    assert row.busbw_gbps == pytest.approx(200)


def test_percentiles_are_nearest_ranks() -> None:
    one = {0: streaming(*range(1, 101))}
    row = row_from_samples(HEADER, [one])
    assert row is not None
    assert (row.p95_us, row.p99_us, row.max_us) == (95, 99, 100)
    assert row.repeats_us == ()


def test_a_row_is_made_of_the_ranks_that_are_there() -> None:
    short = streaming(1, 1)
    row = row_from_samples(HEADER, [{0: streaming(10, 10, 10), 1: short, 2: streaming(12, 12, 12)}, {}])
    assert row is not None
    assert row.time_us == 12
    assert row.num_ranks == 3
    assert row_from_samples(HEADER, [{}, {}]) is None
    assert row_from_samples(HEADER, []) is None


def test_the_rank_that_waits_least_came_last() -> None:
    """Rank 1 needs 500 µs longer before it hands in; the transfer takes 20 µs, the barrier 30."""
    samples = {
        0: isolated([5.0] * 50, [30.0] * 50, [520.0] * 50),
        1: isolated([505.0] * 50, [30.0] * 50, [20.0] * 50),
        2: isolated([6.0] * 50, [31.0] * 50, [519.0] * 50),
    }
    found = arrivals_from_samples(GROUP, "all_reduce", 1024, [samples, samples])
    assert found is not None
    assert (found.group_label, found.collective, found.size_bytes) == ("job", "all_reduce", 1024)
    assert found.transfer_us == 20
    own, wait, share = zip(
        *((each.own_us, each.wait_us, each.last_share) for each in found.arrivals), strict=True
    )
    assert own == (5, 505, 6)
    assert wait == (500, 0, 500)
    assert share == (0, 1, 0)
    assert all(each.iterations == 100 and each.own_p90_us == each.own_us for each in found.arrivals)


def test_a_rank_that_is_late_to_the_barrier_came_last_as_well() -> None:
    samples = {
        0: isolated([5.0] * 4, [500.0] * 4, [20.0] * 4),
        1: isolated([485.0] * 4, [20.0] * 4, [20.0] * 4),
    }
    found = arrivals_from_samples(GROUP, "barrier", 0, [samples])
    assert found is not None
    assert [each.last_share for each in found.arrivals] == [0, 1]
    assert [each.wait_us for each in found.arrivals] == [480, 0]


def test_arrivals_are_told_of_ranks_that_every_repeat_has() -> None:
    full = isolated([5.0] * 4, [10.0] * 4, [20.0] * 4)
    found = arrivals_from_samples(
        GROUP, "all_reduce", 1024, [{0: full, 1: full, 2: full}, {0: full, 2: full}]
    )
    assert found is not None
    assert [each.rank for each in found.arrivals] == [0, 2]
    assert all(each.iterations == 8 for each in found.arrivals)
    assert arrivals_from_samples(GROUP, "all_reduce", 1024, [{0: streaming(1, 2)}]) is None
    assert arrivals_from_samples(GROUP, "all_reduce", 1024, []) is None

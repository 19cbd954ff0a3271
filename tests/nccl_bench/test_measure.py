"""Collectives, validation and the timed loop in real ranks over Gloo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distdoctor.nccl_bench.analysis.samples import RankSamples, arrivals_from_samples
from distdoctor.nccl_bench.definitions import BARRIER, NAMES
from distdoctor.nccl_bench.facts.lateness import ArrivalsOfGroup
from distdoctor.nccl_bench.facts.rows import Group, GroupKind
from distdoctor.nccl_bench.shapes import actual_size_bytes, natural_places
from forkpool import ForkPool, Outcome
from slowdown import scaled

pytest.importorskip("torch")
pytestmark = pytest.mark.ranks

SCENARIOS = Path(__file__).with_name("measure_scenarios.py")
LIMIT_S = scaled(60)
DTYPES = ("float32", "bfloat16", "int32")
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "int32": 4}
SLEEP_S = 0.005
ITERS = 30


@pytest.fixture(scope="module")
def pool() -> Iterator[ForkPool]:
    with ForkPool(torch=True, scenarios=SCENARIOS) as warm:
        yield warm


def values(outcomes: list[Outcome]) -> list[Any]:
    """What each rank returned, by rank."""
    assert [each.ending for each in outcomes] == ["returned"] * len(outcomes), outcomes
    return [each.value for each in outcomes]


def run(pool: ForkPool, function: str, world_size: int, **args: Any) -> list[Any]:
    return values(pool.run(function, world_size=world_size, args=args, limit_s=LIMIT_S, store=True))


def assert_valid(by_rank: list[dict[str, dict[str, Any]]]) -> None:
    assert all(by_rank)
    for rank, cells in enumerate(by_rank):
        for name, cell in cells.items():
            assert (cell["plain"], cell["issued"]) == ("", ""), f"{name} on rank {rank}"


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_every_collective_gives_what_it_must_in_every_type_and_place(pool: ForkPool, world_size: int) -> None:
    by_rank = run(pool, "validate", world_size, dtypes=list(DTYPES))
    assert_valid(by_rank)
    places = sum(len(natural_places(name)) for name in (*NAMES, BARRIER))
    assert all(len(cells) == places * len(DTYPES) for cells in by_rank)
    for cells in by_rank:
        for title, cell in cells.items():
            name, dtype, _ = title.split()
            assert cell["size"] == actual_size_bytes(
                name, 4096 * world_size + 4, world_size, ELEMENT_BYTES[dtype]
            )


@pytest.mark.parametrize(
    ("ops", "dtypes"),
    [
        (("sum", "product", "min", "max"), ("float32", "float16", "int8", "bool")),
        (("band", "bor", "bxor"), ("int32", "uint8", "bool")),
        (("avg",), ("float32", "bfloat16", "complex64")),
    ],
)
def test_every_reduction_gives_what_it_must(
    pool: ForkPool, ops: tuple[str, ...], dtypes: tuple[str, ...]
) -> None:
    by_rank = run(pool, "validate_ops", 3, ops=list(ops), dtypes=list(dtypes))
    if ops == ("avg",) and not any(by_rank):
        pytest.skip("Gloo of this torch takes no averages (2.4 does not)")
    assert_valid(by_rank)
    assert all(len(cells) >= 2 * len(ops) * len(dtypes) for cells in by_rank)


def test_groups_of_some_ranks_are_measured_at_once(pool: ForkPool) -> None:
    by_rank = run(pool, "validate_in_groups", 4, groups=[[3, 1], [0, 2]])
    assert_valid(by_rank)
    assert all(len(cells) == len(NAMES) + 1 for cells in by_rank)
    apart = run(pool, "validate_in_groups", 4, groups=[[1, 2, 3]])
    assert apart[0] == {}
    assert_valid(apart[1:])


def test_the_names_of_older_torch_do_the_same(pool: ForkPool) -> None:
    assert_valid(run(pool, "validate_old_names", 2))


def test_a_collective_that_does_nothing_is_wrong_in_every_element(pool: ForkPool) -> None:
    first, second = run(pool, "nothing_done", 2)
    size = 4096 * 2 + 4
    whole = size // 4
    assert first["all_reduce"] == second["all_reduce"] == whole
    assert first["all_gather"] == second["all_gather"] == actual_size_bytes("all_gather", size, 2, 4) // 4
    assert first["broadcast"] == 0  # the root holds what it sends
    assert second["broadcast"] == whole
    assert first["reduce"] == whole
    assert second["reduce"] == second["gather"] == -1
    assert all(first[name] > 0 for name in ("gather", "scatter", "all_to_all", "sendrecv", "reduce_scatter"))


@pytest.mark.parametrize(
    ("name", "wrapped", "tail"),
    [
        ("all_reduce", "all_reduce", ""),
        ("broadcast", "broadcast", ", in the part from rank 0"),
        ("all_to_all", "all_to_all_single", ", in the part from rank 0"),
    ],
)
def test_one_spoilt_element_is_told_by_the_rank_that_holds_it(
    pool: ForkPool, name: str, wrapped: str, tail: str
) -> None:
    by_rank = run(pool, "spoilt", 3, name=name, wrapped=wrapped, victim=2, index=17)
    assert by_rank[:2] == [{}, {}]
    wrong = by_rank[2]
    assert (wrong["count"], wrong["index"]) == (1, 17)
    assert wrong["example"].startswith("element 17 is ")
    assert wrong["example"].endswith(f" (rank 2{tail})")


def arrivals_of(hexed: list[str]) -> ArrivalsOfGroup:
    group = Group(kind=GroupKind.JOB, label="job", ranks=tuple(range(len(hexed))))
    samples = {rank: RankSamples.decode(bytes.fromhex(each)) for rank, each in enumerate(hexed)}
    found = arrivals_from_samples(group, "all_reduce", 1024, [samples])
    assert found is not None
    return found


# Waiting, own time and shares are compared among the ranks of one run, and with a sleep that cannot be shorter:
# a busy machine makes them longer, not different.
def test_a_rank_that_sleeps_before_each_call_has_own_time_and_hardly_waits(pool: ForkPool) -> None:
    hexed = run(pool, "late", 3, sleeper=1, sleep_s=SLEEP_S, iters=ITERS, isolated=True)
    found = arrivals_of(hexed)
    sleeper = found.arrivals[1]
    others = (found.arrivals[0], found.arrivals[2])
    assert sleeper.own_us >= SLEEP_S * 1e6
    assert sleeper.iterations == ITERS
    for other in others:
        assert other.own_us < sleeper.own_us
        assert other.wait_us > sleeper.wait_us
        assert other.last_share < sleeper.last_share
    assert sleeper.last_share > 0.5
    # What the others wait is no transfer.
    samples = [RankSamples.decode(bytes.fromhex(each)) for each in hexed]
    others_us = [float(np.median(samples[rank].total_us)) for rank in (0, 2)]
    assert found.transfer_us < min(others_us)


def test_a_rank_that_is_late_between_calls_hardly_waits_in_the_barrier(pool: ForkPool) -> None:
    found = arrivals_of(run(pool, "late_before", 3, sleeper=2, sleep_s=SLEEP_S, iters=ITERS))
    sleeper = found.arrivals[2]
    assert sleeper.own_us >= SLEEP_S * 1e6
    assert all(other.wait_us > sleeper.wait_us for other in found.arrivals[:2])
    assert sleeper.last_share > 0.5


def test_back_to_back_every_rank_takes_as_long_as_the_slowest(pool: ForkPool) -> None:
    hexed = run(pool, "late", 2, sleeper=0, sleep_s=SLEEP_S, iters=ITERS, isolated=False)
    for each in hexed:
        samples = RankSamples.decode(bytes.fromhex(each))
        assert samples.operation_us is None
        assert samples.loop_us >= ITERS * SLEEP_S * 1e6
        assert float(samples.total_us.sum()) == pytest.approx(samples.loop_us, rel=1e-3)


def test_what_gloo_refuses_is_told_in_its_own_words(pool: ForkPool) -> None:
    asked = [
        ["all_reduce", "float32", "sum"],
        ["all_reduce", "float32", "premul_sum"],
        ["all_gather", "float8_e4m3fn", "sum"],
        ["all_reduce", "complex64", "max"],
        ["all_reduce", "float32", "band"],
        ["sendrecv", "float32", "sum"],
    ]
    for words in run(pool, "refusals", 2, asked=asked):
        assert words[0] is None
        assert words[1] == "Cannot use ReduceOp.PREMUL_SUM with Gloo"
        assert words[2] == "Invalid scalar type"
        assert "MAX on complex tensors" in words[3]
        assert words[4] == "Cannot use ReduceOp.BAND with non-integral dtype"
        assert words[5] is None


def test_a_peer_that_is_gone_is_no_refusal(pool: ForkPool) -> None:
    outcomes = pool.run("peer_dies", world_size=2, limit_s=LIMIT_S, store=True)
    assert outcomes[0].ending == "raised"
    assert "RuntimeError" in outcomes[0].value or "Dist" in outcomes[0].value

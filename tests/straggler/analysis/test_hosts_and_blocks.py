"""Ranks that are slow together: by host, in a block, every k-th."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.straggler.analysis.ranks.blocks import Shape, pattern_of
from distdoctor.straggler.analysis.ranks.effects import effects_of
from distdoctor.straggler.analysis.ranks.hosts import AccusedRank, SlowHost, rows_by_host, slow_hosts
from distdoctor.straggler.facts.places import Place


def places(num_hosts: int, per_host: int) -> list[Place]:
    return [Place(rank=rank, host=f"host-{rank // per_host}") for rank in range(num_hosts * per_host)]


def hosts_of(
    effect: dict[int, float],
    *,
    num_hosts: int = 4,
    per_host: int = 4,
    start: int = 0,
    accused: tuple[int, ...] = (),
    of: list[Place] | None = None,
) -> tuple[SlowHost, ...]:
    """`effect`: by row, from column `start` of 100 on."""
    where = of or places(num_hosts, per_host)
    excess = (0.005 * np.random.default_rng(1).standard_normal((len(where), 100))).astype(np.float32)
    for row, much in effect.items():
        excess[row, start:] += much
    return slow_hosts(
        excess,
        effects_of(excess).effect,
        where,
        accused=[AccusedRank(row=row, effect=effect[row], start=start, end=100) for row in accused],
        rank_threshold=0.04,
        rank_scale=0.006,
        floor=0.03,
        error=0.0004,
    )


def test_a_host_whose_ranks_are_all_slow_is_named_with_all_of_them() -> None:
    (host,) = hosts_of(dict.fromkeys((4, 5, 6, 7), 0.1))
    assert (host.host, host.rows, host.num_slow) == ("host-1", (4, 5, 6, 7), 4)
    assert host.effect == pytest.approx(0.1, abs=0.01)
    assert (host.start, host.end) == (0, 100)


def test_ranks_that_are_too_little_slow_each_are_named_by_their_host_together() -> None:
    (host,) = hosts_of(dict.fromkeys((8, 9, 10, 11), 0.039))
    assert host.host == "host-2"


@pytest.mark.parametrize("slow", [(4,), (4, 5)])
def test_one_or_two_slow_ranks_of_four_are_not_their_host(slow: tuple[int, ...]) -> None:
    assert hosts_of(dict.fromkeys(slow, 0.2), accused=slow) == ()


def test_three_of_four_are() -> None:
    (host,) = hosts_of(dict.fromkeys((4, 5, 6), 0.2), accused=(4, 5, 6))
    assert host.num_slow == 3


def test_a_host_that_became_slow_is_judged_from_there_on() -> None:
    (host,) = hosts_of(dict.fromkeys((4, 5, 6, 7), 0.2), start=60, accused=(4, 5, 6, 7))
    assert (host.start, host.end) == (60, 100)
    assert host.effect == pytest.approx(0.2, abs=0.01)


def test_healthy_hosts_are_not_named() -> None:
    assert hosts_of({}) == ()


def test_two_hosts_cannot_be_compared() -> None:
    assert hosts_of(dict.fromkeys(range(4), 0.3), num_hosts=2) == ()


def test_a_host_with_one_rank_is_that_rank() -> None:
    assert hosts_of({1: 0.3}, per_host=1) == ()


def test_ranks_without_a_host_belong_to_none() -> None:
    assert rows_by_host([Place(rank=0), Place(rank=1, host="a"), Place(rank=2, host="a")]) == {"a": (1, 2)}
    assert hosts_of({0: 0.3}, of=[Place(rank=rank) for rank in range(16)]) == ()


@pytest.mark.parametrize(
    ("ranks", "num_ranks", "shape", "at_end"),
    [
        ((), 8, Shape.SCATTERED, False),
        ((5,), 8, Shape.SCATTERED, False),
        ((12, 13, 14, 15), 16, Shape.BLOCK, True),
        ((0, 1, 2, 3), 16, Shape.BLOCK, True),
        ((4, 5, 6, 7), 16, Shape.BLOCK, False),
        ((4, 5, 7), 16, Shape.BLOCK, False),
        ((3, 7, 11, 15), 16, Shape.STRIDED, False),
        ((1, 3, 5, 7, 9, 11, 13), 16, Shape.STRIDED, False),
        ((1, 6), 64, Shape.SCATTERED, False),
        ((1, 6, 12, 33), 64, Shape.SCATTERED, False),
        ((1, 6, 12, 33, 40, 41, 55, 62), 64, Shape.MANY, False),
    ],
)
def test_what_slow_ranks_look_like(
    ranks: tuple[int, ...], num_ranks: int, shape: Shape, at_end: bool
) -> None:
    pattern = pattern_of(ranks, num_ranks)
    assert (pattern.shape, pattern.at_end, pattern.ranks) == (shape, at_end, ranks)


@given(st.sampled_from([8, 12, 24, 64]), st.data())
def test_every_whole_block_of_a_mesh_is_a_block(num_ranks: int, data: st.DataObject) -> None:
    size = data.draw(
        st.sampled_from([each for each in range(2, num_ranks // 2 + 1) if num_ranks % each == 0])
    )
    number = data.draw(st.integers(0, num_ranks // size - 1))
    ranks = list(range(number * size, (number + 1) * size))
    assert pattern_of(data.draw(st.permutations(ranks)), num_ranks).shape is Shape.BLOCK


@given(st.lists(st.integers(0, 63), unique=True))
def test_the_order_of_ranks_does_not_matter(ranks: list[int]) -> None:
    assert pattern_of(ranks, 64) == pattern_of(sorted(ranks), 64)

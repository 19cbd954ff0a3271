"""Rounds of pairs: complete, disjoint, the same everywhere, and quick for many ranks."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.nccl_bench.analysis.pairing import (
    MAX_ALL_PAIRS_RANKS,
    MAX_MATRIX_RANKS,
    Round,
    all_pairs_rounds,
    confirmation_rounds,
    num_sampled_rounds,
    plan_matrix,
    representatives,
    sampled_rounds,
)
from nccl_bench.matrix_builders import make_places


def assert_disjoint(rounds: Sequence[Round]) -> None:
    for each in rounds:
        members = [rank for pair in each for rank in pair]
        assert len(members) == len(set(members))


@given(st.integers(0, 40))
def test_all_pairs_hold_every_ordered_pair_once_in_rounds_of_disjoint_pairs(num_ranks: int) -> None:
    rounds = all_pairs_rounds(range(num_ranks), concurrent=True)
    pairs = [pair for each in rounds for pair in each]
    assert sorted(pairs) == [(a, b) for a in range(num_ranks) for b in range(num_ranks) if a != b]
    assert_disjoint(rounds)
    if num_ranks > 1:
        assert len(rounds) == 2 * (num_ranks - 1 + num_ranks % 2)


@pytest.mark.parametrize("num_ranks", [0, 1, 2, 3, 7, 8])
def test_one_by_one_there_is_one_pair_a_round(num_ranks: int) -> None:
    rounds = all_pairs_rounds(range(num_ranks), concurrent=False)
    assert all(len(each) == 1 for each in rounds)
    assert len({pair for (pair,) in rounds}) == num_ranks * (num_ranks - 1)


@given(st.integers(0, 200), st.integers(0, 9))
def test_in_sampled_rounds_every_rank_meets_another_partner_each_time(num_ranks: int, seed: int) -> None:
    rounds = sampled_rounds(range(num_ranks), seed=seed)
    assert_disjoint(rounds)
    pairs = [pair for each in rounds for pair in each]
    assert len(pairs) == len(set(pairs))
    assert {(b, a) for a, b in pairs} == set(pairs)
    for each in rounds:
        assert len(each) == num_ranks // 2
    if num_ranks > 1:
        assert len(rounds) == 2 * num_sampled_rounds(num_ranks)


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert sampled_rounds(range(64), seed=3) == sampled_rounds(range(64), seed=3)
    assert sampled_rounds(range(64), seed=3) != sampled_rounds(range(64), seed=4)


def test_hosts_are_matched_and_every_rail_meets_its_like() -> None:
    places = make_places(num_hosts=12, ranks_per_host=4)
    host_of = {place.rank: place.host for place in places}
    rounds = sampled_rounds(range(48), seed=0, places=places)
    for each in rounds:
        assert len(each) == 24
        assert all(source % 4 == target % 4 for source, target in each)
        partners = {(host_of[source], host_of[target]) for source, target in each}
        assert len(partners) == 6


def test_a_host_with_fewer_ranks_is_matched_with_what_it_has() -> None:
    places = [place for place in make_places(num_hosts=3, ranks_per_host=2) if place.rank != 5]
    pairs = {pair for each in sampled_rounds(range(5), seed=0, places=places) for pair in each}
    assert pairs == {(0, 2), (2, 0), (0, 4), (4, 0), (2, 4), (4, 2), (1, 3), (3, 1)}


def test_ten_thousand_ranks_are_planned_at_once() -> None:
    places = make_places(num_hosts=1250, ranks_per_host=8)
    began = time.process_time()
    plan = plan_matrix(places)
    assert time.process_time() - began < 5
    assert plan.is_sampled
    assert plan.is_concurrent
    assert len(plan.ranks) == 1250
    assert len(sampled_rounds(range(10_000), seed=0)) == 2 * num_sampled_rounds(10_000) == 2 * 16


def test_few_ranks_are_measured_pair_by_pair_and_more_in_rounds() -> None:
    few = plan_matrix(make_places(num_hosts=2, ranks_per_host=8))
    assert (few.is_sampled, few.is_concurrent, len(few.rounds)) == (False, False, 16 * 15)
    assert len(few.ranks) == MAX_ALL_PAIRS_RANKS
    more = plan_matrix(make_places(num_hosts=3, ranks_per_host=8))
    assert (more.is_sampled, more.is_concurrent) == (True, True)
    everything = plan_matrix(make_places(num_hosts=5, ranks_per_host=4), all_ranks=True)
    assert not everything.is_sampled
    assert sum(map(len, everything.rounds)) == 20 * 19


def test_one_rank_has_nothing_to_measure() -> None:
    assert plan_matrix(make_places(num_hosts=1)).rounds == ()
    assert plan_matrix(()).rounds == ()


def test_representatives_are_one_a_host_when_ranks_are_too_many() -> None:
    assert representatives(make_places(num_hosts=3, ranks_per_host=2)) == tuple(range(6))
    assert representatives(make_places(num_hosts=600, ranks_per_host=8))[:3] == (0, 8, 16)
    assert len(representatives(make_places(num_hosts=9000, ranks_per_host=1))) <= MAX_MATRIX_RANKS


def test_suspects_and_controls_come_in_turn() -> None:
    rounds = confirmation_rounds([(0, 1), (0, 2)], [(3, 4)], repeats=2)
    assert [pair for (pair,) in rounds] == [(0, 1), (3, 4), (0, 2), (3, 4)] * 2
    more_controls = confirmation_rounds([(0, 1)], [(3, 4), (4, 3)], repeats=1)
    assert [pair for (pair,) in more_controls] == [(0, 1), (3, 4), (4, 3)]
    assert confirmation_rounds([], [(3, 4)]) == ()

"""Who is slow in a matrix: faults are found with their direction, noise accuses nobody."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.nccl_bench.analysis.matrix_cells import slow_ratio
from distdoctor.nccl_bench.analysis.matrix_score import (
    Direction,
    Kind,
    MatrixScore,
    Suspect,
    needs_confirmation,
    score_matrix,
)
from distdoctor.nccl_bench.analysis.slow_ends import slow_ends
from distdoctor.nccl_bench.facts.matrix import Matrix, PairTime
from nccl_bench.matrix_builders import (
    NOISES,
    SIZE_BYTES,
    Cluster,
    Noise,
    confirm,
    make_places,
    measured,
    quiet,
    scan,
)

SLOW = 0.3


def judge(cluster: Cluster, *, noise: Noise = quiet, seed: int = 0) -> MatrixScore:
    return score_matrix(measured(cluster, noise=noise, seed=seed), cluster.places)


def only(score: MatrixScore) -> Suspect:
    (suspect,) = score.confirmed
    return suspect


# --- faults ---

SHAPES = [(3, 1), (4, 1), (4, 2), (5, 1), (8, 1), (4, 8), (16, 1), (33, 1), (64, 1)]


@pytest.mark.parametrize("noise", ["quiet", "loaded"])
@pytest.mark.parametrize(("num_hosts", "ranks_per_host"), SHAPES)
@pytest.mark.parametrize("direction", Direction)
def test_a_slow_host_is_found_with_its_direction(
    num_hosts: int, ranks_per_host: int, direction: Direction, noise: str
) -> None:
    places = make_places(num_hosts=num_hosts, ranks_per_host=ranks_per_host)
    # Under heavy load a third of the speed is within the noise now and then.
    part = SLOW if noise == "quiet" else 0.2
    slow = {"host-1": part}
    cluster = Cluster(
        places=places,
        egress=slow if direction is not Direction.INGRESS else {},
        ingress=slow if direction is not Direction.EGRESS else {},
    )
    for seed in range(3):
        suspect = only(judge(cluster, noise=NOISES[noise], seed=seed))
        assert (suspect.kind, suspect.hosts, suspect.direction) == (Kind.HOST, ("host-1",), direction)
        assert suspect.ratio == pytest.approx(part, rel=0.4)
        assert suspect.margin is not None
        assert suspect.margin > 2


@pytest.mark.parametrize("shape", [(3, 1), (4, 1), (4, 2), (8, 1)])
def test_a_slow_direction_between_two_good_hosts_is_no_slow_host(shape: tuple[int, int]) -> None:
    places = make_places(num_hosts=shape[0], ranks_per_host=shape[1])
    suspect = only(judge(Cluster(places=places, links={("host-2", "host-0"): SLOW})))
    assert (suspect.kind, suspect.hosts) == (Kind.DIRECTION, ("host-2", "host-0"))


@pytest.mark.parametrize("shape", [(3, 1), (4, 1), (4, 2), (8, 1)])
def test_both_directions_of_one_pair_are_a_link(shape: tuple[int, int]) -> None:
    places = make_places(num_hosts=shape[0], ranks_per_host=shape[1])
    links = {("host-2", "host-0"): SLOW, ("host-0", "host-2"): SLOW}
    suspect = only(judge(Cluster(places=places, links=links)))
    assert (suspect.kind, suspect.hosts) == (Kind.LINK, ("host-0", "host-2"))


def test_a_slow_link_of_a_sampled_matrix_is_found() -> None:
    places = make_places(num_hosts=64)
    source, target = next((each.source, each.target) for each in scan(Cluster(places=places)).pairs)
    hosts = (f"host-{source}", f"host-{target}")
    suspect = only(judge(Cluster(places=places, links={hosts: SLOW})))
    assert (suspect.kind, suspect.hosts) == (Kind.DIRECTION, hosts)


@pytest.mark.parametrize("shape", [(2, 4), (3, 2), (4, 2), (4, 8)])
def test_one_slow_nic_is_not_its_host(shape: tuple[int, int]) -> None:
    places = make_places(num_hosts=shape[0], ranks_per_host=shape[1])
    rank = shape[1] + 1
    suspect = only(judge(Cluster(places=places, ranks={rank: SLOW})))
    assert (suspect.kind, suspect.ranks, suspect.hosts) == (Kind.RANK, (rank,), ("host-1",))


@pytest.mark.parametrize("shape", [(3, 2), (4, 2), (4, 8), (16, 4)])
def test_a_slow_rail_is_not_its_hosts(shape: tuple[int, int]) -> None:
    hosts, ranks_per_host = shape
    places = make_places(num_hosts=hosts, ranks_per_host=ranks_per_host)
    of_rail = tuple(host * ranks_per_host + 1 for host in range(hosts))
    suspect = only(judge(Cluster(places=places, ranks=dict.fromkeys(of_rail, SLOW))))
    assert (suspect.kind, suspect.ranks) == (Kind.RAIL, of_rail)


@pytest.mark.parametrize("num_hosts", [4, 8, 16, 64])
def test_half_of_the_hosts_are_told_as_a_group(num_hosts: int) -> None:
    slow = {f"host-{index}": SLOW for index in range(num_hosts // 2)}
    suspect = only(judge(Cluster(places=make_places(num_hosts=num_hosts), egress=slow, ingress=slow)))
    assert suspect.kind is Kind.GROUP
    assert set(suspect.hosts) <= set(slow)
    assert len(suspect.hosts) >= 0.9 * len(slow)


@pytest.mark.parametrize("num_hosts", [4, 8, 64])
def test_hosts_behind_two_switches_are_islands_not_slow_hosts(num_hosts: int) -> None:
    half = num_hosts // 2
    links = {
        (f"host-{a}", f"host-{b}"): SLOW
        for a in range(num_hosts)
        for b in range(num_hosts)
        if (a < half) != (b < half)
    }
    suspect = only(judge(Cluster(places=make_places(num_hosts=num_hosts), links=links)))
    assert suspect.kind is Kind.ISLANDS
    assert [len(group) for group in suspect.candidate.islands] == [half, half]


def test_two_slow_hosts_of_many_are_named_each() -> None:
    slow = {"host-3": SLOW, "host-5": 0.1}
    score = judge(Cluster(places=make_places(num_hosts=8), egress=slow))
    assert [(each.kind, each.hosts) for each in score.confirmed] == [
        (Kind.HOST, ("host-5",)),
        (Kind.HOST, ("host-3",)),
    ]


def test_of_two_hosts_neither_is_named_only_the_direction() -> None:
    for ranks_per_host in (1, 2, 4):
        places = make_places(num_hosts=2, ranks_per_host=ranks_per_host)
        suspect = only(judge(Cluster(places=places, egress={"host-1": SLOW})))
        assert (suspect.kind, suspect.hosts) == (Kind.DIRECTION, ("host-1", "host-0"))
        assert suspect.candidate.only_two_hosts


def test_a_network_that_is_slow_everywhere_names_nobody() -> None:
    everything = {f"host-{index}": 0.05 for index in range(6)}
    assert judge(Cluster(places=make_places(num_hosts=6), egress=everything)).suspects == ()
    most = {f"host-{index}": 0.05 for index in range(4)}
    assert judge(Cluster(places=make_places(num_hosts=6), egress=most, ingress=most)).confirmed == ()


def test_nvlink_inside_is_no_reason_to_call_the_network_slow() -> None:
    cluster = Cluster(places=make_places(num_hosts=3, ranks_per_host=4), inside_gbps=400, gbps=5)
    assert judge(cluster).suspects == ()


# --- inside one host ---


@pytest.mark.parametrize("shape", [(1, 4), (1, 8), (4, 4)])
def test_one_slow_gpu_inside_a_host_is_found(shape: tuple[int, int]) -> None:
    places = make_places(num_hosts=shape[0], ranks_per_host=shape[1])
    suspect = only(judge(Cluster(places=places, inside_ranks={2: SLOW})))
    assert (suspect.kind, suspect.ranks, suspect.candidate.is_inside) == (Kind.RANK, (2,), True)


def test_gpus_that_are_bridged_in_pairs_are_built_so() -> None:
    places = make_places(num_hosts=1, ranks_per_host=8)
    cluster = Cluster(places=places)
    bridged = scan(cluster)
    pairs = tuple(
        replace(each, best_us=each.best_us * factor, repeats_us=tuple(us * factor for us in each.repeats_us))
        for each in bridged.pairs
        for factor in [1.0 if each.source // 2 == each.target // 2 else 10.0]
    )
    assert score_matrix(replace(bridged, pairs=pairs), places).suspects == ()


def test_one_direction_inside_a_host_is_found_but_not_a_pair_that_is_slow_both_ways() -> None:
    places = make_places(num_hosts=1, ranks_per_host=4)

    def slower(matrix: Matrix, *slow: tuple[int, int]) -> Matrix:
        def one(each: PairTime) -> PairTime:
            factor = 5.0 if (each.source, each.target) in slow else 1.0
            return replace(
                each, best_us=each.best_us * factor, repeats_us=tuple(us * factor for us in each.repeats_us)
            )

        return replace(matrix, pairs=tuple(one(each) for each in matrix.pairs))

    matrix = scan(Cluster(places=places), visits=12)
    everything_twice = replace(matrix, pairs=tuple(replace(each, confirmed=True) for each in matrix.pairs))
    (one_way,) = score_matrix(slower(everything_twice, (0, 1)), places).confirmed
    assert (one_way.kind, one_way.ranks) == (Kind.DIRECTION, (0, 1))
    assert score_matrix(slower(everything_twice, (0, 1), (1, 0)), places).suspects == ()


# --- noise ---


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("ranks_per_host", [1, 2])
def test_noise_accuses_nobody(noise: str, ranks_per_host: int) -> None:
    """200 seeds over 2 to 64 hosts, with tails in which one visit in three is many times slower."""
    for seed in range(200):
        num_hosts = 2 + seed % 7 if seed % 10 else (16, 33, 64)[seed // 10 % 3]
        cluster = Cluster(places=make_places(num_hosts=num_hosts, ranks_per_host=ranks_per_host))
        assert judge(cluster, noise=NOISES[noise], seed=seed).confirmed == (), (num_hosts, seed)


@settings(max_examples=150, deadline=None)
@given(
    num_hosts=st.integers(2, 12),
    seed=st.integers(0, 2**32),
    often=st.floats(0, 0.35),
    worst=st.floats(1, 50),
    base=st.floats(0, 0.4),
    busy=st.floats(1, 1.25),
)
def test_no_noise_model_accuses_anybody(
    num_hosts: int, seed: int, often: float, worst: float, base: float, busy: float
) -> None:
    """Bursts of any strength in up to a third of the visits, on hosts of which one is up to 1.25-fold slower for good."""

    def noise(generator: random.Random) -> float:
        factor = 1 + generator.random() * base
        return factor * generator.uniform(1, worst) if generator.random() < often else factor

    slower = {"host-0": 1 / busy}
    cluster = Cluster(places=make_places(num_hosts=num_hosts), egress=slower, ingress=slower)
    assert judge(cluster, noise=noise, seed=seed).confirmed == ()


@pytest.mark.parametrize("noise", ["bursts", "heavy_tail"])
def test_under_heavy_noise_a_fault_is_named_rightly_or_not_at_all(noise: str) -> None:
    cluster = Cluster(places=make_places(num_hosts=6), egress={"host-4": 0.05})
    named = [judge(cluster, noise=NOISES[noise], seed=seed).confirmed for seed in range(50)]
    assert {each.hosts for suspects in named for each in suspects} == {("host-4",)}
    assert sum(bool(suspects) for suspects in named) >= 45


def test_on_a_quiet_fabric_half_speed_is_found_and_on_a_noisy_one_a_third_is_needed() -> None:
    """One bad node of five: pairs with it at 49, others at 88 GB/s (NVIDIA/nccl-tests issue 106)."""
    places = make_places(num_hosts=5)
    bad = Cluster(places=places, egress={"host-3": 49 / 88}, ingress={"host-3": 49 / 88})
    assert only(judge(bad)).hosts == ("host-3",)
    half = Cluster(places=places, egress={"host-3": 0.45}, ingress={"host-3": 0.45})
    assert only(judge(half)).hosts == ("host-3",)
    for seed in range(20):
        assert judge(half, noise=NOISES["heavy_tail"], seed=seed).confirmed == ()


def test_what_counts_as_slow_follows_the_noise() -> None:
    def repeated(fold: float) -> Matrix:
        pair = PairTime(source=0, target=1, best_us=100.0, repeats_us=(100.0, 100.0 * fold, 100.0 * fold))
        return Matrix(size_bytes=SIZE_BYTES, ranks=(0, 1), pairs=(pair,))

    assert [slow_ratio(repeated(fold)) for fold in (1.02, 1.3, 3.0)] == [0.75, 0.5, 0.4]
    once = PairTime(source=0, target=1, best_us=100.0)
    assert slow_ratio(Matrix(size_bytes=SIZE_BYTES, ranks=(0, 1), pairs=(once,))) == 0.5


def test_a_link_of_a_slow_host_is_named_beside_it_when_it_is_far_slower_still() -> None:
    places = make_places(num_hosts=4)
    cluster = Cluster(places=places, egress={"host-1": SLOW}, links={("host-1", "host-3"): 0.03})
    link, host = sorted(judge(cluster).confirmed, key=lambda each: each.ratio)
    assert (link.kind, link.hosts) == (Kind.DIRECTION, ("host-1", "host-3"))
    assert (host.kind, host.hosts, host.direction) == (Kind.HOST, ("host-1",), Direction.EGRESS)


# --- two passes ---


def test_before_the_second_pass_a_suspect_is_open() -> None:
    cluster = Cluster(places=make_places(num_hosts=4), egress={"host-2": SLOW})
    score = score_matrix(scan(cluster), cluster.places)
    assert score.confirmed == ()
    (suspect,) = score.open
    assert suspect.hosts == ("host-2",)
    assert suspect.margin is None


def test_a_suspect_that_is_fast_when_measured_again_is_cleared() -> None:
    places = make_places(num_hosts=4)
    slow, fine = Cluster(places=places, egress={"host-2": SLOW}), Cluster(places=places)
    matrix = scan(slow)
    wanted = needs_confirmation(matrix, places)
    again = confirm(fine, matrix)
    assert {source for source, _ in wanted.suspects} == {2}
    assert score_matrix(again, places).confirmed == ()


def test_controls_touch_no_suspect_and_there_are_none_without_suspects() -> None:
    places = make_places(num_hosts=6)
    wanted = needs_confirmation(scan(Cluster(places=places, ingress={"host-1": SLOW})), places)
    assert all(target == 1 for _, target in wanted.suspects)
    assert all(1 not in pair for pair in wanted.controls)
    nothing = needs_confirmation(scan(Cluster(places=places)), places)
    assert (nothing.suspects, nothing.controls) == ((), ())


def test_a_second_pass_in_entries_of_its_own_counts_the_same() -> None:
    cluster = Cluster(places=make_places(num_hosts=4), egress={"host-2": SLOW})
    matrix = measured(cluster)
    split = tuple(
        part
        for each in matrix.pairs
        for part in (
            (
                replace(each, repeats_us=each.repeats_us[:3], confirmed=False),
                replace(each, repeats_us=each.repeats_us[3:]),
            )
            if each.confirmed
            else (each,)
        )
    )
    assert only(score_matrix(replace(matrix, pairs=split), cluster.places)).hosts == ("host-2",)


def test_a_late_ranks_link_is_not_blamed_for_its_lateness() -> None:
    places = make_places(num_hosts=4)
    cluster = Cluster(places=places)
    late = 5_000.0
    matrix = replace(
        scan(cluster, visits=12),
        pairs=tuple(
            replace(
                each,
                best_us=each.best_us + late * (2 in (each.source, each.target)),
                repeats_us=tuple(us + late * (2 in (each.source, each.target)) for us in each.repeats_us),
                confirmed=True,
            )
            for each in scan(cluster, visits=12).pairs
        ),
    )
    assert score_matrix(matrix, places).confirmed
    assert score_matrix(matrix, places, late_us={2: late}).confirmed == ()


def test_a_link_that_is_slower_than_its_rank_is_late_stays_a_suspect() -> None:
    cluster = Cluster(places=make_places(num_hosts=4), egress={"host-2": 0.02})
    score = score_matrix(measured(cluster), cluster.places, late_us={2: 1000.0})
    assert only(score).hosts == ("host-2",)


# --- what is not there ---


def test_pairs_of_ranks_without_a_host_are_left_out_and_counted() -> None:
    cluster = Cluster(places=make_places(num_hosts=3))
    score = score_matrix(scan(cluster), cluster.places[:2])
    assert (score.unplaced, score.num_between, score.suspects) == (4, 2, ())


def test_one_host_with_two_ranks_has_nothing_to_compare() -> None:
    score = judge(Cluster(places=make_places(num_hosts=1, ranks_per_host=2)))
    assert (score.suspects, score.num_hosts, score.num_inside) == ((), 0, 2)


def test_times_that_are_no_times_are_left_out() -> None:
    places = make_places(num_hosts=3)
    broken = PairTime(source=0, target=1, best_us=0.0)
    score = score_matrix(Matrix(size_bytes=SIZE_BYTES, ranks=(0, 1, 2), pairs=(broken,)), places)
    assert (score.num_between, score.suspects, score.scores) == (0, (), ())


def test_scores_are_one_where_nothing_is_wrong() -> None:
    score = judge(Cluster(places=make_places(num_hosts=4)))
    assert [each.name for each in score.scores] == [f"host-{index}" for index in range(4)]
    assert all(each.egress == pytest.approx(1, abs=0.1) for each in score.scores)


def test_a_thousand_hosts_are_judged_in_seconds() -> None:
    cluster = Cluster(places=make_places(num_hosts=1000), egress={"host-7": SLOW})
    assert only(judge(cluster)).hosts == ("host-7",)


def test_a_far_slower_end_stands_out_where_noise_makes_most_ends_look_slow() -> None:
    """Four hosts on two busy processors: pairs from 1.5 to 4.5 GB/s, and one that sends at 0.0245."""
    speeds = {
        ("a", "b"): 4.5, ("b", "a"): 1.9, ("a", "c"): 1.7, ("c", "a"): 1.8, ("b", "c"): 1.6, ("c", "b"): 1.5,
        ("a", "d"): 1.7, ("b", "d"): 1.9, ("c", "d"): 1.8, ("d", "a"): 0.0245, ("d", "b"): 0.0245, ("d", "c"): 0.0244,
    }  # fmt: skip
    assert [(each.end, each.direction.value) for each in slow_ends(speeds, 0.5)] == [("d", "egress")]


def test_noise_alone_that_makes_most_ends_look_slow_names_nobody() -> None:
    speeds = {
        ("a", "b"): 4.5, ("b", "a"): 1.9, ("a", "c"): 1.7, ("c", "a"): 1.8, ("b", "c"): 1.6, ("c", "b"): 1.5,
        ("a", "d"): 1.7, ("b", "d"): 1.9, ("c", "d"): 1.8, ("d", "a"): 1.5, ("d", "b"): 1.6, ("d", "c"): 1.7,
    }  # fmt: skip
    assert slow_ends(speeds, 0.5) == []

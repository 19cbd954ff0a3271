"""bench-slow-group: hosts inside themselves, rails and mesh groups beside their like."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

import pytest

from distdoctor.nccl_bench.analysis.slow_groups import compare_groups
from distdoctor.nccl_bench.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.nccl_bench.checks.slow_group import check_slow_group
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention, Origin
from distdoctor.nccl_bench.facts.places import HostHardware
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Row
from distdoctor.nccl_bench.groups import hosts_of, rails_of
from distdoctor.ranks.places import Place
from distdoctor.report.model import Confidence, Severity
from distdoctor.units import MIB
from nccl_bench.bench_builders import A100, live, nics, row
from nccl_bench.matrix_builders import bursts, heavy_tail, loaded, quiet

ITERATIONS = 20

Noise = Callable[[random.Random], float]


def cluster(num_hosts: int, ranks_per_host: int = 4) -> tuple[Place, ...]:
    return tuple(
        Place(
            rank=host * ranks_per_host + local,
            host=f"host-{host}",
            local_rank=local,
            device=f"cuda:{local}",
            gpu_index=local,
            gpu_model="NVIDIA H100 80GB HBM3",
        )
        for host in range(num_hosts)
        for local in range(ranks_per_host)
    )


def rows_of(
    groups: Sequence[Group],
    times_ms: Mapping[str, float] | None = None,
    *,
    usual_ms: float = 10.0,
    concurrent: bool = False,
    repeats: int = 3,
    noise: Noise = quiet,
    seed: int = 0,
    collective: str = "all_reduce",
    size_bytes: int = 256 * MIB,
) -> list[Row]:
    generator = random.Random(seed)
    made = []
    for group in groups:
        time_us = (times_ms or {}).get(group.label, usual_ms) * 1e3
        measured = [time_us * noise(generator) for _ in range(repeats)]
        made.append(
            row(
                size_bytes,
                time_us=median(measured),
                repeats_us=measured if repeats > 1 else (),
                min_us=min(time_us * noise(generator) for _ in range(ITERATIONS)) if repeats > 1 else None,
                group=group,
                num_ranks=len(group.ranks),
                collective=collective,
                concurrent=concurrent,
            )
        )
    return made


def facts_of(rows: Sequence[Row], places: Sequence[Place], **fields: object) -> BenchFacts:
    return live(rows, num_ranks=len(places), places=tuple(places), hardware=(), **fields)


def only(outcomes: Sequence[object]) -> Found:
    (outcome,) = outcomes
    assert isinstance(outcome, Found)
    return outcome


def test_a_host_that_is_slow_inside_itself_is_named() -> None:
    places = cluster(4)
    rows = rows_of(hosts_of(places), {"host host-2": 15.0}, concurrent=True)
    found = only(check_slow_group(facts_of(rows, places)))
    assert found.title == "host-2 is slow inside itself: 67 % of the other hosts"
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.HIGH)
    assert found.scope.hosts == ("host-2",)
    assert found.cause_class == "gpu:nvlink"
    assert "nvidia-smi topo -m" in (found.actions[0].command or "")


def test_half_the_speed_is_critical() -> None:
    places = cluster(4)
    rows = rows_of(hosts_of(places), {"host host-2": 30.0})
    assert only(check_slow_group(facts_of(rows, places))).severity is Severity.CRITICAL


def test_of_two_hosts_it_says_that_they_differ() -> None:
    places = cluster(2)
    rows = rows_of(hosts_of(places), {"host host-1": 30.0})
    found = only(check_slow_group(facts_of(rows, places)))
    assert found.title == "the two groups of hosts differ: host-1 at 34 % of the other"
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)


def test_a_slow_rail_is_named_with_the_port_it_may_use() -> None:
    places = cluster(3)
    hosts = tuple(HostHardware(host=f"host-{index}", nics=nics(4, 400)) for index in range(3))
    rows = rows_of(rails_of(places), {"rail 3": 20.0}) + rows_of(
        rails_of(places), {"rail 3": 20.0}, concurrent=True, seed=1
    )
    found = only(check_slow_group(replace(facts_of(rows, places), hardware=hosts)))
    assert found.title.startswith("rail 3 is slow: ")
    assert "mlx5_3/1" in found.actions[0].text
    assert "(alone)" in found.evidence[0].text
    assert found.cause_class == "network:rail_topology"


def test_rails_that_are_fine_alone_and_slow_together_share_something() -> None:
    places = cluster(3)
    rails = rails_of(places)
    rows = rows_of(rails) + rows_of(rails, usual_ms=35.0, concurrent=True)
    found = only(check_slow_group(facts_of(rows, places)))
    assert found.title == "rails at once reach 29 % of what each reaches alone"
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    mild = rows_of(rails) + rows_of(rails, usual_ms=15.0, concurrent=True)
    assert only(check_slow_group(facts_of(mild, places))).severity is Severity.INFO
    (gloo,) = check_slow_group(facts_of(rows, places, backend="gloo"))
    assert isinstance(gloo, Passed)


def test_one_mesh_group_that_stays_behind_in_most_rows_is_named() -> None:
    groups = [
        Group(
            kind=GroupKind.MESH,
            label=f"mesh tp #{index}",
            ranks=(4 * index, 4 * index + 1),
            set_label="mesh tp",
        )
        for index in range(4)
    ]
    places = cluster(4)
    rows = [
        each
        for collective in ("all_reduce", "all_gather", "reduce_scatter")
        for each in rows_of(
            groups,
            {"mesh tp #1": 20.0} if collective != "all_gather" else {},
            collective=collective,
        )
    ]
    found = only(check_slow_group(facts_of(rows, places)))
    assert "mesh tp #1" in found.title
    assert "2 of 3 rows" in found.evidence[1].text
    once = [replace(each, size_bytes=size) for size in (MIB, 2 * MIB, 4 * MIB) for each in rows_of(groups)]
    (outcome,) = check_slow_group(facts_of(once + rows_of(groups, {"mesh tp #1": 20.0}), places))
    assert isinstance(outcome, Passed)


def test_groups_that_are_alike_pass() -> None:
    places = cluster(4)
    (outcome,) = check_slow_group(facts_of(rows_of(hosts_of(places), repeats=3), places))
    assert isinstance(outcome, Passed)
    assert "4 of hosts" in outcome.detail


def test_hosts_with_other_gpus_or_fewer_ranks_are_not_compared() -> None:
    places = [replace(place, gpu_model=A100) if place.host == "host-1" else place for place in cluster(3)]
    rows = rows_of(hosts_of(places), {"host host-1": 30.0})
    assert compare_groups(facts_of(rows, places)).slow == ()
    fewer = [place for place in cluster(3) if place.rank < 10]
    rows = rows_of(hosts_of(fewer), {"host host-2": 30.0})
    assert compare_groups(facts_of(rows, fewer)).slow == ()


def test_more_than_half_slow_names_nobody() -> None:
    places = cluster(5)
    slow = {f"host host-{index}": 30.0 for index in range(3)}
    (outcome,) = check_slow_group(facts_of(rows_of(hosts_of(places), slow), places))
    assert isinstance(outcome, Passed)


@pytest.mark.parametrize("noise", [quiet, loaded, heavy_tail, bursts])
@pytest.mark.parametrize("num_hosts", [2, 3, 4, 16])
def test_noise_names_no_group(noise: Noise, num_hosts: int) -> None:
    places = cluster(num_hosts)
    named = 0
    for seed in range(200):
        rows = rows_of(hosts_of(places), noise=noise, seed=seed)
        named += len(compare_groups(facts_of(rows, places)).slow)
    assert named == 0


def test_a_slow_host_that_alone_is_busy_is_medium() -> None:
    places = cluster(3)
    busy = tuple(
        Contention(host=f"host-{index}", load_1min=90.0 if index == 1 else 1.0, num_cpus=8)
        for index in range(3)
    )
    rows = rows_of(hosts_of(places), {"host host-1": 30.0})
    assert only(check_slow_group(facts_of(rows, places, contention=busy))).confidence is Confidence.MEDIUM


def test_a_group_whose_repeats_disagree_is_left_out_and_told() -> None:
    places = cluster(4)
    rows = [
        replace(each, repeats_us=(9_000.0, 40_000.0, 90_000.0)) if each.group.label == "host host-2" else each
        for each in rows_of(hosts_of(places))
    ]
    passed, unseen = check_slow_group(facts_of(rows, places))
    assert isinstance(passed, Passed)
    assert isinstance(unseen, NotSeen)
    assert "host-2" in unseen.what


def test_too_few_repeats_small_messages_and_absent_groups_are_not_passed() -> None:
    places = cluster(3)
    (once,) = check_slow_group(facts_of(rows_of(hosts_of(places), {"host host-1": 30.0}, repeats=1), places))
    assert isinstance(once, NotSeen)
    assert "--repeats 3" in (once.unread.how or "")
    small = rows_of(hosts_of(places), {"host host-1": 30.0}, size_bytes=1024)
    for facts in (facts_of(small, places), BenchFacts(origin=Origin.TABLE, label="table.txt", num_ranks=8)):
        (outcome,) = check_slow_group(facts)
        assert isinstance(outcome, NotSeen)
    (one_host,) = check_slow_group(facts_of((), cluster(1)))
    assert isinstance(one_host, NotApplicable)
    (one_a_host,) = check_slow_group(facts_of((), cluster(4, 1)))
    assert isinstance(one_a_host, NotApplicable)
    (one_rank,) = check_slow_group(live((), num_ranks=1))
    assert isinstance(one_rank, NotApplicable)
    shared = facts_of(rows_of(hosts_of(places), {"host host-1": 30.0}), places, shares_gpus=True)
    (outcome,) = check_slow_group(shared)
    assert isinstance(outcome, NotSeen)

"""bench-slow-host and bench-slow-link: who is named, with which port, and when nobody is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdoctor.nccl_bench.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.nccl_bench.checks.slow_host import check_slow_host
from distdoctor.nccl_bench.checks.slow_link import check_slow_link
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention, Origin
from distdoctor.nccl_bench.facts.lateness import Arrival, ArrivalsOfGroup
from distdoctor.nccl_bench.facts.places import HostHardware
from distdoctor.ranks.places import Place
from distdoctor.report.model import Confidence, Fault, Severity
from nccl_bench.bench_builders import live, nics
from nccl_bench.matrix_builders import Cluster, make_places, measured, scan

SLOW = 0.05


def facts_of(cluster: Cluster, **fields: object) -> BenchFacts:
    values: dict[str, object] = {
        "places": cluster.places,
        "backend": "gloo",
        "hardware": (),
        "matrix": measured(cluster),
        **fields,
    }
    return live((), num_ranks=len(cluster.places), **values)


def hosts_with(kind: str, num_hosts: int, ports: int = 1) -> tuple[HostHardware, ...]:
    return tuple(
        HostHardware(host=f"host-{index}", nics=nics(ports, 400, kind)) for index in range(num_hosts)
    )


def on_gpus(places: tuple[Place, ...]) -> tuple[Place, ...]:
    return tuple(
        replace(
            each, device=f"cuda:{each.local_rank}", gpu_index=each.local_rank, gpu_uuid=f"GPU-{each.rank}"
        )
        for each in places
    )


FOUR = make_places(num_hosts=4)


def test_a_slow_host_is_named_with_direction_numbers_and_command() -> None:
    facts = facts_of(Cluster(places=FOUR, egress={"host-2": SLOW}), hardware=hosts_with("ethernet", 4))
    (found,) = check_slow_host(facts)
    assert isinstance(found, Found)
    assert found.title == "host-2 sends at 5 % of the other hosts' speed"
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.HIGH)
    assert found.scope.hosts == ("host-2",)
    assert found.scope.links == ("host-2 eth0",)
    assert "GB/s" in found.evidence[0].text
    assert "control" in found.evidence[1].text
    assert "others 0.9" in found.evidence[2].text
    assert (found.actions[0].command or "").startswith("ethtool eth0; ethtool -S eth0")
    (link,) = check_slow_link(facts)
    assert isinstance(link, Passed)


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("infiniband", "perfquery -C mlx5_0 -P 1"),
        ("roce", "rdma link show mlx5_0/1"),
        ("efa", "rdma -p statistic"),
    ],
)
def test_the_command_fits_the_kind_of_port(kind: str, command: str) -> None:
    cluster = Cluster(places=FOUR, ingress={"host-0": SLOW})
    (found,) = check_slow_host(facts_of(cluster, hardware=hosts_with(kind, 4)))
    assert isinstance(found, Found)
    assert "receives" in found.title
    assert command in (found.actions[0].command or "")


def test_of_a_host_with_several_ports_the_one_of_the_slow_rank_is_named() -> None:
    places = on_gpus(make_places(num_hosts=4, ranks_per_host=2))
    cluster = Cluster(places=places, ranks={3: 0.4})
    (found,) = check_slow_host(
        facts_of(cluster, backend="nccl", hardware=hosts_with("infiniband", 4, ports=2))
    )
    assert isinstance(found, Found)
    assert found.scope.ranks == (3,)
    assert found.scope.links == ("host-1 mlx5_1/1",)
    assert found.scope.gpus[0].index == 1
    assert (found.severity, found.fault) == (Severity.WARNING, Fault.NETWORK)


def test_a_slow_rail_names_the_rail_and_no_host() -> None:
    places = make_places(num_hosts=4, ranks_per_host=2)
    (found,) = check_slow_host(facts_of(Cluster(places=places, ranks=dict.fromkeys((1, 3, 5, 7), SLOW))))
    assert isinstance(found, Found)
    assert found.title == "rail 1 runs at 5 % of the other rails' speed"
    assert found.cause_class == "network:rail_topology"


def test_half_of_the_hosts_are_one_finding() -> None:
    slow = {"host-0": SLOW, "host-1": SLOW}
    (found,) = check_slow_host(facts_of(Cluster(places=FOUR, egress=slow)))
    assert isinstance(found, Found)
    assert found.title == "2 of 4 hosts send at 5 % of the others' speed"
    assert found.cause_class == "network:slow_group"


def test_islands_are_a_warning() -> None:
    links = {(f"host-{a}", f"host-{b}"): SLOW for a in range(4) for b in range(4) if (a < 2) != (b < 2)}
    (found,) = check_slow_host(facts_of(Cluster(places=FOUR, links=links)))
    assert isinstance(found, Found)
    assert (found.key, found.severity) == ("islands", Severity.WARNING)


def test_a_gpu_inside_the_only_host_is_named_at_medium_confidence() -> None:
    places = on_gpus(make_places(num_hosts=1, ranks_per_host=8))
    (found,) = check_slow_host(facts_of(Cluster(places=places, inside_ranks={5: 0.3}), backend="nccl"))
    assert isinstance(found, Found)
    assert "rank 5 inside host-0" in found.title
    assert (found.severity, found.confidence, found.fault) == (Severity.WARNING, Confidence.MEDIUM, Fault.GPU)
    assert "nvidia-smi nvlink -s -i 5" in (found.actions[0].command or "")


def test_a_slow_direction_names_both_ends_and_the_way() -> None:
    facts = facts_of(Cluster(places=FOUR, links={("host-3", "host-1"): SLOW}))
    (found,) = check_slow_link(facts)
    assert isinstance(found, Found)
    assert found.title == "host-3 to host-1: 5 % of their speed with others"
    assert found.scope.links[0] == "host-3 -> host-1"
    assert found.confidence is Confidence.HIGH
    (host,) = check_slow_host(facts)
    assert isinstance(host, Passed)


def test_of_two_hosts_it_says_that_either_end_may_be_slow() -> None:
    places = make_places(num_hosts=2, ranks_per_host=2)
    (found,) = check_slow_link(facts_of(Cluster(places=places, egress={"host-1": SLOW})))
    assert isinstance(found, Found)
    assert found.title == "host-1 to host-0: 5 % of the speed back"
    assert found.confidence is Confidence.MEDIUM
    assert "third host" in found.explanation
    (host,) = check_slow_host(facts_of(Cluster(places=make_places(num_hosts=2))))
    assert isinstance(host, NotSeen)


def test_a_network_without_a_fault_passes_both() -> None:
    facts = facts_of(Cluster(places=FOUR))
    (host,) = check_slow_host(facts)
    (link,) = check_slow_link(facts)
    assert isinstance(host, Passed)
    assert isinstance(link, Passed)
    assert "12 pairs between 4 hosts" in host.detail


def test_a_slow_host_that_alone_is_busy_is_named_with_less_confidence() -> None:
    def load(host: int, load_1min: float) -> Contention:
        return Contention(host=f"host-{host}", load_1min=load_1min, num_cpus=2)

    cluster = Cluster(places=FOUR, egress={"host-2": SLOW})
    alone = facts_of(cluster, contention=tuple(load(host, 40 if host == 2 else 0) for host in range(4)))
    (found,) = check_slow_host(alone)
    assert isinstance(found, Found)
    assert found.confidence is Confidence.MEDIUM
    assert any("load 40" in each.text for each in found.evidence)
    (all_busy,) = check_slow_host(facts_of(cluster, contention=tuple(load(host, 40) for host in range(4))))
    assert isinstance(all_busy, Found)
    assert all_busy.confidence is Confidence.HIGH


def test_what_nobody_measured_again_is_not_named_in_a_run_and_a_lead_in_a_file() -> None:
    cluster = Cluster(places=FOUR, egress={"host-2": SLOW})
    facts = facts_of(cluster, matrix=scan(cluster))
    (unseen,) = check_slow_host(facts)
    assert isinstance(unseen, NotSeen)
    assert "no time" in unseen.unread.reason
    (lead,) = check_slow_host(replace(facts, origin=Origin.REPORT))
    assert isinstance(lead, Found)
    assert (lead.severity, lead.confidence) == (Severity.WARNING, Confidence.LOW)


def test_pairs_that_are_missing_are_told() -> None:
    cluster = Cluster(places=FOUR)
    outcomes = check_slow_host(facts_of(cluster, matrix=replace(measured(cluster), complete=False)))
    assert [type(each) for each in outcomes] == [Passed, NotSeen]


@pytest.mark.parametrize("check", [check_slow_host, check_slow_link])
def test_without_a_matrix_places_or_gpus_of_their_own_nothing_is_judged(check: object) -> None:
    assert callable(check)
    cluster = Cluster(places=FOUR, egress={"host-2": SLOW})
    for facts in (
        facts_of(cluster, matrix=None),
        facts_of(cluster, places=()),
        facts_of(cluster, shares_gpus=True),
        BenchFacts(origin=Origin.TABLE, label="table.txt", num_ranks=8),
    ):
        (outcome,) = check(facts)
        assert isinstance(outcome, NotSeen)
    (alone,) = check(live((), num_ranks=1))
    assert isinstance(alone, NotApplicable)


def test_the_links_of_a_late_rank_are_not_accused() -> None:
    late_us = 20_000.0
    cluster = Cluster(places=FOUR)
    matrix = scan(cluster, visits=12)
    delayed = tuple(
        replace(
            each,
            best_us=each.best_us + late_us * (1 in (each.source, each.target)),
            repeats_us=tuple(us + late_us * (1 in (each.source, each.target)) for us in each.repeats_us),
            confirmed=True,
        )
        for each in matrix.pairs
    )
    arrivals = tuple(
        Arrival(
            rank=rank,
            own_us=late_us if rank == 1 else 50.0,
            wait_us=0.0 if rank == 1 else late_us,
            last_share=1.0 if rank == 1 else 0.0,
            iterations=50,
        )
        for rank in range(4)
    )
    loop = ArrivalsOfGroup(
        group_label="job", collective="barrier", size_bytes=0, arrivals=arrivals, transfer_us=80.0
    )
    facts = facts_of(cluster, matrix=replace(matrix, pairs=delayed))
    (accused,) = check_slow_host(facts)
    assert isinstance(accused, Found)
    (host,) = check_slow_host(replace(facts, arrivals=(loop,)))
    (link,) = check_slow_link(replace(facts, arrivals=(loop,)))
    assert isinstance(host, Passed)
    assert isinstance(link, Passed)


def test_titles_stay_one_line_with_long_host_names() -> None:
    long = {
        f"host-{index}": f"gpu-node-{index:04d}.rack-17.cluster-west.example.internal" for index in range(4)
    }
    cluster = Cluster(places=FOUR, egress={"host-2": SLOW}, links={("host-0", "host-1"): SLOW})
    places = tuple(replace(each, host=long[each.host]) for each in FOUR)
    facts = replace(facts_of(cluster), places=places)
    for outcome in (*check_slow_host(facts), *check_slow_link(facts)):
        assert isinstance(outcome, Found)
        assert len(outcome.title) <= 80

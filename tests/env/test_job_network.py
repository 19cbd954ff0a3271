"""Hosts of one job side by side: what only the comparison shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from distdoctor.env.checks.job_network import run_job_network
from distdoctor.env.collect.network import collect_network
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.network import Address, Interface, NetworkFacts, Route
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Severity
from network_hosts import cloud_vm, docker_desktop, infiniband_host, roce_host

ROUTED = (Route(network="0.0.0.0/0", interface="eth0"),)


def facts(network: NetworkFacts, nccl: str = "2.27.3", **variables: str) -> EnvFacts:
    return EnvFacts(
        network=network,
        nccl=NcclFacts(loaded_version=nccl),
        variables=VariableFacts(environment=variables),
        scheduler=SchedulerFacts(num_nodes=2),
    )


def net(
    *interfaces: tuple[str, str], mtu: int = 1500, routes: tuple[Route, ...] | None = ROUTED
) -> NetworkFacts:
    found = []
    for index, (name, text) in enumerate(interfaces, start=2):
        address, _, length = text.partition("/")
        found.append(
            Interface(
                name=name,
                index=index,
                is_up=True,
                mtu=mtu,
                addresses=(Address(address=address, prefix_length=int(length)),),
            )
        )
    return NetworkFacts(interfaces=tuple(found), rdma_ports=(), routes=routes)


def test_hosts_in_one_subnet_are_fine() -> None:
    hosts = {
        name: facts(net(("eth0", f"10.0.0.{n}/24")))
        for n, name in enumerate(("host-a", "host-b", "host-c"), 1)
    }
    assert run_job_network(hosts) == []


def test_one_host_alone_is_not_compared() -> None:
    assert run_job_network({"host-a": facts(net(("eth0", "10.0.0.1/24")))}) == []


def test_the_same_docker_bridge_on_every_host_is_critical() -> None:
    hosts = {name: facts(net(("docker0", "172.17.0.1/16"))) for name in ("host-a", "host-b")}
    (found,) = run_job_network(hosts)
    assert (found.severity, found.key, found.scope.hosts) == (
        Severity.CRITICAL,
        "same-address:docker0",
        ("host-a", "host-b"),
    )


def test_a_bridge_beside_a_common_network_is_no_matter(tmp_path: Path) -> None:
    hosts = {
        "host-a": facts(collect_network(docker_desktop(tmp_path / "a"))),
        "host-b": facts(
            collect_network(
                docker_desktop(
                    tmp_path / "b", addresses={"enp6s0": ("10.0.0.2/24",), "docker0": ("172.17.0.1/16",)}
                )
            )
        ),
    }
    assert run_job_network(hosts) == []


def test_the_host_that_takes_another_network_first_is_named() -> None:
    hosts = {
        f"host-{n}": facts(net(("eth0", f"10.0.0.{n}/24"), ("eth1", f"192.168.1.{n}/24")))
        for n in range(1, 4)
    }
    hosts["host-4"] = facts(
        net(("eth0", "10.0.0.4/24"), ("eth1", "192.168.1.4/24")), NCCL_SOCKET_IFNAME="eth1"
    )
    (found,) = run_job_network(hosts)
    assert (found.severity, found.key) == (Severity.WARNING, "no-common-subnet")
    assert found.scope.hosts == ("host-4",)


def test_a_routed_network_with_a_subnet_per_host_is_not_accused() -> None:
    hosts = {f"host-{n}": facts(net(("eth0", f"10.0.{n}.1/31"))) for n in range(1, 4)}
    assert run_job_network(hosts) == []
    vms = {f"vm-{n}": facts(net(("eth0", f"10.128.0.{n}/32"))) for n in range(1, 4)}
    assert run_job_network(vms) == []


def test_without_a_route_between_the_chosen_networks_it_is_critical() -> None:
    own = tuple(Route(network=f"10.0.{n}.0/24", interface="eth0") for n in (1, 2))
    hosts = {f"host-{n}": facts(net(("eth0", f"10.0.{n}.1/24"), routes=(own[n - 1],))) for n in (1, 2)}
    (found,) = run_job_network(hosts)
    assert (found.severity, found.scope.hosts) == (Severity.CRITICAL, ("host-1", "host-2"))


def test_unknown_routes_accuse_nobody() -> None:
    hosts = {f"host-{n}": facts(net(("eth0", f"10.0.{n}.1/24"), routes=None)) for n in (1, 2)}
    assert run_job_network(hosts) == []


def test_an_mtu_that_differs_names_the_odd_host() -> None:
    hosts = {
        f"host-{n}": facts(net(("eth0", f"10.0.0.{n}/24"), mtu=1500 if n == 3 else 9000)) for n in (1, 2, 3)
    }
    (found,) = run_job_network(hosts)
    assert (found.key, found.scope.hosts, found.cause_class) == ("mtu", ("host-3",), "network:mtu_mismatch")


def ib(path: Path, last: int, **attributes: object) -> NetworkFacts:
    addresses = {"lo": ("127.0.0.1/8",), "eth0": (f"10.0.0.{last}/24",)}
    return collect_network(infiniband_host(path, addresses=addresses, **attributes))  # type: ignore[arg-type]


def test_one_card_that_one_host_cannot_open(tmp_path: Path) -> None:
    def hosts(nccl: str) -> dict[str, EnvFacts]:
        folder = tmp_path / nccl
        closed = {"/dev/infiniband/uverbs3": 1}
        return {
            "host-a": facts(ib(folder / "a", 1), nccl),
            "host-b": facts(ib(folder / "b", 2, closed_devices=closed), nccl),
            "host-c": facts(ib(folder / "c", 3), nccl),
        }

    (old,) = run_job_network(hosts("2.27.3"))
    assert (old.severity, old.key, old.scope.hosts) == (Severity.WARNING, "rdma-counts", ("host-b",))
    assert old.title == "host-b would use 7 RDMA ports, the other hosts 8"
    (new,) = run_job_network(hosts("2.30.4"))
    assert new.severity is Severity.CRITICAL


def test_a_host_without_rdma_among_hosts_with_it_is_critical(tmp_path: Path) -> None:
    vm = replace(
        collect_network(cloud_vm(tmp_path / "c", addresses={"eth0": ("10.0.0.3/24",)})), routes=ROUTED
    )
    hosts = {
        "host-a": facts(ib(tmp_path / "a", 1)),
        "host-b": facts(ib(tmp_path / "b", 2)),
        "host-c": facts(vm),
    }
    found = [each for each in run_job_network(hosts) if each.key == "rdma-counts"]
    assert [(each.severity, each.scope.hosts) for each in found] == [(Severity.CRITICAL, ("host-c",))]


def test_infiniband_here_and_ethernet_there_is_critical(tmp_path: Path) -> None:
    roce = collect_network(roce_host(tmp_path / "b", addresses={"eth0": ("10.0.0.2/24",)}))
    hosts = {"host-a": facts(ib(tmp_path / "a", 1), NCCL_IB_HCA="=mlx5_0,mlx5_1"), "host-b": facts(roce)}
    assert "link-layers" in [each.key for each in run_job_network(hosts)]


def test_kinds_of_roce_address_that_differ(tmp_path: Path) -> None:
    networks = [
        collect_network(roce_host(tmp_path / str(n), addresses={"eth0": (f"10.0.0.{n}/24",)}))
        for n in (1, 2, 3)
    ]
    hosts = {f"host-{n}": facts(network) for n, network in enumerate(networks, 1)}
    assert run_job_network(hosts) == []
    hosts["host-3"] = facts(networks[2], NCCL_IB_GID_INDEX="2")
    (found,) = run_job_network(hosts)
    assert (found.key, found.scope.hosts, found.cause_class) == ("gid-kinds", ("host-3",), "network:roce_gid")


def test_hosts_whose_network_was_not_seen_are_left_out() -> None:
    hosts = {
        "host-a": facts(net(("eth0", "10.0.0.1/24"))),
        "host-b": EnvFacts(),
        "host-c": facts(NetworkFacts()),
    }
    assert run_job_network(hosts) == []


def test_nonsense_from_another_rank_breaks_nothing() -> None:
    odd = NetworkFacts(
        interfaces=(
            Interface(name="eth0", is_up=True, addresses=(Address(address="10.0.0.2", prefix_length=99),)),
            Interface(
                name="eth1", is_up=True, addresses=(Address(address="not an address", prefix_length=24),)
            ),
        ),
        rdma_ports=(),
        routes=(Route(network="nowhere", interface="eth0"),),
    )
    hosts = {"host-a": facts(net(("eth0", "10.0.0.1/24"))), "host-b": facts(odd)}
    run_job_network(hosts)


def test_facts_survive_the_way_between_ranks(tmp_path: Path) -> None:
    network = ib(tmp_path, 1)
    assert msgspec.json.decode(msgspec.json.encode(network), type=NetworkFacts) == network

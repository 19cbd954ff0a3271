"""Interface and HCA choice, Ethernet, names: each fires, stays silent and says when it cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.ethernet import check_ethernet_errors, check_ethernet_speed
from distdoctor.env.checks.name_resolution import check_hostname_resolution, check_master_address
from distdoctor.env.checks.network_hca_choice import check_hca_choice
from distdoctor.env.checks.network_interface_choice import check_interface_choice
from distdoctor.env.collect.network import collect_network
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.network import Interface, NetworkFacts, RdmaPort
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Confidence, Severity, SkipCause
from network_hosts import cloud_vm, docker_desktop, efa_host, infiniband_host, interface, roce_host

EIGHT_GPUS = GpuFacts(devices=tuple(GpuDevice(index=index) for index in range(8)))


def facts(
    network: NetworkFacts | None, *, num_nodes: int | None = 2, master: str | None = None, **variables: str
) -> EnvFacts:
    return EnvFacts(
        host_name="host-a",
        network=network,
        gpus=EIGHT_GPUS,
        variables=VariableFacts(environment=variables),
        scheduler=SchedulerFacts(num_nodes=num_nodes, master_addr=master),
    )


def only(outcomes: Sequence[Outcome]) -> Found:
    (found,) = outcomes
    assert isinstance(found, Found), found
    assert len(found.title) <= 80
    return found


# network-interface-choice


def test_a_name_that_is_not_here_is_critical_and_the_existing_ones_are_shown(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    found = only(check_interface_choice(facts(network, NCCL_SOCKET_IFNAME="enp90s0")))
    assert found.severity is Severity.CRITICAL
    assert found.cause_class == "config:socket_ifname"
    assert "eth0 (up, 10.0.0.5)" in " ".join(each.text for each in found.evidence)
    assert found.actions[0].command == "export NCCL_SOCKET_IFNAME==eth0"


def test_a_named_interface_without_link_is_told_as_such(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    found = only(check_interface_choice(facts(network, NCCL_SOCKET_IFNAME="=ibs1")))
    assert "unusable" in found.title
    assert "no link" in found.evidence[1].text


def test_a_space_or_a_second_sign_in_the_list_is_explained(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    spaced = only(check_interface_choice(facts(network, NCCL_SOCKET_IFNAME="eth9, eth0")))
    assert "space" in spaced.evidence[0].text
    signs = only(check_interface_choice(facts(network, NCCL_SOCKET_IFNAME="=eth9,=eth0")))
    assert "very beginning" in signs.evidence[0].text


def test_without_gpus_a_bad_name_is_a_warning(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    without = replace(facts(network, NCCL_SOCKET_IFNAME="enp90s0"), gpus=GpuFacts(devices=()))
    assert only(check_interface_choice(without)).severity is Severity.WARNING


def test_a_wrong_exclusion_that_leaves_loopback_first_is_critical(tmp_path: Path) -> None:
    network = collect_network(docker_desktop(tmp_path))
    found = only(check_interface_choice(facts(network, NCCL_SOCKET_IFNAME="^docker0,tailscale,veth")))
    assert found.severity is Severity.CRITICAL
    assert found.key == "unfit:lo"


@pytest.mark.parametrize(
    ("num_nodes", "name", "severity"),
    [(2, "lo", Severity.CRITICAL), (None, "lo", Severity.WARNING), (2, "docker0", Severity.CRITICAL)],
)
def test_loopback_or_a_bridge_by_name(
    tmp_path: Path, num_nodes: int | None, name: str, severity: Severity
) -> None:
    network = collect_network(docker_desktop(tmp_path))
    found = only(check_interface_choice(facts(network, num_nodes=num_nodes, NCCL_SOCKET_IFNAME=name)))
    assert found.severity is severity


def test_loopback_is_fine_on_one_host(tmp_path: Path) -> None:
    network = collect_network(docker_desktop(tmp_path))
    (outcome,) = check_interface_choice(facts(network, num_nodes=1, NCCL_SOCKET_IFNAME="lo"))
    assert isinstance(outcome, Passed)


def test_a_bridge_left_alone_is_critical_for_two_hosts_and_no_matter_without_a_job(tmp_path: Path) -> None:
    docker = Interface(name="docker0", index=4, is_up=True, addresses=_ip("172.17.0.1/16"))
    loopback = Interface(name="lo", index=1, is_up=True, addresses=_ip("127.0.0.1/8"))
    network = NetworkFacts(interfaces=(loopback, docker), rdma_ports=())
    assert only(check_interface_choice(facts(network))).severity is Severity.CRITICAL
    (outcome,) = check_interface_choice(facts(network, num_nodes=None))
    assert isinstance(outcome, Passed)


def _ip(text: str) -> tuple[object, ...]:
    from distdoctor.env.facts.network import Address

    address, _, length = text.partition("/")
    return (Address(address=address, prefix_length=int(length)),)


def test_sockets_over_bridges_and_a_vpn_are_a_warning(tmp_path: Path) -> None:
    network = collect_network(docker_desktop(tmp_path))
    found = only(check_interface_choice(facts(network)))
    assert found.severity is Severity.WARNING
    assert found.scope.links == ("host-a tailscale0", "host-a vethb485ae1")
    assert found.actions[0].command == "export NCCL_SOCKET_IFNAME==enp6s0"


def test_a_vpn_that_comes_first_is_a_warning_when_a_card_has_an_address(tmp_path: Path) -> None:
    vpn = Interface(name="tailscale0", index=2, is_up=True, addresses=_ip("100.64.0.7/32"))
    card = Interface(name="eth0", index=3, is_up=True, addresses=_ip("10.0.0.5/24"), pci="0000:01:00.0")
    found = only(check_interface_choice(facts(NetworkFacts(interfaces=(vpn, card), rdma_ports=()))))
    assert (found.severity, found.key) == (Severity.WARNING, "unfit:tailscale0")


def test_a_link_local_management_port_that_comes_first_is_a_warning() -> None:
    usb = Interface(name="enx02", index=2, is_up=True, addresses=_ip("169.254.3.1/24"), pci="0000:00:14.0")
    card = Interface(name="eth0", index=3, is_up=True, addresses=_ip("10.0.0.5/24"), pci="0000:01:00.0")
    found = only(check_interface_choice(facts(NetworkFacts(interfaces=(usb, card), rdma_ports=()))))
    assert (found.severity, found.key) == (Severity.WARNING, "unfit:enx02")


def test_a_prefix_that_takes_a_vlan_along_is_a_warning() -> None:
    bond = Interface(name="bond0", index=2, is_up=True, addresses=_ip("192.168.42.7/27"))
    vlan = Interface(name="bond0.2973", index=3, is_up=True, addresses=_ip("10.0.106.189/16"))
    network = NetworkFacts(interfaces=(bond, vlan), rdma_ports=())
    found = only(check_interface_choice(facts(network, NCCL_SOCKET_IFNAME="bond0")))
    assert found.key == "prefix:bond0"
    for exact_or_listed in ("=bond0", "bond0,bond0.2973", "bond"):
        (outcome,) = check_interface_choice(facts(network, NCCL_SOCKET_IFNAME=exact_or_listed))
        assert isinstance(outcome, Passed)


def test_gloo_wants_whole_names(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    found = only(check_interface_choice(facts(network, GLOO_SOCKET_IFNAME="eth")))
    assert (found.severity, found.key) == (Severity.CRITICAL, "gloo")
    assert found.actions[0].command == "export GLOO_SOCKET_IFNAME=eth0"


def test_a_pods_own_eth0_without_a_device_is_ordinary() -> None:
    eth0 = Interface(name="eth0", index=3, is_up=True, is_virtual=True, addresses=_ip("10.244.1.7/24"))
    (outcome,) = check_interface_choice(facts(NetworkFacts(interfaces=(eth0,), rdma_ports=())))
    assert isinstance(outcome, Passed)


def test_the_choice_is_named_when_fine(tmp_path: Path) -> None:
    (outcome,) = check_interface_choice(facts(collect_network(infiniband_host(tmp_path))))
    assert isinstance(outcome, Passed)
    assert "eth0:10.0.0.5" in outcome.detail


def test_interfaces_without_readable_addresses_are_not_seen() -> None:
    why = Unread(cause=SkipCause.FAILED, reason="getifaddrs failed")
    blind = Interface(name="eth0", index=2, unread={"addresses": why})
    (outcome,) = check_interface_choice(facts(NetworkFacts(interfaces=(blind,))))
    assert outcome == NotSeen(unread=why)


def test_without_variables_nothing_is_predicted(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    (outcome,) = check_interface_choice(EnvFacts(network=network))
    assert isinstance(outcome, NotSeen)


# network-hca-choice


def test_a_filter_that_matches_no_device_is_critical(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    found = only(check_hca_choice(facts(network, NCCL_IB_HCA="ibp12s0")))
    assert found.severity is Severity.CRITICAL
    assert "=mlx5_0,mlx5_1" in (found.actions[0].command or "")
    assert (
        only(check_hca_choice(facts(network, num_nodes=1, NCCL_IB_HCA="ibp12s0"))).severity
        is Severity.WARNING
    )


def test_names_of_another_machine_are_a_warning(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    found = only(check_hca_choice(facts(network, NCCL_IB_HCA="=mlx5_0,mlx5_12,mlx5_17")))
    assert (found.severity, found.key) == (Severity.WARNING, "absent:mlx5_12,mlx5_17")


def test_a_named_port_that_is_down_is_a_warning(tmp_path: Path) -> None:
    state = {"/sys/class/infiniband/mlx5_3/ports/1/state": "1: DOWN\n"}
    network = collect_network(infiniband_host(tmp_path, changes=state))
    found = only(check_hca_choice(facts(network, NCCL_IB_HCA="=mlx5_2,mlx5_3")))
    assert found.scope.links == ("host-a mlx5_3/1",)
    assert found.cause_class == "network:link_down"


def test_a_prefix_takes_ten_to_nineteen_along() -> None:
    ports = tuple(
        RdmaPort(device=f"mlx5_{n}", port=1, state="ACTIVE", link_layer="InfiniBand") for n in range(12)
    )
    found = only(check_hca_choice(facts(NetworkFacts(rdma_ports=ports), NCCL_IB_HCA="mlx5_0,mlx5_1")))
    assert found.scope.links == ("host-a mlx5_10/1", "host-a mlx5_11/1")
    for meant in ("mlx5", "=mlx5_0,mlx5_1", "mlx5_2,mlx5_3", "^mlx5_1"):
        (outcome,) = check_hca_choice(facts(NetworkFacts(rdma_ports=ports), NCCL_IB_HCA=meant))
        assert isinstance(outcome, Passed), meant


def test_infiniband_and_ethernet_together_are_a_warning_between_hosts() -> None:
    ports = tuple(
        RdmaPort(
            device=f"mlx5_{n}", port=1, state="ACTIVE", link_layer="Ethernet" if n == 4 else "InfiniBand"
        )
        for n in range(5)
    )
    found = only(check_hca_choice(facts(NetworkFacts(rdma_ports=ports))))
    assert (found.severity, found.confidence, found.scope.links) == (
        Severity.WARNING,
        Confidence.MEDIUM,
        ("host-a mlx5_4/1",),
    )
    (outcome,) = check_hca_choice(facts(NetworkFacts(rdma_ports=ports), num_nodes=1))
    assert isinstance(outcome, Passed)


def test_a_slower_card_of_another_kind_is_a_lead() -> None:
    def port(number: int, rate: float, board: str) -> RdmaPort:
        return RdmaPort(
            device=f"mlx5_{number}",
            port=1,
            state="ACTIVE",
            link_layer="InfiniBand",
            rate_gbit=rate,
            board=board,
        )

    ports = (*(port(n, 400.0, "cx7") for n in range(8)), port(8, 200.0, "cx6"))
    found = only(check_hca_choice(facts(NetworkFacts(rdma_ports=ports))))
    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)
    # The same board at a lower rate is a fault of the link, which rdma-port-state tells.
    same = (*(port(n, 400.0, "cx7") for n in range(7)), port(7, 200.0, "cx7"))
    (outcome,) = check_hca_choice(facts(NetworkFacts(rdma_ports=same)))
    assert isinstance(outcome, Passed)


def test_hosts_without_rdma_with_efa_or_with_rdma_off_are_not_applicable(tmp_path: Path) -> None:
    hosts = (cloud_vm(tmp_path / "vm"), efa_host(tmp_path / "efa"))
    for world in hosts:
        (outcome,) = check_hca_choice(facts(collect_network(world)))
        assert isinstance(outcome, NotApplicable)
    network = collect_network(infiniband_host(tmp_path / "ib"))
    (outcome,) = check_hca_choice(facts(network, NCCL_IB_DISABLE="1"))
    assert outcome == NotApplicable(detail="RDMA is turned off by NCCL_IB_DISABLE=1")


def test_rdma_ports_that_were_not_read_are_not_seen() -> None:
    (outcome,) = check_hca_choice(facts(NetworkFacts()))
    assert isinstance(outcome, NotSeen)


# ethernet-speed-low, ethernet-errors


def test_a_gigabit_card_between_hosts_is_a_warning(tmp_path: Path) -> None:
    network = collect_network(docker_desktop(tmp_path))
    found = only(check_ethernet_speed(facts(network)))
    assert "1 Gb/s" in found.title
    assert found.severity is Severity.WARNING
    assert only(check_ethernet_speed(facts(network, num_nodes=None))).severity is Severity.INFO


def test_a_slow_bootstrap_beside_infiniband_does_not_matter(tmp_path: Path) -> None:
    slow = {"/sys/class/net/eth0/speed": "1000\n"}
    network = collect_network(infiniband_host(tmp_path, changes=slow))
    (outcome,) = check_ethernet_speed(facts(network))
    assert isinstance(outcome, NotApplicable)
    found = only(check_ethernet_speed(facts(network, NCCL_IB_DISABLE="1")))
    assert found.key == "eth0"


def test_a_fast_card_passes_and_one_host_needs_none(tmp_path: Path) -> None:
    fast = {"/sys/class/net/eth0/speed": "25000\n"}
    network = collect_network(cloud_vm(tmp_path, changes=fast))
    assert isinstance(check_ethernet_speed(facts(network))[0], Passed)
    assert isinstance(check_ethernet_speed(facts(network, num_nodes=1))[0], NotApplicable)


def test_a_speed_that_the_driver_does_not_tell_is_not_seen(tmp_path: Path) -> None:
    (outcome,) = check_ethernet_speed(facts(collect_network(cloud_vm(tmp_path))))
    assert isinstance(outcome, NotSeen)
    assert outcome.unread.cause is SkipCause.UNSUPPORTED


def test_many_receive_errors_are_a_lead(tmp_path: Path) -> None:
    bad = interface("eth0", 2, pci="0000:00:04.0", rx_errors=5000, rx_packets=1_000_000)
    network = collect_network(cloud_vm(tmp_path, changes=bad))
    found = only(check_ethernet_errors(facts(network)))
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LOW)
    assert "0.5 %" in found.title


def test_few_receive_errors_pass_and_unread_ones_are_not_seen(tmp_path: Path) -> None:
    few = interface("eth0", 2, pci="0000:00:04.0", rx_errors=50, rx_packets=10_000)
    assert isinstance(
        check_ethernet_errors(facts(collect_network(cloud_vm(tmp_path, changes=few))))[0], Passed
    )
    blind = NetworkFacts(interfaces=(Interface(name="eth0", is_up=True),))
    assert isinstance(check_ethernet_errors(facts(blind))[0], NotSeen)
    assert isinstance(check_ethernet_errors(facts(NetworkFacts()))[0], NotSeen)


# hostname-resolution


@pytest.mark.parametrize("addresses", [("127.0.1.1",), (), ("203.0.113.9",)])
def test_a_host_name_that_leads_nowhere_is_a_warning_between_hosts(
    tmp_path: Path, addresses: tuple[str, ...]
) -> None:
    network = collect_network(infiniband_host(tmp_path, names={"host-a": addresses}))
    assert only(check_hostname_resolution(facts(network))).severity is Severity.WARNING
    assert isinstance(check_hostname_resolution(facts(network, num_nodes=1))[0], NotApplicable)
    (outcome,) = check_hostname_resolution(facts(network, GLOO_SOCKET_IFNAME="eth0"))
    assert isinstance(outcome, NotApplicable)


def test_a_host_name_with_a_local_address_passes(tmp_path: Path) -> None:
    (outcome,) = check_hostname_resolution(facts(collect_network(infiniband_host(tmp_path))))
    assert outcome == Passed(detail="host-a resolves to 10.0.0.5")


def test_a_resolver_without_an_answer_is_not_seen(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path, slow_resolver=True))
    (outcome,) = check_hostname_resolution(facts(network))
    assert isinstance(outcome, NotSeen)
    assert outcome.unread.cause is SkipCause.TIMED_OUT


# master-address


def test_master_addr_on_loopback_is_critical_for_two_hosts_only(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    found = only(check_master_address(facts(network, master="127.0.0.1")))
    assert (found.severity, found.cause_class) == (Severity.CRITICAL, "rendezvous:endpoint_mismatch")
    assert isinstance(check_master_address(facts(network, num_nodes=1, master="127.0.0.1"))[0], Passed)
    assert isinstance(check_master_address(facts(network, num_nodes=None, master="127.0.0.1"))[0], Passed)


def test_master_addr_by_a_name_that_is_loopback(tmp_path: Path) -> None:
    world = infiniband_host(
        tmp_path, environ={"MASTER_ADDR": "localhost"}, names={"localhost": ("::1", "127.0.0.1")}
    )
    found = only(check_master_address(facts(collect_network(world), master="localhost")))
    assert found.key == "loopback"


def test_master_addr_that_does_not_resolve_is_critical(tmp_path: Path) -> None:
    world = infiniband_host(tmp_path, environ={"MASTER_ADDR": "node-001"})
    found = only(check_master_address(facts(collect_network(world), master="node-001")))
    assert (found.severity, found.key) == (Severity.CRITICAL, "unresolved")


def test_master_addr_without_a_route_needs_no_packet_to_tell(tmp_path: Path) -> None:
    no_default = (
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t0000000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
    )
    world = infiniband_host(tmp_path, changes={"/proc/self/net/route": no_default})
    network = collect_network(world)
    assert only(check_master_address(facts(network, master="10.7.0.1"))).key == "no-route"
    assert isinstance(check_master_address(facts(network, master="10.0.0.77"))[0], Passed)


def test_master_addr_behind_the_default_route_passes(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    assert isinstance(check_master_address(facts(network, master="10.7.0.1"))[0], Passed)


def test_master_addr_unset_or_not_resolved_yet(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    assert isinstance(check_master_address(facts(network))[0], NotApplicable)
    assert isinstance(check_master_address(facts(network, master="node-001"))[0], NotSeen)
    assert isinstance(check_master_address(EnvFacts(network=network))[0], NotSeen)


def test_roce_hosts_pass_the_choices(tmp_path: Path) -> None:
    network = collect_network(roce_host(tmp_path))
    assert isinstance(check_hca_choice(facts(network))[0], Passed)
    assert isinstance(check_interface_choice(facts(network))[0], Passed)


def test_every_network_check_has_a_page_and_runs_on_nothing() -> None:
    from distdoctor.env.checks.all import ENV_CHECKS

    pages = Path(__file__).parents[2] / "docs/checks"
    for check in network_checks(ENV_CHECKS):
        assert (pages / f"{check.id}.md").is_file(), check.id
        outcomes = check.run(EnvFacts())
        assert outcomes
        assert all(isinstance(each, NotSeen) for each in outcomes), check.id


def network_checks(checks: Sequence[Check]) -> list[Check]:
    names = (
        "network-",
        "rdma-",
        "roce-",
        "mtu-",
        "gpudirect-",
        "nic-",
        "gpu-nic-",
        "ethernet-",
        "hostname-",
        "master-",
    )
    return [check for check in checks if check.id.startswith(names)]

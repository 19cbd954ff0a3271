"""The network collector on hosts made of files."""

from __future__ import annotations

import errno
from pathlib import Path

from distdoctor.env.collect.addresses import addresses_from_proc, parse_ipv6_routes, parse_routes
from distdoctor.env.collect.network import collect_network
from distdoctor.env.collect.resolve import resolve_in_time
from distdoctor.env.facts.network import Address, Route
from distdoctor.report.model import SkipCause
from fake_world import make_world
from network_hosts import (
    BASE,
    LOOPBACK,
    ROCE_GIDS,
    cloud_vm,
    docker_desktop,
    efa_host,
    hca,
    infiniband_host,
    interface,
    roce_host,
)


def test_an_infiniband_host_is_read_whole(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    assert network.rdma_ports is not None
    assert [port.device for port in network.rdma_ports] == [f"mlx5_{number}" for number in range(8)]
    port = network.rdma_ports[5]
    assert (port.state, port.phys_state, port.link_layer, port.rate_gbit) == (
        "ACTIVE",
        "LinkUp",
        "InfiniBand",
        400.0,
    )
    assert (port.lid, port.sm_lid, port.board) == (21, 1, "MT4129 MT_0000000838")
    assert (port.pci, port.numa_node, port.pcie_width) == ("0000:ab:10.0", 1, 16)
    assert (port.uverbs, port.openable) == ("uverbs5", True)
    assert port.counters == {"link_downed": 0, "symbol_error": 0}
    assert network.peermem_module == "nvidia_peermem"
    assert network.peermem_registered is True
    assert network.dmabuf_possible is False
    assert network.hostname_resolves_to == ("10.0.0.5",)
    assert network.libibverbs_path == "/lib/x86_64-linux-gnu/libibverbs.so.1"
    assert network.pci_paths["0000:18:20.0"] == ("0000:18:01.0", "0000:18:03.0", "0000:18:20.0")
    assert network.pci_numa_nodes["0000:db:20.0"] == 1


def test_devices_are_in_natural_order(tmp_path: Path) -> None:
    files = {**BASE}
    for number in (10, 2, 1):
        files |= hca(f"mlx5_{number}", number, pci=f"0000:{number:02x}:00.0")
    network = collect_network(make_world(tmp_path, files))
    assert [port.device for port in network.rdma_ports or ()] == ["mlx5_1", "mlx5_2", "mlx5_10"]


def test_an_interface_runs_when_up_and_its_state_is_up_or_unknown(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    state = {each.name: each.is_up for each in network.interfaces or ()}
    assert state == {"lo": True, "eth0": True, "ibs1": False}


def test_the_file_beside_the_interfaces_is_no_interface(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    assert "bonding_masters" not in [each.name for each in network.interfaces or ()]


def test_a_speed_of_minus_one_is_not_a_speed(tmp_path: Path) -> None:
    network = collect_network(cloud_vm(tmp_path))
    eth0 = next(each for each in network.interfaces or () if each.name == "eth0")
    assert eth0.speed_mbps is None
    assert eth0.unread["speed_mbps"].cause is SkipCause.UNSUPPORTED


def test_a_bridge_is_virtual_and_a_card_is_not(tmp_path: Path) -> None:
    network = collect_network(docker_desktop(tmp_path))
    virtual = {each.name: each.is_virtual for each in network.interfaces or ()}
    assert virtual["docker0"] is True
    assert virtual["enp6s0"] is False
    assert {each.name: each.driver for each in network.interfaces or ()}["enp6s0"] == "mlx5_core"


def test_no_rdma_device_is_known_and_no_sys_is_not(tmp_path: Path) -> None:
    assert collect_network(cloud_vm(tmp_path / "vm")).rdma_ports == ()
    blind = collect_network(make_world(tmp_path / "blind", {"/proc/modules": ""}))
    assert blind.rdma_ports is None
    assert blind.unread["rdma_ports"].cause is SkipCause.ABSENT
    assert blind.interfaces is None
    assert blind.peermem_registered is None


def test_roce_rows_are_read_without_the_empty_ones(tmp_path: Path) -> None:
    network = collect_network(roce_host(tmp_path))
    port = (network.rdma_ports or ())[0]
    assert [(entry.index, entry.kind) for entry in port.gids or ()] == [
        (i, kind) for i, (_, kind) in ROCE_GIDS.items()
    ]
    assert port.netdev == "rdma0"


def test_efa_is_recognised_by_its_driver(tmp_path: Path) -> None:
    network = collect_network(efa_host(tmp_path))
    ports = network.rdma_ports or ()
    assert [port.is_efa for port in ports] == [True] * 4
    assert ports[0].counters == {}
    assert "counters" in ports[0].unread


def test_a_device_node_that_refuses_is_kept_with_its_reason(tmp_path: Path) -> None:
    world = infiniband_host(tmp_path, closed_devices={"/dev/infiniband/uverbs3": errno.EPERM})
    port = (collect_network(world).rdma_ports or ())[3]
    assert port.openable is False
    assert port.open_error == "Operation not permitted"


def test_a_device_without_a_verbs_node_is_not_called_closed(tmp_path: Path) -> None:
    files = {**BASE, **hca("mlx5_0", 0, pci="0000:18:00.0", ibdev_node=False)}
    port = (collect_network(make_world(tmp_path, files)).rdma_ports or ())[0]
    assert port.openable is None
    assert port.unread["openable"].cause is SkipCause.ABSENT


def test_counters_are_sampled_twice_only_when_asked(tmp_path: Path) -> None:
    later = {"/sys/class/infiniband/mlx5_2/ports/1/counters/link_downed": "3\n"}
    once = collect_network(infiniband_host(tmp_path / "once", later=later))
    assert all(not port.counters_growth for port in once.rdma_ports or ())
    twice = collect_network(infiniband_host(tmp_path / "twice", later=later), second_sample_after_s=2.0)
    port = (twice.rdma_ports or ())[2]
    assert port.counters_growth["link_downed"] == 3
    assert port.counters_window_s == 2.0


def test_a_counter_that_was_reset_has_no_growth(tmp_path: Path) -> None:
    path = "/sys/class/infiniband/mlx5_2/ports/1/counters/link_downed"
    world = infiniband_host(tmp_path, changes={path: "9\n"}, later={path: "0\n"})
    port = (collect_network(world, second_sample_after_s=1.0).rdma_ports or ())[2]
    assert "link_downed" not in port.counters_growth


def test_a_container_without_its_own_sys_shows_nodes_only(tmp_path: Path) -> None:
    files = {**BASE, **LOOPBACK, "/sys/class/mem/.keep": "", "/dev/infiniband/uverbs0": ""}
    network = collect_network(make_world(tmp_path, files))
    assert network.rdma_class_visible is False
    assert network.rdma_device_nodes == ("uverbs0",)


def test_a_slow_resolver_is_not_a_name_without_address(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path, slow_resolver=True))
    assert network.hostname_resolves_to is None
    assert network.unread["hostname_resolves_to"].cause is SkipCause.TIMED_OUT


def test_master_addr_is_resolved_when_set(tmp_path: Path) -> None:
    world = infiniband_host(
        tmp_path, environ={"MASTER_ADDR": "host-b"}, names={"host-a": ("10.0.0.5",), "host-b": ("10.0.0.6",)}
    )
    assert collect_network(world).master_addr_resolves_to == ("10.0.0.6",)


def test_the_open_module_on_a_new_kernel_can_do_dmabuf(tmp_path: Path) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
    world = infiniband_host(tmp_path, changes={"/proc/driver/nvidia/version": text})
    assert collect_network(world).dmabuf_possible is True


def test_an_old_kernel_cannot_do_dmabuf(tmp_path: Path) -> None:
    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
    changes = {"/proc/driver/nvidia/version": text, "/proc/sys/kernel/osrelease": "5.4.0-100-generic\n"}
    assert collect_network(infiniband_host(tmp_path, changes=changes)).dmabuf_possible is False


FIB_TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.244.1.0/24 2 0 2
        |-- 10.244.1.0
           /24 link UNICAST
        |-- 10.244.1.7
           /32 host LOCAL
        |-- 10.244.1.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
"""

ROUTES = (
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t0101F40A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    "eth0\t0001F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
)


def test_addresses_of_another_namespace_come_from_proc() -> None:
    if_inet6 = "fe800000000000000000000000000001 02 40 20 80     eth0\n"
    found = addresses_from_proc(fib_trie=FIB_TRIE, route=ROUTES, if_inet6=if_inet6)
    assert found["eth0"] == [
        Address(address="10.244.1.7", prefix_length=24),
        Address(address="fe80::1", prefix_length=64),
    ]
    assert found["lo"] == [Address(address="127.0.0.1", prefix_length=8)]


def test_a_pod_address_without_a_subnet_belongs_to_the_only_interface() -> None:
    trie = "Local:\n  |-- 192.168.7.9\n     /32 host LOCAL\n"
    route = ROUTES.splitlines()[0] + "\neth0\t00000000\t0101FEA9\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    found = addresses_from_proc(fib_trie=trie, route=route, if_inet6="")
    assert found == {"eth0": [Address(address="192.168.7.9", prefix_length=32)]}


def test_routes_are_networks_with_their_interface() -> None:
    assert parse_routes(ROUTES) == (
        Route(network="0.0.0.0/0", interface="eth0"),
        Route(network="10.244.1.0/24", interface="eth0"),
    )
    line = (
        "fd000000000000000000000000000000 40 "
        + "0" * 32
        + " 00 "
        + "0" * 32
        + " 00000100 00000001 00000000 00000001 eth0"
    )
    assert parse_ipv6_routes(line) == (Route(network="fd00::/64", interface="eth0"),)


def test_an_address_resolves_to_itself() -> None:
    assert resolve_in_time("127.0.0.1", 5.0) == ("127.0.0.1",)


def test_interfaces_are_in_the_kernels_order(tmp_path: Path) -> None:
    files = {**BASE, **interface("eth10", 9), **interface("eth2", 3), **LOOPBACK}
    network = collect_network(make_world(tmp_path, files))
    assert [each.name for each in network.interfaces or ()] == ["lo", "eth2", "eth10"]

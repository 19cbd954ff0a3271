"""RDMA ports: state, rate, counters, access, RoCE, GPUDirect, place."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.gpudirect_rdma import check_gpudirect_rdma
from distdoctor.env.checks.nic_place import check_gpu_nic_affinity, check_nic_pcie_width
from distdoctor.env.checks.rdma_access import check_rdma_device_access, check_rdma_sysfs_hidden
from distdoctor.env.checks.rdma_port_counters import check_rdma_port_counters
from distdoctor.env.checks.rdma_port_state import check_rdma_port_state
from distdoctor.env.checks.roce import check_mtu, check_roce_gid
from distdoctor.env.collect.network import collect_network
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.network import NetworkFacts, RdmaPort
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.env.gpu_nic import closeness, gpu_nic_table
from distdoctor.report.model import Confidence, Severity, SkipCause
from fake_world import make_world
from network_hosts import (
    BASE,
    BUSES,
    LOOPBACK,
    ROCE_GIDS,
    cloud_vm,
    efa_host,
    hca,
    infiniband_host,
    roce_host,
)

GPUS = GpuFacts(
    devices=tuple(GpuDevice(index=n, pci=f"00000000:{bus.upper()}:20.0") for n, bus in enumerate(BUSES))
)
PORTS = "/sys/class/infiniband"


def facts(
    network: NetworkFacts | None, *, num_nodes: int | None = 2, nccl: str | None = None, **variables: str
) -> EnvFacts:
    return EnvFacts(
        host_name="host-a",
        network=network,
        gpus=GPUS,
        nccl=NcclFacts(loaded_version=nccl),
        variables=VariableFacts(environment=variables),
        scheduler=SchedulerFacts(num_nodes=num_nodes),
    )


def only(outcomes: Sequence[Outcome]) -> Found:
    (found,) = outcomes
    assert isinstance(found, Found), found
    assert len(found.title) <= 80
    return found


def down(
    device: str, state: str = "1: DOWN", phys: str = "3: Disabled", rate: str = "10 Gb/sec (4X SDR)"
) -> dict[str, str]:
    port = f"{PORTS}/{device}/ports/1"
    return {f"{port}/state": f"{state}\n", f"{port}/phys_state": f"{phys}\n", f"{port}/rate": f"{rate}\n"}


# rdma-port-state


def test_eight_active_ports_pass(tmp_path: Path) -> None:
    (outcome,) = check_rdma_port_state(facts(collect_network(infiniband_host(tmp_path))))
    assert outcome == Passed(detail="8 of 8 RDMA ports ACTIVE")


def test_one_of_eight_equal_cards_down_is_critical(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path, changes=down("mlx5_3", phys="2: Polling")))
    found = only(check_rdma_port_state(facts(network)))
    assert (found.severity, found.confidence, found.key) == (
        Severity.CRITICAL,
        Confidence.HIGH,
        "down:mlx5_3/1",
    )
    assert found.scope.links == ("host-a mlx5_3/1",)
    assert found.cause_class == "network:link_down"
    assert "10 Gb" not in found.evidence[0].text  # the rate of a port that is down means nothing


def test_unused_second_ports_are_only_an_info(tmp_path: Path) -> None:
    files = {**BASE, **LOOPBACK}
    for number in range(4):
        files |= hca(f"mlx5_{2 * number}", 2 * number, pci=f"0000:{BUSES[number]}:00.0")
        files |= hca(
            f"mlx5_{2 * number + 1}",
            2 * number + 1,
            pci=f"0000:{BUSES[number]}:00.1",
            state="1: DOWN",
            phys_state="3: Disabled",
        )
    network = collect_network(make_world(tmp_path, files))
    assert only(check_rdma_port_state(facts(network))).severity is Severity.INFO
    # NCCL_IB_HCA names one of them: then it is wanted.
    found = [
        each
        for each in check_rdma_port_state(facts(network, NCCL_IB_HCA="=mlx5_0,mlx5_1"))
        if isinstance(each, Found)
    ]
    assert [(each.severity, each.key) for each in found] == [
        (Severity.CRITICAL, "down:mlx5_1/1"),
        (Severity.INFO, "unused:mlx5_3/1,mlx5_5/1,mlx5_7/1"),
    ]


def test_an_excluded_port_that_is_down_is_only_an_info(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path, changes=down("mlx5_3")))
    assert only(check_rdma_port_state(facts(network, NCCL_IB_HCA="^mlx5_3"))).severity is Severity.INFO


def test_all_cards_down_is_critical(tmp_path: Path) -> None:
    changes: dict[str, str] = {}
    for number in range(8):
        changes |= down(f"mlx5_{number}")
    found = only(check_rdma_port_state(facts(collect_network(infiniband_host(tmp_path, changes=changes)))))
    assert (found.severity, found.key) == (Severity.CRITICAL, "all-down")


def test_ports_of_pasted_text_have_no_board_and_no_pci() -> None:
    text = {"state": "DOWN", "phys_state": "Disabled"}
    three = tuple(
        RdmaPort(device=device, port=1, link_layer=layer, rate_gbit=rate, **text)  # type: ignore[arg-type]
        for device, layer, rate in (
            ("mlx5_11", "InfiniBand", 10.0),
            ("mlx5_2", "Ethernet", 40.0),
            ("mlx5_3", "InfiniBand", 10.0),
        )
    )
    pasted = EnvFacts(origin="ibstatus.txt", network=NetworkFacts(rdma_ports=three))
    found = only(check_rdma_port_state(pasted))
    assert (found.severity, found.key) == (Severity.CRITICAL, "all-down")


def test_one_port_of_pasted_text_that_differs_is_accused_with_less_confidence() -> None:
    ports = tuple(
        RdmaPort(
            device=f"mlx5_{number}",
            port=1,
            board="MT4129",
            link_layer="InfiniBand",
            state="DOWN" if number == 3 else "ACTIVE",
            phys_state="Polling" if number == 3 else "LinkUp",
        )
        for number in range(8)
    )
    found = only(check_rdma_port_state(EnvFacts(origin="ibstat.txt", network=NetworkFacts(rdma_ports=ports))))
    assert (found.severity, found.confidence, found.key) == (
        Severity.CRITICAL,
        Confidence.MEDIUM,
        "down:mlx5_3/1",
    )


def test_a_lone_unplugged_card_is_not_critical(tmp_path: Path) -> None:
    files = {**BASE, **LOOPBACK}
    for function in range(2):
        files |= hca(
            f"mlx5_{function}",
            function,
            pci=f"0000:18:00.{function}",
            link_layer="Ethernet",
            state="1: DOWN",
            phys_state="3: Disabled",
            rate="40 Gb/sec (4X QDR)",
        )
    found = only(check_rdma_port_state(facts(collect_network(make_world(tmp_path, files)))))
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LOW)


def test_a_port_that_waits_for_the_subnet_manager(tmp_path: Path) -> None:
    network = collect_network(
        infiniband_host(tmp_path, changes=down("mlx5_6", "2: INIT", "5: LinkUp", "400 Gb/sec (4X NDR)"))
    )
    found = only(check_rdma_port_state(facts(network)))
    assert (found.severity, found.key) == (Severity.CRITICAL, "init:mlx5_6/1")
    assert "subnet manager" in found.title


def test_a_fabric_without_a_subnet_manager(tmp_path: Path) -> None:
    changes: dict[str, str] = {}
    for number in range(8):
        changes |= down(f"mlx5_{number}", "2: INIT", "5: LinkUp")
    found = only(check_rdma_port_state(facts(collect_network(infiniband_host(tmp_path, changes=changes)))))
    assert (found.severity, found.key.partition(":")[0]) == (Severity.CRITICAL, "init")


@pytest.mark.parametrize(("rate", "severity"), [("200", Severity.CRITICAL), ("300", Severity.WARNING)])
def test_a_rate_below_equal_cards(tmp_path: Path, rate: str, severity: Severity) -> None:
    slow = {f"{PORTS}/mlx5_2/ports/1/rate": f"{rate} Gb/sec (4X HDR)\n"}
    found = only(check_rdma_port_state(facts(collect_network(infiniband_host(tmp_path, changes=slow)))))
    assert (found.severity, found.key) == (severity, "rate:mlx5_2/1")
    assert found.evidence[0].expected == "400 Gb/s"


def test_slower_cards_of_another_board_are_not_accused(tmp_path: Path) -> None:
    other = {
        **down("mlx5_2", "4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)"),
        f"{PORTS}/mlx5_2/board_id": "MT_0000000223\n",
    }
    (outcome,) = check_rdma_port_state(facts(collect_network(infiniband_host(tmp_path, changes=other))))
    assert isinstance(outcome, Passed)


def test_infiniband_at_sdr_without_siblings_is_a_warning() -> None:
    port = RdmaPort(device="mlx5_0", port=1, state="ACTIVE", link_layer="InfiniBand", rate_gbit=10.0)
    assert only(check_rdma_port_state(facts(NetworkFacts(rdma_ports=(port,))))).severity is Severity.WARNING
    ethernet = replace(port, link_layer="Ethernet")
    assert isinstance(check_rdma_port_state(facts(NetworkFacts(rdma_ports=(ethernet,))))[0], Passed)


def test_a_state_that_is_not_shown_is_not_seen() -> None:
    port = RdmaPort(device="mlx5_0", port=1)
    (outcome,) = check_rdma_port_state(EnvFacts(network=NetworkFacts(rdma_ports=(port,))))
    assert isinstance(outcome, NotSeen)


def test_efa_devices_that_are_active_pass(tmp_path: Path) -> None:
    (outcome,) = check_rdma_port_state(facts(collect_network(efa_host(tmp_path))))
    assert isinstance(outcome, Passed)


# rdma-port-counters


def test_counters_that_are_zero_pass(tmp_path: Path) -> None:
    (outcome,) = check_rdma_port_counters(facts(collect_network(infiniband_host(tmp_path))))
    assert isinstance(outcome, Passed)
    assert "last reset" in outcome.detail


def test_a_total_of_unknown_age_is_a_lead(tmp_path: Path) -> None:
    total = {f"{PORTS}/mlx5_4/ports/1/counters/link_downed": "7\n"}
    found = only(check_rdma_port_counters(facts(collect_network(infiniband_host(tmp_path, changes=total)))))
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert "unknown" in found.title


def test_the_same_few_on_all_ports_are_a_restart(tmp_path: Path) -> None:
    total = {f"{PORTS}/mlx5_{number}/ports/1/counters/link_downed": "1\n" for number in range(8)}
    found = only(check_rdma_port_counters(facts(collect_network(infiniband_host(tmp_path, changes=total)))))
    assert (found.severity, found.confidence) == (Severity.INFO, Confidence.LOW)


@pytest.mark.parametrize(
    ("counter", "severity"), [("link_downed", Severity.CRITICAL), ("symbol_error", Severity.WARNING)]
)
def test_growth_while_we_look(tmp_path: Path, counter: str, severity: Severity) -> None:
    later = {f"{PORTS}/mlx5_4/ports/1/counters/{counter}": "12\n"}
    network = collect_network(infiniband_host(tmp_path, later=later), second_sample_after_s=2.0)
    found = only(check_rdma_port_counters(facts(network)))
    assert (found.severity, found.confidence, found.key) == (severity, Confidence.HIGH, "growth:mlx5_4/1")
    assert "+12 in 2 s" in found.evidence[0].text


def test_counters_that_cannot_be_read_are_not_passed() -> None:
    why = Unread(cause=SkipCause.UNSUPPORTED, reason="no counters here")
    port = RdmaPort(device="mlx5_0", port=1, state="ACTIVE", unread={"counters": why})
    (outcome,) = check_rdma_port_counters(facts(NetworkFacts(rdma_ports=(port,))))
    assert isinstance(outcome, NotSeen)
    assert outcome.unread == why


# rdma-device-access and rdma-sysfs-hidden


@pytest.mark.parametrize(
    ("num_nodes", "severity"), [(2, Severity.CRITICAL), (None, Severity.WARNING), (1, Severity.INFO)]
)
def test_one_closed_device_of_eight(tmp_path: Path, num_nodes: int | None, severity: Severity) -> None:
    world = infiniband_host(tmp_path, closed_devices={"/dev/infiniband/uverbs3": errno.EPERM})
    found = only(check_rdma_device_access(facts(collect_network(world), num_nodes=num_nodes)))
    assert (found.severity, found.key) == (severity, "closed:mlx5_3")
    assert "Operation not permitted" in found.evidence[0].text


def test_open_devices_pass_and_none_is_not_applicable(tmp_path: Path) -> None:
    assert isinstance(
        check_rdma_device_access(facts(collect_network(infiniband_host(tmp_path / "ib"))))[0], Passed
    )
    assert isinstance(
        check_rdma_device_access(facts(collect_network(cloud_vm(tmp_path / "vm"))))[0], NotApplicable
    )


def test_a_device_nobody_tried_to_open_is_not_seen() -> None:
    port = RdmaPort(device="mlx5_0", port=1, state="ACTIVE")
    (outcome,) = check_rdma_device_access(facts(NetworkFacts(rdma_ports=(port,))))
    assert isinstance(outcome, NotSeen)


def test_a_missing_libibverbs_is_told(tmp_path: Path) -> None:
    world = infiniband_host(
        tmp_path, changes={"/etc/ld.so.cache": "glibc-ld.so.cache1.1\0libc.so.6\0/lib/libc.so.6\0"}
    )
    found = only(check_rdma_device_access(facts(collect_network(world))))
    assert (found.severity, found.confidence, found.key) == (
        Severity.WARNING,
        Confidence.MEDIUM,
        "no-libibverbs",
    )


def test_nodes_without_sysfs(tmp_path: Path) -> None:
    files = {**BASE, **LOOPBACK, "/dev/infiniband/uverbs0": "", "/dev/infiniband/rdma_cm": ""}
    found = only(check_rdma_sysfs_hidden(facts(collect_network(make_world(tmp_path, files)))))
    assert (found.severity, found.key) == (Severity.CRITICAL, "sysfs")


def test_sysfs_without_nodes_is_told_once(tmp_path: Path) -> None:
    files = {**BASE, **LOOPBACK, "/dev/null": ""}
    for number in range(2):
        files |= {
            path: text
            for path, text in hca(f"mlx5_{number}", number, pci=f"0000:{BUSES[number]}:00.0").items()
            if not path.startswith("/dev/")
        }
    network = collect_network(make_world(tmp_path, files))
    assert only(check_rdma_sysfs_hidden(facts(network))).key == "nodes"
    assert isinstance(check_rdma_device_access(facts(network))[0], NotApplicable)


def test_both_there_or_both_absent(tmp_path: Path) -> None:
    assert isinstance(
        check_rdma_sysfs_hidden(facts(collect_network(infiniband_host(tmp_path / "ib"))))[0], Passed
    )
    vm = collect_network(cloud_vm(tmp_path / "vm", changes={"/dev/null": ""}))
    assert isinstance(check_rdma_sysfs_hidden(facts(vm))[0], NotApplicable)
    assert isinstance(check_rdma_sysfs_hidden(facts(NetworkFacts()))[0], NotSeen)


# roce-gid and mtu-odd


def test_a_roce_host_with_ipv4_rows_passes(tmp_path: Path) -> None:
    network = collect_network(roce_host(tmp_path))
    assert isinstance(check_roce_gid(facts(network))[0], Passed)
    assert check_mtu(facts(network)) == [Passed(detail="active MTU 4096 on 2 RoCE ports")]


def test_a_port_without_an_address_is_critical(tmp_path: Path) -> None:
    bare = {0: ROCE_GIDS[0], 1: ROCE_GIDS[1]}
    card = hca("mlx5_0", 0, pci="0000:18:00.0", link_layer="Ethernet", netdev="rdma0", gids=bare)
    network = collect_network(make_world(tmp_path, {**BASE, **LOOPBACK, **card}))
    found = only(check_roce_gid(facts(network)))
    assert (found.severity, found.cause_class, found.key) == (
        Severity.CRITICAL,
        "network:roce_gid",
        "none:mlx5_0/1",
    )
    assert "ip address show rdma0" in (found.actions[0].command or "")


@pytest.mark.parametrize(
    ("index", "severity", "word"),
    [("9", Severity.CRITICAL, "empty"), ("2", Severity.CRITICAL, "v1"), ("1", Severity.CRITICAL, "fe80")],
)
def test_an_index_that_points_to_the_wrong_row(
    tmp_path: Path, index: str, severity: Severity, word: str
) -> None:
    found = [
        each
        for each in check_roce_gid(facts(collect_network(roce_host(tmp_path)), NCCL_IB_GID_INDEX=index))
        if isinstance(each, Found)
    ]
    assert len(found) == 2
    assert found[0].severity is severity
    assert word in found[0].evidence[0].text
    assert found[0].actions[0].command == "unset NCCL_IB_GID_INDEX"


def test_old_nccl_takes_row_zero(tmp_path: Path) -> None:
    network = collect_network(roce_host(tmp_path))
    found = check_roce_gid(facts(network, nccl="2.18.3"))[0]
    assert isinstance(found, Found)
    assert found.actions[0].command == "export NCCL_IB_GID_INDEX=3"


def test_ports_with_ipv6_only_want_the_family(tmp_path: Path) -> None:
    rows = {0: ROCE_GIDS[0], 1: ("fd00:0000:0000:0000:0000:0000:0000:0005", "RoCE v2")}
    card = hca("mlx5_0", 0, pci="0000:18:00.0", link_layer="Ethernet", netdev="rdma0", gids=rows)
    network = collect_network(make_world(tmp_path, {**BASE, **LOOPBACK, **card}))
    assert only(check_roce_gid(facts(network))).actions[0].command == "export NCCL_IB_ADDR_FAMILY=AF_INET6"
    assert isinstance(check_roce_gid(facts(network, NCCL_IB_ADDR_FAMILY="AF_INET6"))[0], Passed)


def test_gids_that_were_not_read_are_not_seen(tmp_path: Path) -> None:
    port = RdmaPort(device="mlx5_0", port=1, state="ACTIVE", link_layer="Ethernet")
    assert isinstance(check_roce_gid(facts(NetworkFacts(rdma_ports=(port,))))[0], NotSeen)
    assert isinstance(check_mtu(facts(NetworkFacts(rdma_ports=(port,))))[0], NotSeen)


def test_infiniband_needs_no_gid(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    assert isinstance(check_roce_gid(facts(network))[0], NotApplicable)
    assert isinstance(check_mtu(facts(network))[0], NotApplicable)


def test_an_mtu_that_differs_is_a_warning_and_a_small_one_an_info(tmp_path: Path) -> None:
    one = collect_network(roce_host(tmp_path / "one", changes={"/sys/class/net/rdma1/mtu": "1500\n"}))
    found = only(check_mtu(facts(one)))
    assert (found.severity, found.cause_class) == (Severity.WARNING, "network:mtu_mismatch")
    both = {f"/sys/class/net/rdma{number}/mtu": "1500\n" for number in range(2)}
    small = only(check_mtu(facts(collect_network(roce_host(tmp_path / "both", changes=both)))))
    assert (small.severity, small.evidence[0].value) == (Severity.INFO, 1024)


# gpudirect-rdma

NO_PEERMEM = {"/proc/modules": "mlx5_ib 397312 0 - Live 0x0\nnvidia 56000000 88 - Live 0x0\n"}
OPEN_MODULE = {
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15\n"
}


def without_registration(network: NetworkFacts) -> NetworkFacts:
    return replace(network, peermem_registered=False, memory_peers=())


def test_registered_peermem_passes(tmp_path: Path) -> None:
    assert isinstance(check_gpudirect_rdma(facts(collect_network(infiniband_host(tmp_path))))[0], Passed)


@pytest.mark.parametrize(("num_nodes", "severity"), [(2, Severity.CRITICAL), (1, Severity.WARNING)])
def test_no_path_to_gpu_memory(tmp_path: Path, num_nodes: int, severity: Severity) -> None:
    network = without_registration(collect_network(infiniband_host(tmp_path, changes=NO_PEERMEM)))
    found = only(check_gpudirect_rdma(facts(network, num_nodes=num_nodes)))
    assert (found.severity, found.key) == (severity, "none")
    assert found.actions[0].command == "modprobe nvidia-peermem"


def test_dmabuf_is_a_path_unless_turned_off(tmp_path: Path) -> None:
    network = without_registration(
        collect_network(infiniband_host(tmp_path, changes={**NO_PEERMEM, **OPEN_MODULE}))
    )
    assert isinstance(check_gpudirect_rdma(facts(network))[0], Passed)
    assert only(check_gpudirect_rdma(facts(network, NCCL_DMABUF_ENABLE="0"))).key == "none"


@pytest.mark.parametrize(
    ("nccl", "severity"),
    [("2.22.3", Severity.CRITICAL), ("2.27.3", Severity.WARNING), (None, Severity.WARNING)],
)
def test_a_module_that_is_not_registered(tmp_path: Path, nccl: str | None, severity: Severity) -> None:
    network = without_registration(collect_network(infiniband_host(tmp_path)))
    found = only(check_gpudirect_rdma(facts(network, nccl=nccl)))
    assert (found.severity, found.key) == (severity, "not-registered")


def test_gpudirect_cannot_be_told_without_the_modules_or_the_gpus(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    unknown = replace(without_registration(network), peermem_module=None, dmabuf_possible=None)
    assert isinstance(check_gpudirect_rdma(facts(unknown))[0], NotSeen)
    assert isinstance(check_gpudirect_rdma(replace(facts(network), gpus=None))[0], NotSeen)


def test_gpudirect_does_not_apply_without_gpu_rdma_or_an_active_port(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path / "ib"))
    assert isinstance(
        check_gpudirect_rdma(replace(facts(network), gpus=GpuFacts(devices=())))[0], NotApplicable
    )
    for number, world in enumerate((cloud_vm(tmp_path / "vm"), efa_host(tmp_path / "efa"))):
        assert isinstance(check_gpudirect_rdma(facts(collect_network(world)))[0], NotApplicable), number


# nic-pcie-width and gpu-nic-affinity


def test_a_card_with_fewer_lanes_than_its_siblings_is_critical(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    ports = network.rdma_ports or ()
    one = replace(network, rdma_ports=(replace(ports[0], pcie_width=8), *ports[1:]))
    found = only(check_nic_pcie_width(facts(one)))
    assert (found.severity, found.key) == (Severity.CRITICAL, "mlx5_0")
    every = replace(network, rdma_ports=tuple(replace(port, pcie_width=8) for port in ports))
    assert {each.severity for each in check_nic_pcie_width(facts(every)) if isinstance(each, Found)} == {
        Severity.INFO
    }


def test_full_lanes_pass_and_unknown_ones_are_not_seen(tmp_path: Path) -> None:
    assert isinstance(check_nic_pcie_width(facts(collect_network(infiniband_host(tmp_path))))[0], Passed)
    port = RdmaPort(device="mlx5_0", port=1)
    assert isinstance(check_nic_pcie_width(facts(NetworkFacts(rdma_ports=(port,))))[0], NotSeen)


def test_every_gpu_has_its_card_below_the_same_switch(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    assert isinstance(check_gpu_nic_affinity(facts(network))[0], Passed)
    table = gpu_nic_table(facts(network), network.rdma_ports or ())
    assert table is not None
    assert table.rows[5] == (5, "00000000:AB:20.0", 1, "mlx5_5/1", 1, "PIX")


def test_gpus_of_a_socket_without_a_port_in_use(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    found = only(check_gpu_nic_affinity(facts(network, NCCL_IB_HCA="=mlx5_0,mlx5_1,mlx5_2,mlx5_3")))
    assert found.severity is Severity.WARNING
    assert [gpu.index for gpu in found.scope.gpus] == [4, 5, 6, 7]
    assert "host-a mlx5_4/1" in found.scope.links
    # The cards are not there at all: to know, no fault.
    half = replace(network, rdma_ports=(network.rdma_ports or ())[:4])
    assert only(check_gpu_nic_affinity(facts(half))).severity is Severity.INFO


def test_places_that_a_virtual_machine_hides_are_not_seen(tmp_path: Path) -> None:
    network = collect_network(infiniband_host(tmp_path))
    hidden = replace(
        network,
        pci_paths={},
        pci_numa_nodes={},
        rdma_ports=tuple(replace(port, numa_node=None) for port in network.rdma_ports or ()),
    )
    assert isinstance(check_gpu_nic_affinity(facts(hidden))[0], NotSeen)


@pytest.mark.parametrize(
    ("left", "right", "nodes", "expected"),
    [
        (("r", "s", "d1", "gpu"), ("r", "s", "d2", "nic"), (0, 0), "PIX"),
        (("r", "s", "d1", "t", "e1", "gpu"), ("r", "s", "d2", "nic"), (0, 0), "PXB"),
        (("r1", "gpu"), ("r2", "nic"), (0, 0), "NODE"),
        (("r1", "gpu"), ("r2", "nic"), (0, 1), "SYS"),
        ((), (), (None, 0), None),
        ((), (), (1, 1), "NODE"),
    ],
)
def test_closeness(
    left: tuple[str, ...], right: tuple[str, ...], nodes: tuple[int | None, int | None], expected: str | None
) -> None:
    assert closeness(left, right, *nodes) == expected

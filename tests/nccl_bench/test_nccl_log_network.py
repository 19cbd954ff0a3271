"""NCCL's log about the network: sockets, GPUDirect RDMA, NICs and interfaces."""

from __future__ import annotations

import pytest

from distdoctor.nccl_bench.analysis.log_hosts import hosts_of
from distdoctor.nccl_bench.checks import nccl_log_interfaces, nccl_log_nics, nccl_log_no_gdr, nccl_log_socket
from distdoctor.nccl_bench.checks.base import NotApplicable, NotSeen, Passed
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.places import HostHardware, Nic
from distdoctor.report.model import Confidence, Fault, Severity
from nccl_bench.nccl_log_texts import ONE_HOST, TWO_HOSTS, facts_of, found, lines, outcome

SOCKET = nccl_log_socket.CHECK
NO_GDR = nccl_log_no_gdr.CHECK
NICS = nccl_log_nics.CHECK
INTERFACES = nccl_log_interfaces.CHECK
H100_ROW = "#  Rank  0 Group  0 Pid    21 on    trainer-7 device  0 [0x0f] NVIDIA H100 80GB HBM3\n"
DESK_ROW = "#  Rank  0 Group  0 Pid    21 on    trainer-7 device  0 [0x0f] NVIDIA GeForce RTX 4090\n"


def test_sockets_between_hosts_of_data_centre_gpus_are_critical() -> None:
    each = found(SOCKET, facts_of(H100_ROW + lines("Using network Socket", TWO_HOSTS)))
    assert (each.severity, each.confidence) == (Severity.CRITICAL, Confidence.HIGH)
    assert each.evidence[0].source == "job.log:2"


def test_sockets_between_hosts_of_unknown_gpus_are_critical_and_less_sure() -> None:
    each = found(SOCKET, facts_of(lines("Using network Socket", TWO_HOSTS)))
    assert (each.severity, each.confidence) == (Severity.CRITICAL, Confidence.MEDIUM)


def test_sockets_between_desks_are_a_warning_unless_rdma_devices_are_there() -> None:
    text = DESK_ROW + lines("Using network Socket", TWO_HOSTS)
    assert found(SOCKET, facts_of(text)).severity is Severity.WARNING
    hardware = (HostHardware(host="trainer-7", nics=(Nic(name="mlx5_0/1", kind="roce"),)),)
    assert found(SOCKET, facts_of(text, hardware=hardware)).severity is Severity.CRITICAL


def test_sockets_inside_one_host_are_harmless_even_without_libibverbs() -> None:
    each = outcome(
        SOCKET, facts_of(lines("Failed to open libibverbs.so[.1]", "Using network Socket", ONE_HOST))
    )
    assert isinstance(each, Passed)
    assert "libibverbs" in each.detail


def test_sockets_with_an_unknown_number_of_hosts_are_a_lead() -> None:
    each = found(SOCKET, facts_of(lines("Using network Socket")))
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.LOW)


def test_the_run_knows_better_than_the_log_how_many_hosts_there_are() -> None:
    text = lines("Using network Socket")
    assert isinstance(outcome(SOCKET, facts_of(text, num_hosts=1)), Passed)
    assert found(SOCKET, facts_of(text, num_hosts=4)).severity is Severity.CRITICAL


def test_a_ring_over_more_ranks_than_a_host_has_gpus_shows_several_hosts() -> None:
    ring = "Channel 00/02 :    0   3   1   2   4   7   5   6   8  11   9  10"
    each = found(SOCKET, facts_of(lines("Using network Socket", ring)))
    assert each.severity is Severity.CRITICAL
    assert any("groups of 4" in evidence.text for evidence in each.evidence)


def test_the_missing_library_is_told_as_the_cause_with_its_own_action() -> None:
    each = found(
        SOCKET, facts_of(lines("Failed to open libibverbs.so[.1]", "Using network Socket", TWO_HOSTS))
    )
    assert each.fault is Fault.SOFTWARE
    assert any("libibverbs" in evidence.text and evidence.source == "job.log:1" for evidence in each.evidence)
    assert any("libibverbs1" in (action.command or "") for action in each.actions)


@pytest.mark.parametrize(
    "setting", ["NCCL_IB_DISABLE set by environment to 1.", "NCCL_NET set by environment to Socket"]
)
def test_a_setting_that_asks_for_sockets_is_the_cause(setting: str) -> None:
    each = found(SOCKET, facts_of(lines(setting, "Using network Socket", TWO_HOSTS)))
    assert each.fault is Fault.CONFIG
    assert (each.actions[0].command or "").startswith("unset NCCL_")


def test_libfabric_over_tcp_is_sockets_too() -> None:
    text = lines(
        "NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)", "Using network AWS Libfabric", TWO_HOSTS
    )
    each = found(SOCKET, facts_of(text))
    assert "tcp;ofi_rxm" in each.evidence[0].text
    assert any("EC2" in action.text for action in each.actions)


def test_channels_over_sockets_are_enough_when_the_network_line_is_missing() -> None:
    text = lines("Channel 00/0 : 3[3] -> 8[0] [send] via NET/Socket/0", TWO_HOSTS)
    assert found(SOCKET, facts_of(text)).severity is Severity.CRITICAL


def test_the_hosts_that_fell_back_to_sockets_are_named() -> None:
    text = (
        lines("Using network IB", host="gpu-a")
        + lines("Using network IB", host="gpu-b")
        + lines("Using network Socket", "NET/IB : No device found.", host="gpu-c")
    )
    each = found(SOCKET, facts_of(text))
    assert each.scope.hosts == ("gpu-c",)
    assert "IB" in each.evidence[0].text


def test_a_cloud_is_advised_only_when_the_log_speaks_of_it() -> None:
    plain = found(SOCKET, facts_of(lines("Using network Socket", TWO_HOSTS)))
    google = found(
        SOCKET,
        facts_of(
            lines("NCCL_FASTRAK_CTRL_DEV set by environment to eth0", "Using network Socket", TWO_HOSTS)
        ),
    )
    assert not any("Cloud" in action.text or "EC2" in action.text for action in plain.actions)
    assert any("Google Cloud" in action.text for action in google.actions)


@pytest.mark.parametrize(
    "network", ["IB", "AWS Libfabric", "IBext_v8", "FasTrak", "GPUDirectTCPX_v7", "gIB", "UCX"]
)
def test_every_other_network_is_passed(network: str) -> None:
    assert isinstance(outcome(SOCKET, facts_of(lines(f"Using network {network}", TWO_HOSTS))), Passed)


def test_without_a_word_about_the_network_nothing_is_passed() -> None:
    for check in (SOCKET, NO_GDR, NICS, INTERFACES):
        assert isinstance(outcome(check, facts_of(lines("Connected all rings"))), NotSeen), check.id


def test_without_a_log_nothing_is_seen_and_gloo_needs_none() -> None:
    for check in (SOCKET, NO_GDR, NICS, INTERFACES):
        assert isinstance(outcome(check, BenchFacts(origin=Origin.TABLE, label="t")), NotSeen)
        assert isinstance(
            outcome(check, BenchFacts(origin=Origin.MEASURED, label="t", backend="gloo")), NotApplicable
        )


def test_disabled_gpudirect_is_a_warning_with_the_measured_loss() -> None:
    text = lines("Using network IB", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'bnxt_re0'", TWO_HOSTS)
    each = found(NO_GDR, facts_of(text))
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.HIGH)
    assert "93 GB/s" in (each.evidence[0].expected_source or "")
    assert any("nvidia-peermem" in (action.command or "") for action in each.actions)


def test_disabled_gpudirect_inside_one_host_is_info() -> None:
    text = lines("Using network IB", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", ONE_HOST)
    assert found(NO_GDR, facts_of(text)).severity is Severity.INFO


def test_efa_routes_without_gpudirect_are_found_and_those_of_small_machines_are_info() -> None:
    routes = lines(
        "Using network AWS Libfabric",
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0",
        "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/0",
        TWO_HOSTS,
    )
    assert found(NO_GDR, facts_of(routes)).severity is Severity.WARNING
    small = lines("NET/OFI Running on g5.48xlarge platform") + routes
    assert found(NO_GDR, facts_of(small)).severity is Severity.INFO


@pytest.mark.parametrize(("model", "severity"), [("Tesla T4", "info"), ("NVIDIA A100-SXM4-40GB", "warning")])
def test_efa_of_small_machines_is_known_by_their_gpus_too(model: str, severity: str) -> None:
    text = f"#  Rank  0 Group  0 Pid    21 on    trainer-7 device  0 [0x0f] {model}\n" + lines(
        "Using network AWS Libfabric", "Channel 00/0 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/0"
    )
    assert found(NO_GDR, facts_of(text)).severity.value == severity


def test_a_plugin_that_does_without_gpudirect_is_a_lead_until_it_is_known_to_be_used() -> None:
    text = lines("NET/OFI Could not disable CUDA API usage for HMEM, disabling GDR")
    assert found(NO_GDR, facts_of(text)).confidence is Confidence.LOW
    assert found(NO_GDR, facts_of(text + lines("Using network AWS Libfabric"))).confidence is Confidence.HIGH


def test_a_distance_is_the_reason_that_the_title_names() -> None:
    text = lines(
        "Using network IB",
        "GPU Direct RDMA Disabled for GPU 0[0] / HCA 0 (distance 4 >= 2)",
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0",
        TWO_HOSTS,
    )
    assert found(NO_GDR, facts_of(text)).title == "GPUDirect RDMA is off: GPU and NIC are too far apart"


def test_all_routes_with_gpudirect_are_passed_though_some_pairs_are_far_apart() -> None:
    text = lines(
        "Using network IB",
        "GPU Direct RDMA Disabled for GPU 0 / HCA 7 (distance 8 > 4)",
        "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
        "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA/Shared",
    )
    assert isinstance(outcome(NO_GDR, facts_of(text)), Passed)


def test_only_sends_without_gpudirect_are_usual_on_pcie_and_info() -> None:
    text = lines(
        "Using network IB",
        "Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0",
        "Channel 00/0 : 2[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
    )
    assert found(NO_GDR, facts_of(text), "send").severity is Severity.INFO


def test_sockets_have_no_gpudirect_to_miss() -> None:
    text = lines("Using network Socket", "NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'")
    assert isinstance(outcome(NO_GDR, facts_of(text)), NotApplicable)


def test_a_gpu_that_shares_the_hosts_memory_needs_no_gpudirect() -> None:
    row = "#  Rank  0 Group  0 Pid    21 on    spark-1 device  0 [0x01] NVIDIA GB10\n"
    text = row + lines(
        "Using network IB", "NET/IB : GPU Direct RDMA Disabled for HCA 0 'rocep1s0f0'", TWO_HOSTS
    )
    assert found(NO_GDR, facts_of(text)).severity is Severity.INFO


BRIDGES = "NET/Socket : Using [0]ens3:10.0.0.1<0> [1]docker0:172.17.0.1<0> [2]wg0:10.8.0.1<0> [3]cali12ab:fe80::1%cali12ab<0>"


def test_bridges_and_vpns_between_hosts_are_a_warning_that_names_the_card_to_use() -> None:
    each = found(INTERFACES, facts_of(lines("Using network Socket", BRIDGES, TWO_HOSTS)))
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.HIGH)
    assert each.scope.links == ("docker0", "wg0", "cali12ab")
    assert each.actions[0].command == "export NCCL_SOCKET_IFNAME==ens3"


def test_bridges_with_an_unknown_number_of_hosts_are_a_less_sure_warning() -> None:
    each = found(INTERFACES, facts_of(lines(BRIDGES)))
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.MEDIUM)


def test_bridges_inside_one_host_do_no_harm() -> None:
    assert isinstance(outcome(INTERFACES, facts_of(lines(BRIDGES, ONE_HOST))), Passed)


def test_bridges_beside_rdma_are_info_but_not_as_the_way_to_set_up() -> None:
    beside = lines("Using network IB", BRIDGES, TWO_HOSTS)
    assert found(INTERFACES, facts_of(beside)).severity is Severity.INFO
    start = lines("Bootstrap : Using docker0:172.17.0.1<0>", "Using network IB", TWO_HOSTS)
    assert found(INTERFACES, facts_of(start)).severity is Severity.WARNING


def test_loopback_alone_between_hosts_is_critical() -> None:
    text = lines("NET/Socket : Using [0]lo:127.0.0.1<0>", "Using network Socket", TWO_HOSTS)
    assert found(INTERFACES, facts_of(text)).severity is Severity.CRITICAL


@pytest.mark.parametrize(
    "name", ["eth0", "bond0", "br0", "enp1s0f0np0", "ib0", "ens5", "hsn0", "vlan12", "eno1.30"]
)
def test_cards_bonds_and_the_bridge_of_a_card_are_no_fault(name: str) -> None:
    text = lines(f"NET/Socket : Using [0]{name}:10.0.0.1<0>", "Using network Socket", TWO_HOSTS)
    assert isinstance(outcome(INTERFACES, facts_of(text)), Passed)


EIGHT_NICS = (
    "NET/IB : Using " + " ".join(f"[{n}]mlx5_{n}:1/IB" for n in range(8)) + " [RO]; OOB eth0:10.0.0.1<0>"
)


def test_a_nic_for_each_gpu_is_passed() -> None:
    assert isinstance(outcome(NICS, facts_of(lines(EIGHT_NICS, "Using network IB", TWO_HOSTS))), Passed)


def test_fewer_nics_than_the_host_has_are_a_warning() -> None:
    hardware = (HostHardware(host="a", nics=tuple(Nic(name=f"r{n}", kind="roce") for n in range(8))),)
    text = lines("NET/IB : Using [0]rdmap0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "Using network IB", TWO_HOSTS)
    each = found(NICS, facts_of(text, hardware=hardware), "few")
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.HIGH)


def test_numbers_of_nics_that_suggest_more_are_a_lead() -> None:
    text = lines("NET/IB : Using [0]mlx5_6:1/IB [1]mlx5_7:1/IB [RO]; OOB eth0:10.0.0.1<0>", TWO_HOSTS)
    each = found(NICS, facts_of(text), "few")
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.LOW)


def test_fewer_nics_than_gpus_are_info_for_many_machines_are_made_so() -> None:
    text = lines("NET/OFI Selected Provider is efa (found 4 nics)", "Using network AWS Libfabric", TWO_HOSTS)
    assert found(NICS, facts_of(text), "few").severity is Severity.INFO


def test_a_list_of_nics_that_leaves_some_out_is_a_warning() -> None:
    text = lines(
        "NCCL_IB_HCA set by environment to mlx5_0,mlx5_1",
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        TWO_HOSTS,
    )
    assert found(NICS, facts_of(text), "few").severity is Severity.WARNING


def test_infiniband_and_ethernet_together_are_a_warning() -> None:
    text = lines("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", TWO_HOSTS)
    each = found(NICS, facts_of(text), "mixed")
    assert each.actions[0].command == "export NCCL_IB_HCA='=mlx5_0:1'"


def test_hosts_with_different_networks_are_a_warning_that_names_the_fewer() -> None:
    text = "".join(lines("Using network IBext_v8", host=f"h{n}") for n in range(3)) + lines(
        "Using network IB", host="h9"
    )
    each = found(NICS, facts_of(text), "differ")
    assert each.scope.hosts == ("h9",)


def test_an_older_plugin_interface_and_missing_numa_information_are_info() -> None:
    text = lines(
        "NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.",
        "NET/Plugin: Loaded net plugin IBext_v7 (v7)",
        "Setting affinity for GPU 0 to ffffffff,ffffffff,ffffffff",
    )
    assert found(NICS, facts_of(text), "plugin").severity is Severity.INFO
    assert found(NICS, facts_of(text), "numa").severity is Severity.INFO


def test_an_affinity_to_some_cpus_is_no_finding() -> None:
    text = lines(
        EIGHT_NICS,
        "Setting affinity for GPU 0 to ff,ffff0000,00ffffff",
        "Setting affinity for GPU 1 to 0-23,48-71",
    )
    assert isinstance(outcome(NICS, facts_of(text)), Passed)


@pytest.mark.parametrize(
    ("text", "several", "confidence"),
    [
        (TWO_HOSTS, True, Confidence.HIGH),
        (ONE_HOST, False, Confidence.HIGH),
        ("comm 0x1 rank 0 nRanks 72 nNodes 1 localRanks 72 localRank 0 MNNVL 1", False, Confidence.HIGH),
        ("comm 0x1 rank 0 nranks 16 cudaDev 0 busId 1 - Init COMPLETE", True, Confidence.MEDIUM),
        ("comm 0x1 rank 0 nranks 64 cudaDev 0 busId 1 - Init COMPLETE", True, Confidence.HIGH),
        ("Channel 00/0 : 0[0] -> 2[0] [send] via NET/IB/0/GDRDMA", True, Confidence.MEDIUM),
        ("comm 0x1 rank 0 nranks 8 cudaDev 0 busId 1 - Init COMPLETE", None, Confidence.LOW),
    ],
)
def test_the_number_of_hosts_is_judged_by_the_strongest_line(
    text: str, several: bool | None, confidence: Confidence
) -> None:
    hosts = hosts_of(facts_of(lines(text)))
    assert (hosts.several, hosts.confidence) == (several, confidence)

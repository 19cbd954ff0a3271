"""Reading NCCL's own log: every version's wording, every prefix, several processes, torn and arbitrary text."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.nccl_bench.analysis.transport_words import algorithm_of, transport_words
from distdoctor.nccl_bench.checks.all import BENCH_CHECKS
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.nccl_log import ChosenAlgorithm
from distdoctor.nccl_bench.readers.nccl_lines import nccl_lines
from distdoctor.nccl_bench.readers.nccl_log import merge_logs, read_nccl_log, sniff_nccl_log
from nccl_bench.nccl_log_texts import ONE_HOST, TWO_HOSTS, lines, log_of


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[1,0]<stdout>:",
        "0: ",
        "12: ",
        "[rank3]:",
        "[default2]:",
        "(RayWorkerWrapper pid=927) ",
        "(EngineCore_DP0 pid=742) (RayWorkerWrapper pid=927, ip=10.0.0.4) ",
        "2026-03-02T10:11:12.123456789Z stdout F ",
        "[2026-03-02 10:11:12] ",
        "[0] ",
        "worker-1 | ",
        "> ",
    ],
)
def test_whatever_a_launcher_writes_before_it_the_message_and_its_host_are_read(prefix: str) -> None:
    (line,) = nccl_lines(f"{prefix}gpu-node.a-7:411:420 [3] NCCL INFO Using network IB")
    log = log_of(f"{prefix}gpu-node-7:411:420 [3] NCCL INFO Using network IB")
    assert (line.host, line.process, line.device) == ("gpu-node.a-7", "gpu-node.a-7:411", 3)
    assert log.network == "IB"
    assert log.hosts == ("gpu-node-7",)


def test_lines_without_any_prefix_are_read_and_name_no_host() -> None:
    log = log_of("NCCL INFO Using network Socket\n")
    assert (log.network, log.hosts, log.num_processes) == ("Socket", (), None)


def test_a_warning_has_its_source_file_between_device_and_text() -> None:
    text = "\n[2026-09-09 10:46:33] n1:7:9 [1] transport/net_ib/p2p.cc:648 NCCL WARN NET/IB: Got completion from peer x\n"
    log = log_of(text)
    assert log.warned[0].host == "n1"
    assert log.warned[0].where == "job.log:2"


def test_a_plugins_warning_has_a_function_signature_between_device_and_text() -> None:
    text = "[2026-01-02 10:24:27] n1:7:9 [2] int nccl_net_ofi_create_plugin(nccl_net_ofi_plugin_t**):353 NCCL WARN NET/OFI x"
    (line,) = nccl_lines(text)
    assert (line.host, line.device, line.text) == ("n1", 2, "NET/OFI x")


@pytest.mark.parametrize(
    "text",
    [
        "NET/OFI Running on p4d.24xlarge platform, topology file /opt/x.xml",
        "NET/OFI Region base Tuner is chosen for platform: p4d.24xlarge",
        "NET/OFI NCCL_OFI_TUNER is not available for platform : p4d.24xlarge, Fall back to NCCL's tuner",
    ],
)
def test_the_clouds_machine_type_is_read_in_every_wording(text: str) -> None:
    assert log_of(lines(text)).platform == "p4d.24xlarge"


def test_two_processes_that_write_into_one_line_are_told_apart_and_no_host_is_made_up() -> None:
    glued = log_of("a1:1:2 [0] NCCL INFO Using network IBb2:3:4 [1] NCCL INFO NET/IB : No device found.\n")
    apart = log_of("a1:1:2 [0] NCCL INFO Using network IB b2:3:4 [1] NCCL INFO NET/IB : No device found.\n")
    assert glued.no_ib_device
    assert glued.hosts == ("a1",)
    assert glued.networks == ()
    assert apart.networks == ("IB",)


def test_a_container_runtimes_json_lines_are_read() -> None:
    log = log_of('{"log":"n1:1:2 [0] NCCL INFO Using network IB\\n","stream":"stdout"}\n')
    assert log.network == "IB"
    assert log.hosts == ("n1",)


@pytest.mark.parametrize(
    ("text", "library", "version"),
    [
        ("NCCL version 2.22.3+cuda12.6", "NCCL", "2.22.3"),
        ("[1,0]<stdout>:NCCL version 2.12.7+cuda11.4", "NCCL", "2.12.7"),
        ("n:1:2 [0] NCCL INFO NCCL version 2.30.4+cuda13.2", "NCCL", "2.30.4"),
        ("NCCL version 2.27.5 compiled with CUDA 12.9", "NCCL", "2.27.5"),
        ("n:1:2 [0] NCCL INFO RCCL version : 2.26.6-HEAD:f224e2c", "RCCL", "2.26.6"),
        ("RCCL version 2.18.3+hip6.0 HEAD:2f6d59e", "RCCL", "2.18.3"),
    ],
)
def test_the_version_is_read_in_every_wording(text: str, library: str, version: str) -> None:
    log = log_of(text + "\n")
    assert (log.library, log.version) == (library, version)


def test_text_without_a_line_of_nccl_is_no_log() -> None:
    assert read_nccl_log("all is well\n[pip3] nvidia-nccl-cu12==2.21.5\n", "x") is None
    assert read_nccl_log("NCCL error in: x.cpp:1, unhandled system error, NCCL version 2.21.5\n", "x") is None


def test_lists_of_nics_and_interfaces_are_read_in_all_forms() -> None:
    log = log_of(
        lines(
            "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [2]ibp9s0:2/IB/SHARP [RO]; OOB eth0:10.1.0.9<0>",
            "NET/Socket : Using [0]enp1s0f0:10.1.0.1<0> [2]vethb4:fe80::1%vethb4<0>",
            "Bootstrap : Using ens5:10.2.0.1<0>",
        )
    )
    assert [(nic.name, nic.kind, nic.index) for nic in log.rdma_nics] == [
        ("mlx5_0:1/RoCE", "roce", 0),
        ("mlx5_1:1/IB", "ib", 1),
        ("ibp9s0:2/IB", "ib", 2),
    ]
    assert [nic.name for nic in log.socket_interfaces] == ["enp1s0f0", "vethb4"]
    assert log.bootstrap is not None
    assert log.bootstrap.name == "ens5"


def test_an_empty_list_of_rdma_devices_still_names_the_out_of_band_interface() -> None:
    log = log_of(lines("NET/IB : Using [RO]; OOB enp6s0:10.0.0.1<0>"))
    assert log.rdma_nics == ()
    assert log.bootstrap is not None
    assert log.bootstrap.name == "enp6s0"


def test_merged_nics_of_newer_versions_are_read() -> None:
    log = log_of(lines("NET/IB : Using [0]={[0] mlx5_0:1/IB [1] mlx5_3:1/IB} [RO]; OOB eth0:10.0.0.1<0>"))
    assert [nic.name for nic in log.rdma_nics] == ["mlx5_0:1/IB", "mlx5_3:1/IB"]


def test_plugins_of_clouds_and_vendors_are_read() -> None:
    log = log_of(
        lines(
            "NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.",
            "NET/Plugin: Failed to find ncclNetPlugin_v9 symbol.",
            "NET/Plugin: Loaded net plugin AWS Libfabric (v8)",
            "NET/OFI Initializing aws-ofi-nccl 1.13.2-aws",
            "NET/OFI Running on p5.48xlarge platform, Setting NCCL_TOPO_FILE environment variable to /opt/x.xml",
            "NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)",
        )
    )
    assert (log.plugin, log.plugin_api, log.wanted_plugin_api) == ("AWS Libfabric", 8, 10)
    assert (log.plugin_version, log.platform, log.provider, log.nics_found) == (
        "1.13.2-aws",
        "p5.48xlarge",
        "efa",
        16,
    )


@pytest.mark.parametrize(
    "text",
    [
        "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "NET/Plugin : dlerror=x No plugin found (libnccl-net.so), using internal implementation",
        "NET/Plugin : Plugin load returned 2 : libnccl-net.so: cannot open shared object file.",
    ],
)
def test_a_plugin_that_was_not_found_is_read_in_every_wording(text: str) -> None:
    assert log_of(lines(text)).plugins_missing == ("libnccl-net.so",)


@pytest.mark.parametrize(
    ("text", "transport", "detail", "gpudirect", "device", "pxn"),
    [
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "P2P", "CUMEM/read", False, None, False),
        ("Channel 01 : 0[101c0] -> 1[201d0] via P2P/IPC/read", "P2P", "IPC/read", False, None, False),
        ("Channel 15/0 : 0[7] -> 1[4] via P2P/direct pointer", "P2P", "direct pointer", False, None, False),
        ("Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL", "P2P", "MNNVL", False, None, False),
        ("Channel 00/0 : 0[3000] -> 1[d0] via P2P/IPC comm 0x2b nRanks 02", "P2P", "IPC", False, None, False),
        ("Channel 00 : 0[3] -> 1[4] via SHM/direct/direct", "SHM", "direct/direct", False, None, False),
        (
            "Ring 00 : 0[0] -> 1[1] via direct shared memory",
            "SHM",
            "direct shared memory",
            False,
            None,
            False,
        ),
        ("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/3(7)/GDRDMA/Shared", "NET", "IB", True, "3", True),
        ("Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/0/GDRDMA(PCI)", "NET", "IB", True, "0", False),
        (
            "Channel 00 : 0[0] -> 1[0] [send] via NET/AWS Libfabric/1",
            "NET",
            "AWS Libfabric",
            False,
            "1",
            False,
        ),
        (
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/NCCL RDMA Plugin v10/0",
            "NET",
            "NCCL RDMA Plugin v10",
            False,
            "0",
            False,
        ),
        ("Ring 00 : 0 -> 1 [send] via NET/Socket/0", "NET", "Socket", False, "0", False),
    ],
)
def test_channels_are_read_in_every_wording(
    text: str, transport: str, detail: str, gpudirect: bool, device: str | None, pxn: bool
) -> None:
    (route,) = log_of(lines(text)).routes
    assert (route.source, route.target) == (0, 1)
    assert (route.transport, route.detail, route.gpudirect, route.device, route.pxn) == (
        transport,
        detail,
        gpudirect,
        device,
        pxn,
    )


def test_equal_channels_are_counted_once() -> None:
    text = "".join(lines(f"Channel {number:02d}/0 : 0[0] -> 1[1] via P2P/CUMEM") for number in range(24))
    (route,) = log_of(text).routes
    assert route.count == 24


def test_a_route_that_the_end_of_the_text_may_have_cut_is_not_taken_for_one_without_gpudirect() -> None:
    whole = lines("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA")
    cut = "n:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/1"
    assert all(route.gpudirect for route in log_of(whole + cut).routes)


def test_a_ring_shows_its_ranks_and_the_groups_of_a_host() -> None:
    ring = "Channel 00/16 :    0   7   6   5   4   3   2   1   8  15  14  13  12  11  10   9"
    log = log_of(lines(ring))
    assert (log.ring_ranks, log.ring_block) == (16, 8)


def test_a_ring_in_plain_order_or_within_one_host_shows_no_groups() -> None:
    plain = "Channel 00/02 : " + " ".join(str(rank) for rank in range(16))
    mesh = "Channel 00/12 :    0   3   2   1   5   6   7   4"
    assert log_of(lines(plain)).ring_block is None
    assert log_of(lines(mesh)).ring_block is None


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("comm 0x5 rank 0 nRanks 24 nNodes 3 localRanks 8 localRank 0 MNNVL 0", (24, 3, 8, False)),
        ("comm 0x5 rank 0 nRanks 72 nNodes 1 localRanks 72 localRank 0 MNNVL 1", (72, 1, 72, True)),
        ("NET/OFI Region Tuner init (platform 0): comm with 16 ranks and 2 nodes.", (16, 2, 8, None)),
        ("comm 0x7f rank 0 nranks 16 cudaDev 0 busId 101c0 - Init COMPLETE", (16, None, None, None)),
        (
            "ncclCommInitRank comm 0x2 rank 1 nranks 4 cudaDev 1 nvmlDev 0 busId 23000 commId 0x5b - Init START",
            (4, None, None, None),
        ),
        (
            "[Rank 3] ncclCommInitRankConfig comm 0x2 rank 3 nranks 8 cudaDev 1 nvmlDev 0 busId 1 commId 0x5 - Init START",
            (8, None, None, None),
        ),
    ],
)
def test_shapes_of_communicators_are_read(text: str, shape: tuple[object, ...]) -> None:
    (comm,) = log_of(lines(text)).comms
    assert (comm.num_ranks, comm.num_hosts, comm.local_ranks, comm.mnnvl) == shape


def test_a_line_that_counts_hosts_replaces_the_one_that_does_not() -> None:
    log = log_of(lines("comm 0x5 rank 0 nranks 16 cudaDev 0 busId 1 - Init START", TWO_HOSTS))
    assert [(comm.num_ranks, comm.num_hosts) for comm in log.comms] == [(16, 2)]


@pytest.mark.parametrize(
    ("text", "channels"),
    [
        ("24 coll channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer", (24, 16, 32)),
        (
            "24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 1 p2p channels per peer",
            (24, 0, 32),
        ),
        ("8 coll channels, 8 p2p channels, 1 p2p channels per peer", (8, None, 8)),
    ],
)
def test_numbers_of_channels_are_read(text: str, channels: tuple[int | None, ...]) -> None:
    log = log_of(lines(text))
    assert (log.collective_channels, log.nvls_channels, log.p2p_channels) == channels


def test_nvls_of_any_communicator_counts() -> None:
    log = log_of(
        lines(
            "2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer",
            "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
        )
    )
    assert log.nvls_channels == 16


@pytest.mark.parametrize(
    ("text", "available"),
    [
        ("NVLS multicast support is available on dev 0", True),
        ("NVLS multicast support is not available on dev 3 (NVLS_NCHANNELS 0)", False),
        (
            "NVLS multicast support is available on dev 0, transport enabled, symmetric multimem disabled",
            True,
        ),
        (
            "NVLS multicast support is available on dev 0, transport disabled, symmetric multimem enabled",
            False,
        ),
    ],
)
def test_multicast_support_is_read(text: str, available: bool) -> None:
    log = log_of(lines(text))
    assert log.nvls_available is available
    assert log.nvls_failures == ()


def test_algorithms_are_named_alike_by_number_and_by_word() -> None:
    log = log_of(
        lines(
            "AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 12.3",
            "AllReduce: 2048 Bytes -> Algo 0 proto 0 time 0.0",
            "AllReduce: 67108864 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..15}",
            "ReduceScatter:        4 Bytes -> Algo RING proto LL128    channel{Lo..Hi}={0..0}",
            "AllGather [Symmetric]: 4096 Bytes -> Kernel AllGather_LL nchannels 4 nthreads 512",
        )
    )
    assert [
        (each.collective, each.size_bytes, each.algorithm, each.protocol, each.channels)
        for each in log.algorithms
    ] == [
        ("all_reduce", 1048576, "Ring", "Simple", None),
        ("all_reduce", 2048, "Tree", "LL", None),
        ("all_reduce", 67108864, "NVLSTree", "Simple", "0-15"),
        ("reduce_scatter", 4, "Ring", "LL128", "0-0"),
        ("all_gather", 4096, "symmetric AllGather_LL", "", None),
    ]


def test_the_choice_for_a_size_is_the_exact_one_or_one_within_a_factor_of_two() -> None:
    log = log_of(
        lines(
            "AllReduce: 1048576 Bytes -> Algo TREE proto LL128 channel{Lo..Hi}={0..7}",
            "AllReduce: 8388608 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}",
        )
    )
    exact = algorithm_of(log, "all_reduce", 8388608)
    near = algorithm_of(log, "AllReduce", 1500000)
    assert isinstance(exact, ChosenAlgorithm)
    assert exact.algorithm == "NVLS"
    assert near is not None
    assert near.algorithm == "Tree"
    assert algorithm_of(log, "all_reduce", 1 << 30) is None
    assert algorithm_of(log, "all_gather", 8388608) is None


def test_settings_lose_the_full_stop_that_nccl_prints_after_numbers() -> None:
    log = log_of(
        lines(
            "NCCL_CROSS_NIC set by environment to 2.",
            "NCCL_SOCKET_IFNAME set by environment to bond0",
            "NCCL_TOPO_FILE set by environment to /etc/topo.v1.xml",
            "NET/Plugin: Plugin name set by env to ofi",
        )
    )
    assert [(each.name, each.value) for each in log.overrides] == [
        ("NCCL_CROSS_NIC", "2"),
        ("NCCL_SOCKET_IFNAME", "bond0"),
        ("NCCL_TOPO_FILE", "/etc/topo.v1.xml"),
        ("NCCL_NET_PLUGIN", "ofi"),
    ]


def test_gpudirect_of_sockets_is_no_fact() -> None:
    log = log_of(
        lines(
            "NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'",
            "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
            "NET/gIB : GPU Direct RDMA Enabled for HCA 1 'mlx5_1'",
            "GPU Direct RDMA Disabled for GPU 18000 / HCA 3 (distance 8 > 4)",
        )
    )
    assert log.gpudirect_disabled == ("mlx5_0",)
    assert log.gpudirect_enabled == ("mlx5_1",)
    assert log.gpudirect_too_far == 1


def test_the_core_overrules_a_plugin_that_says_gpudirect_is_enabled() -> None:
    log = log_of(
        lines(
            "NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 0 'rocep1s0f0'",
            "NET/NCCL RDMA Plugin v10 : GPU Direct RDMA Disabled for HCA 0 'rocep1s0f0'",
        )
    )
    assert log.gpudirect_disabled == ("rocep1s0f0",)
    assert log.gpudirect_enabled == ()


def test_gpu_models_and_hosts_come_from_the_table_of_ranks() -> None:
    text = (
        "#  Rank  0 Group  0 Pid    21 on    cu74 device  0 [0000:0f:00] NVIDIA H800\n"
        "#  Rank  1 Group  0 Pid    22 on    cu75 device  1 [0x10] NVIDIA H800\n"
    )
    log = log_of(text + lines("Using network IB", host="cu74"))
    assert log.gpu_models == ("NVIDIA H800",)
    assert set(log.hosts) == {"cu74", "cu75"}


def test_logs_of_processes_are_put_together_and_places_name_their_files() -> None:
    first = read_nccl_log(lines("Using network IB", ONE_HOST, host="a"), "nccl.a.1")
    second = read_nccl_log(
        lines(
            "Using network Socket",
            "NET/IB : No device found.",
            "Channel 00/0 : 1[0] -> 0[0] via SHM/direct/direct",
            host="b",
        ),
        "nccl.b.2",
    )
    assert first is not None
    assert second is not None
    log = merge_logs([first, second])
    assert log.networks == ("IB", "Socket")
    assert log.host_networks == (("a", ("IB",)), ("b", ("Socket",)))
    assert log.place_of("no ib device") == "nccl.b.2:2"
    assert log.routes[0].where == "nccl.b.2:3"
    assert log.num_processes == 2


def test_one_log_is_merged_into_itself_and_none_is_an_error() -> None:
    log = log_of(lines("Using network IB"))
    assert merge_logs([log]) is log
    with pytest.raises(ValueError, match="no log"):
        merge_logs([])


def test_merging_forgets_no_field() -> None:
    """A field that is set in the second log only must be in the merged one."""
    empty = log_of("NCCL INFO x\n")
    full = log_of(_EVERYTHING)
    merged = merge_logs([empty, full])
    for field in fields(full):
        if field.name in ("origin", "first_lines"):
            continue
        value = getattr(full, field.name)
        assert value not in (None, (), False, 0), f"{field.name}: the text does not cover it"
        if field.name not in ("library",):
            assert getattr(merged, field.name) == value, field.name


_EVERYTHING = (
    "#  Rank  0 Group  0 Pid    21 on    n1 device  0 [0000:0f:00] NVIDIA H800\n"
    "NCCL version 2.27.5+cuda12.9\n"
    + lines(
        "Bootstrap: Using eth0:10.0.0.1<0>",
        "Failed to open libibverbs.so[.1]",
        "NET/IB : No device found.",
        "NET/Plugin: Could not find: libnccl-net-x.so.",
        "NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.",
        "NET/Plugin: Loaded net plugin Fabric (v6)",
        "Plugin version : 1.2@x",
        "NET/OFI Running on p5.48xlarge platform",
        "NET/OFI Selected provider is efa, fabric is efa (found 32 nics)",
        "Using network Fabric",
        "NET/Fabric : GPU Direct RDMA Disabled for HCA 0 'r0'",
        "NET/Fabric : GPU Direct RDMA Enabled for HCA 1 'r1'",
        "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        "GPU Direct RDMA Disabled for GPU 0 / HCA 3 (distance 8 > 4)",
        "DMA-BUF is available on GPU device 0",
        "=== System : maxBw 48.0 totalBw 370.8 ===",
        "+ NVL[370.8] - NVS/0-0",
        "NVLS multicast support is available on dev 0",
        "NVLS comm 0x5 headRank 0 nHeads 8 nvlsRanks 8 buffSize 1",
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 5 : CUDA error 1 'x'. Proceeding without NVLS support.",
        TWO_HOSTS,
        "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
        "Channel 00/16 :    0   7   6   5   4   3   2   1   8  15  14  13  12  11  10   9",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "Check P2P Type isAllDirectP2p 1 directMode 0",
        "Connected all rings, use ring PXN 0 GDR 1",
        "AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 12.3",
        "NCCL_ALGO set by environment to Ring",
        "Invalid value x for NCCL_IB_TIMEOUT, using default 20.",
        "Setting affinity for GPU 0 to ffffffff,ffffffff",
        "Init timings - ncclCommInitRank: rank 0 nranks 16 total 3.03 (kernels 1.22, rest 0.00)",
    )
    + lines("Cuda failure 2 'out of memory'", level="WARN")
    + lines("init.cc:1534 -> 2")
)


def test_several_lines_make_a_log_and_one_does_not_decide() -> None:
    assert sniff_nccl_log("x", lines("Using network IB", ONE_HOST).encode()) > 0.8
    assert 0 < sniff_nccl_log("x", lines("Using network IB").encode()) < 0.5
    assert sniff_nccl_log("x", b"nothing of the kind") == 0.0


def test_words_say_what_joins_the_ranks() -> None:
    log = log_of(
        lines(
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
            "Using network IB",
            "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
            "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
            "24 coll channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer",
        )
    )
    assert transport_words(log) == (
        "between hosts: IB with GPUDirect over 2 NICs; inside hosts: NVLink P2P (CUMEM); NVLS set up, 16 channels"
    )
    assert transport_words(log_of(lines("x"))) == ""


_WORDS = st.sampled_from(
    [
        "NCCL INFO ", "NCCL WARN ", "a:1:2 [0] ", "Using network ", "NET/IB : Using ", "[0]x:1/IB ", "Channel 00/0 : ",
        "0[0] -> ", "via NET/", "/0/GDRDMA", "SHM/", "Bytes -> Algo ", "proto ", "set by environment to ", "NCCL_ALGO ",
        "nRanks 8 nNodes ", "0 nvls channels", "99999999999999999999 ", " coll channels, ", "\n", "\\n\"", "comm ", "1 2 3 ",
        "+ NVL[1.0] - NVS/", "rank 1 nranks ", "# Rank 0 Pid 1 on h device 0 [0] X ", "Got completion from peer with status=",
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(_WORDS, st.text(max_size=12)), max_size=40).map("".join))
def test_arbitrary_text_crashes_neither_the_reader_nor_a_check(text: str) -> None:
    log = read_nccl_log(text, "x")
    sniff_nccl_log("x", text.encode("utf-8", "replace"))
    if log is None:
        return
    transport_words(log)
    merge_logs([log, log])
    facts = BenchFacts(origin=Origin.LOG, label="x", nccl_log=log)
    for check in BENCH_CHECKS:
        if check.id.startswith("nccl-log-"):
            assert check.run(facts)

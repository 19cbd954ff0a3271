"""NCCL's log about settings, and what it warns of."""

from __future__ import annotations

import pytest

from distdoctor.nccl_bench.checks import nccl_log_overrides, nccl_log_warn
from distdoctor.nccl_bench.checks.base import Found, NotSeen, Passed
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.places import HostHardware
from distdoctor.nccl_bench.readers.nccl_log import read_nccl_log
from distdoctor.report.model import Confidence, Severity
from nccl_bench.nccl_log_texts import ONE_HOST, TWO_HOSTS, facts_of, found, lines, outcome

OVERRIDES = nccl_log_overrides.CHECK
WARN = nccl_log_warn.CHECK


def setting(name: str, value: str) -> str:
    return lines(f"{name} set by environment to {value}{'.' if value.isdigit() else ''}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "1"),
        ("NCCL_SHM_DISABLE", "1"),
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_NET", "Socket"),
        ("NCCL_ALGO", "Ring"),
        ("NCCL_PROTO", "Simple"),
        ("NCCL_NET_GDR_LEVEL", "PIX"),
        ("NCCL_NET_GDR_LEVEL", "0"),
        ("NCCL_MAX_NCHANNELS", "2"),
        ("NCCL_BUFFSIZE", "131072"),
        ("NCCL_HOSTID", "vm-3"),
        ("NCCL_P2P_LEVEL", "LOC"),
    ],
)
def test_costly_settings_are_warned_of_by_name(name: str, value: str) -> None:
    each = found(OVERRIDES, facts_of(setting(name, value)), name)
    assert each.severity is Severity.WARNING
    assert each.actions[0].command == f"unset {name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_P2P_DISABLE", "0"),
        ("NCCL_IB_DISABLE", "0"),
        ("NCCL_NET", "AWS Libfabric"),
        ("NCCL_CROSS_NIC", "2"),
        ("NCCL_MAX_NCHANNELS", "16"),
        ("NCCL_BUFFSIZE", "8388608"),
        ("NCCL_NET_GDR_LEVEL", "SYS"),
        ("NCCL_SOCKET_IFNAME", "^docker0,lo"),
        ("NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"),
        ("NCCL_TOPO_FILE", "/opt/x/topo.xml"),
        ("NCCL_NVLS_ENABLE", "0"),
    ],
)
def test_other_settings_are_listed_as_info(name: str, value: str) -> None:
    each = found(OVERRIDES, facts_of(setting(name, value)), "list")
    assert each.severity is Severity.INFO
    assert each.evidence[0].text == f"{name}={value}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_ALGO", "Ring,,Tree"),
        ("NCCL_ALGO", "allreduce:ring,;broadcast:tree"),
        ("NCCL_ALGO", "Rng"),
        ("NCCL_PROTO", "LL128,Simpel"),
        ("NCCL_SOCKET_IFNAME", "eth0,"),
        ("NCCL_IB_HCA", "mlx5_0, mlx5_1"),
        ("NCCL_TOPO_FILE", '"/opt/x.xml"'),
    ],
)
def test_malformed_values_are_warned_of(name: str, value: str) -> None:
    each = found(OVERRIDES, facts_of(setting(name, value)), name)
    assert each.severity is Severity.WARNING
    assert "malformed" in each.title


@pytest.mark.parametrize(
    "value", ["^Tree", "Ring,Tree", "NVLSTree", "allreduce:tree;ring", "CollnetDirect,CollnetChain", "PAT"]
)
def test_forms_that_the_guide_allows_are_not_malformed(value: str) -> None:
    assert "malformed" not in found(OVERRIDES, facts_of(setting("NCCL_ALGO", value)), "NCCL_ALGO").title


def test_two_values_of_one_variable_are_told() -> None:
    text = setting("NCCL_IB_TIMEOUT", "22") + setting("NCCL_IB_TIMEOUT", "18")
    each = found(OVERRIDES, facts_of(text), "NCCL_IB_TIMEOUT")
    assert "22 and 18" in each.title


def test_settings_that_do_no_harm_here_are_only_listed() -> None:
    text = lines("Using network AWS Libfabric", TWO_HOSTS)
    found(OVERRIDES, facts_of(setting("NCCL_IB_DISABLE", "1") + text), "list")
    found(OVERRIDES, facts_of(setting("NCCL_NET", "Socket") + lines(ONE_HOST)), "list")
    direct = lines("Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA")
    found(OVERRIDES, facts_of(setting("NCCL_NET_GDR_LEVEL", "PIX") + direct), "list")


def test_nvls_off_is_costly_where_the_hardware_has_it() -> None:
    hardware = (HostHardware(host="a", nvls_supported=True),)
    each = found(OVERRIDES, facts_of(setting("NCCL_NVLS_ENABLE", "0"), hardware=hardware), "NCCL_NVLS_ENABLE")
    assert each.severity is Severity.WARNING


def test_a_value_that_nccl_cannot_read_is_told() -> None:
    each = found(
        OVERRIDES, facts_of(lines("Invalid value 20s for NCCL_IB_TIMEOUT, using default 20.")), "invalid"
    )
    assert each.severity is Severity.WARNING


def test_settings_of_the_log_itself_do_not_count() -> None:
    text = "NCCL version 2.27.5+cuda12.9\n" + setting("NCCL_DEBUG_SUBSYS", "INIT,NET") + lines(ONE_HOST)
    assert isinstance(outcome(OVERRIDES, facts_of(text)), Passed)


def test_no_settings_in_an_excerpt_is_not_passed() -> None:
    assert isinstance(outcome(OVERRIDES, facts_of(lines("Using network IB"))), NotSeen)
    assert isinstance(outcome(OVERRIDES, BenchFacts(origin=Origin.TABLE, label="t")), NotSeen)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("NET/IB : Got completion from peer 10.0.0.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)", "rdma-timeout"),
        ("NET/IB: Got completion from peer 10.9.9.6<51161> with status=12 opcode=129 len=32614 vendor err 129 (Send) hca mlx5_1", "rdma-timeout"),
        ("NET/IB: Got completion from peer 10.1.3.1<4> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 hca irdma2", "rdma-timeout"),
        ("NET/IB: Got completion from peer 10.1.3.1<4> with status=4 opcode=0 len=0 vendor err 81 (Send) hca mlx5_1", "rdma-access"),
        ("NET/IB: Got completion from peer 10.1.3.1<4> with status=IBV_WC_REM_ACCESS_ERR(10) opcode=x", "rdma-access"),
        ("NET/IB: Got completion from peer 10.1.3.1<4> with status=5 opcode=0", "peer-gone"),
        ("NET/IB: Got completion from peer 10.1.3.1<4> with status=2 opcode=0", "rdma-other"),
        ("Call to ibv_modify_qp failed with error Connection timed out errno 110", "queue-pair"),
        ("Call to ibv_modify_qp failed with 113 No route to host, on dev mlx5_0:1, curr state INIT", "queue-pair"),
        ("Net : Connect to 10.4.0.3<43211> failed : Connection refused", "refused"),
        ("socketStartConnect: Connect to 10.4.0.3<43211> failed : Connection refused", "refused"),
        ("socketPollConnect: Connect to 10.4.0.3<43211> returned 111(Connection refused) errno 115(x)", "refused"),
        ("socketStartConnect: Connect to 10.4.0.3<43211> failed : No route to host", "unreachable"),
        ("socketStartConnect: exceeded timeouts (20000)", "unreachable"),
        ("Net : No interface found in the same subnet as remote address 10.0.0.1<1>", "unreachable"),
        ("socketProgress: Connection closed by remote peer gpu-3<39054>", "peer-gone"),
        ("Net : Call to recv from 10.4.0.3<1> failed : Connection reset by peer", "peer-gone"),
        ("Cuda failure 'out of memory'", "cuda"),
        ("Cuda failure 719 'unspecified launch failure'", "cuda"),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000", "duplicate-gpu"),
        ("Error: failed to extend /dev/shm/nccl-fAk3 to 33030532 bytes, error: No space left on device (28)", "shared-memory"),
        ("Error while creating shared memory segment /dev/shm/nccl-5 (size 9637888)", "shared-memory"),
        ("Bootstrap : no socket interface found", "interface"),
        ("NET/IB : No IP interface found.", "interface"),
        ("Mismatched NCCL version detected : rank 0 version 22203 rank 8 version 22605", "version"),
        ("NET/Socket : peer 10.0.0.2<5> message truncated : receiving 1048576 bytes instead of 524288.", "sizes"),
        ("Bootstrap Root : mismatch in rank count from procs 16 : 8", "sizes"),
        ("P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case", "nvlink-p2p"),
        ("NET/IB : mlx5_3:1 async fatal event: port error", "port-event"),
        ("NET/IB : mlx5_3:1 Got async event : local catastrophic error", "port-event"),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "memlock"),
        ("NET/OFI aws-ofi-nccl initialization failed", "plugin"),
        ("NET/OFI Initializing plugin failed", "plugin"),
        ("Error : no algorithm/protocol available", "algorithm"),
        ("Error: network Fabric not found.", "network-name"),
        ("NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and [1]mlx5_2:1/RoCE.", "link-layers"),
        ("MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration", "imex"),
        ("NUMA auto balancing enabled which can lead to variability in the RCCL performance!", "numa-balancing"),
        ('Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!', "numa-balancing"),
        ("[Proxy Service 3] Failed to execute operation Connect from rank 3, retcode 2", "system-error"),
        ("unhandled system error (run with NCCL_DEBUG=INFO for details)", "system-error"),
    ],
)  # fmt: skip
def test_every_failure_is_known_in_every_versions_wording(text: str, key: str) -> None:
    each = found(WARN, facts_of(lines(text, level="WARN", host="gpu-4")), key)
    assert each.severity in (Severity.WARNING, Severity.CRITICAL)
    assert each.scope.hosts == ("gpu-4",)


def test_the_port_that_a_warning_names_is_in_the_scope() -> None:
    text = "NET/IB: Got completion from peer 10.0.0.5<4> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_1"
    each = found(WARN, facts_of(lines(text, level="WARN", host="gpu-4")), "rdma-timeout")
    assert each.scope.links == ("gpu-4 mlx5_1",)


def test_the_same_warning_of_many_peers_is_one_line_with_its_number() -> None:
    text = "".join(
        lines(f"socketStartConnect: Connect to 10.4.0.{n}<4{n}> failed : Connection refused", level="WARN")
        for n in range(30)
    )
    each = found(WARN, facts_of(text), "refused")
    assert len(each.evidence) == 1
    assert "(30 times)" in each.evidence[0].text


def test_a_witness_beside_a_cause_is_info() -> None:
    cause = lines("Cuda failure 719 'unspecified launch failure'", level="WARN", host="a")
    witness = lines("socketProgress: Connection closed by remote peer a<5>", level="WARN", host="b")
    alone = found(WARN, facts_of(witness), "peer-gone")
    beside = found(WARN, facts_of(cause + witness), "peer-gone")
    assert (alone.severity, beside.severity) == (Severity.WARNING, Severity.INFO)


def test_retries_while_a_job_starts_are_info() -> None:
    text = lines("Call to connect returned Connection refused, retrying")
    each = found(WARN, facts_of(text), "refused")
    assert (each.severity, each.confidence) == (Severity.INFO, Confidence.LOW)


def test_warnings_that_no_rule_knows_are_one_info() -> None:
    text = lines(
        "Cannot initialize CollNet, using point-to-point network instead", "something new", level="WARN"
    )
    each = found(WARN, facts_of(text), "other")
    assert each.severity is Severity.INFO
    assert len(each.evidence) == 2


def test_a_failure_that_no_rule_knows_is_a_lead_and_surer_when_the_call_came_back() -> None:
    failed = lines("NET/Fabric Making the seventh widget failed: no widgets", level="WARN")
    each = found(WARN, facts_of(failed), "failure")
    assert (each.severity, each.confidence) == (Severity.WARNING, Confidence.LOW)
    deeper = lines("net.cc:55 -> 3")
    assert found(WARN, facts_of(failed + deeper), "failure").confidence is Confidence.LOW
    each = found(WARN, facts_of(failed + deeper + lines("init.cc:1534 -> 2")), "failure")
    assert each.confidence is Confidence.MEDIUM
    assert each.evidence[-1].source == "job.log:3"


def test_a_failure_that_no_rule_knows_beside_a_known_cause_is_info() -> None:
    text = lines("Duplicate GPU detected : rank 1 and rank 0", "widgets could not be made", level="WARN")
    assert found(WARN, facts_of(text), "failure").severity is Severity.INFO


@pytest.mark.parametrize(
    ("text", "key", "severity"),
    [
        ("failed to open CUDA IPC handle : 217 peer access is not supported", "peer-access", "critical"),
        ("Call to posix_fallocate failed : No space left on device", "shared-memory", "critical"),
        ("Mismatched collective detected, please check your collective calls", "sizes", "critical"),
        ("NET/IB : Unable to open device hca_7", "rdma-device", "warning"),
        ("Call to ibv_open_device failed", "rdma-device", "warning"),
        ("Failed to open libibverbs.so[.1]", "libibverbs", "info"),
    ],
)
def test_failures_by_their_words(text: str, key: str, severity: str) -> None:
    assert found(WARN, facts_of(lines(text, level="WARN")), key).severity.value == severity


def test_the_last_error_that_a_program_repeats_is_read() -> None:
    text = (
        "[rank3]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        "[rank3]: Last error:\n[rank3]: Duplicate GPU detected : rank 3 and rank 0 both on CUDA device 1b000\n"
    )
    each = found(WARN, facts_of(text), "duplicate-gpu")
    assert each.evidence[0].source == "job.log:3"
    assert read_nccl_log("Last error:\nthe disk is full\n", "x") is None


def test_lines_of_versions_without_the_name_are_read() -> None:
    text = (
        "old-1:811:830 [2] INFO NET : Using interface eth0:10.0.0.1<0>\n"
        "old-1:811:830 [2] include/socket.h:360 WARN Call to connect failed : Connection timed out\n"
    )
    each = found(WARN, facts_of(text), "unreachable")
    assert each.scope.hosts == ("old-1",)


def test_a_log_without_warnings_is_passed_and_no_log_is_not() -> None:
    assert isinstance(outcome(WARN, facts_of(lines("Using network IB"))), Passed)
    assert isinstance(outcome(WARN, BenchFacts(origin=Origin.TABLE, label="t")), NotSeen)


def test_titles_of_long_values_stay_short() -> None:
    (each, *_) = OVERRIDES.run(facts_of(setting("NCCL_ALGO", "Ring," * 60)))
    assert isinstance(each, Found)
    assert len(each.title) <= 80

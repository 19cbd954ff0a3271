"""Risky values, judged with what is known about host and job; values that are misread."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotSeen, Passed
from distdoctor.env.checks.nccl_variable_risky import check_risky
from distdoctor.env.checks.nccl_view import nccl_number, number_has_rest
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, NvLink
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.network import NetworkFacts, RdmaPort
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.torch import TorchFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Confidence, Severity

IB = RdmaPort(device="mlx5_0", port=1, state="ACTIVE", link_layer="InfiniBand")
ROCE = RdmaPort(device="mlx5_0", port=1, state="ACTIVE", link_layer="Ethernet")
EFA = RdmaPort(device="rdmap0", port=1, state="ACTIVE", is_efa=True)
H100 = GpuDevice(index=0, name="NVIDIA H100 80GB HBM3", nvlinks=(NvLink(link=0, active=True),))
PCIE = GpuDevice(index=0, name="NVIDIA L4", nvlinks=())


def facts(
    environment: dict[str, str],
    *,
    ports: tuple[RdmaPort, ...] | None = (IB,),
    hosts: int | None = 2,
    gpus: tuple[GpuDevice, ...] | None = (H100, H100),
    nccl: str | None = "2.27.5",
    torch: str = "2.9.0",
    ranks: int | None = 16,
    paths: dict[str, str] | None = None,
) -> EnvFacts:
    return EnvFacts(
        variables=VariableFacts(environment=environment, path_errors=paths or {}),
        network=None if ports is None else NetworkFacts(rdma_ports=ports),
        gpus=None if gpus is None else GpuFacts(devices=gpus),
        scheduler=SchedulerFacts(num_nodes=hosts, world_size=ranks),
        nccl=NcclFacts(loaded_version=nccl),
        torch=TorchFacts(found=True, version=torch),
    )


def only(given: EnvFacts) -> Found:
    found = check_risky(given)
    assert len(found) == 1, [getattr(each, "title", each) for each in found]
    assert isinstance(found[0], Found)
    return found[0]


def test_infiniband_off_beside_an_active_port_is_critical_on_two_hosts() -> None:
    found = only(facts({"NCCL_IB_DISABLE": "1"}))
    assert found.severity is Severity.CRITICAL
    assert found.key == "NCCL_IB_DISABLE:risk"


@pytest.mark.parametrize(("ports", "hosts"), [(None, 2), ((IB,), 1), ((IB,), None)])
def test_infiniband_off_is_a_warning_where_less_is_known(
    ports: tuple[RdmaPort, ...] | None, hosts: int | None
) -> None:
    assert only(facts({"NCCL_IB_DISABLE": "1"}, ports=ports, hosts=hosts)).severity is Severity.WARNING


def test_infiniband_off_changes_nothing_on_a_gpu_host_without_any() -> None:
    assert only(facts({"NCCL_IB_DISABLE": "1"}, ports=())).severity is Severity.INFO


def test_infiniband_off_says_nothing_about_efa() -> None:
    (outcome,) = check_risky(facts({"NCCL_IB_DISABLE": "1"}, ports=(EFA,)))
    assert isinstance(outcome, Passed)


def test_a_host_without_gpus_does_not_speak_for_the_jobs_hosts() -> None:
    for name, value in (("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")):
        found = only(facts({name: value}, ports=(), gpus=()))
        assert found.severity is Severity.WARNING
        assert found.confidence is Confidence.MEDIUM


def test_a_word_for_a_flag_is_read_as_zero_and_not_judged_as_one() -> None:
    found = only(facts({"NCCL_IB_DISABLE": "true"}))
    assert found.key == "NCCL_IB_DISABLE:value"
    assert "as 0" in found.title


def test_a_size_with_a_unit_is_read_without_it() -> None:
    found = only(facts({"NCCL_BUFFSIZE": "8M"}))
    assert found.title.startswith("NCCL_BUFFSIZE is 8 bytes")
    assert "leading digits" in found.explanation


def test_an_unknown_algorithm_is_told_once() -> None:
    assert "does not know" in only(facts({"NCCL_ALGO": "Rnig"})).title


def test_cumem_off_costs_nothing_before_hopper_and_is_vllms_own_habit() -> None:
    assert only(facts({"NCCL_CUMEM_ENABLE": "0"})).severity is Severity.WARNING
    a100 = (GpuDevice(index=0, name="NVIDIA A100-SXM4-80GB", nvlinks=(NvLink(link=0, active=True),)),)
    assert only(facts({"NCCL_CUMEM_ENABLE": "0"}, gpus=a100)).severity is Severity.INFO
    by_vllm = only(facts({"NCCL_CUMEM_ENABLE": "0", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}))
    assert by_vllm.severity is Severity.INFO
    assert "vLLM" in by_vllm.explanation


@pytest.mark.parametrize(
    ("text", "number", "rest"),
    [("1", 1, False), ("0x10", 16, False), ("010", 8, False), ("true", 0, True), ("4M", 4, True), ("-2", -2, False),
     ("", 0, True), (" 3 ", 3, False), ("1 # on", 1, True), ("0x", 0, True), ("09", 0, True)],
)  # fmt: skip
def test_numbers_are_read_as_strtoll_does(text: str, number: int, rest: bool) -> None:
    assert nccl_number(text) == number
    assert number_has_rest(text) is rest


def test_p2p_off_is_critical_with_nvlink_and_a_warning_without() -> None:
    assert only(facts({"NCCL_P2P_DISABLE": "1"})).severity is Severity.CRITICAL
    assert only(facts({"NCCL_P2P_DISABLE": "1"}, gpus=(PCIE, PCIE))).severity is Severity.WARNING


def test_p2p_off_does_not_matter_with_one_gpu() -> None:
    (outcome,) = check_risky(facts({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, gpus=(H100,)))
    assert isinstance(outcome, Passed)


def test_sockets_by_hand_are_critical_beside_rdma() -> None:
    assert only(facts({"NCCL_NET": "Socket"})).severity is Severity.CRITICAL
    assert only(facts({"NCCL_NET": "Socket"}, ports=(EFA,))).severity is Severity.CRITICAL


@pytest.mark.parametrize("value", ["0", "32", "-1"])
def test_an_endless_timeout_is_a_warning(value: str) -> None:
    assert only(facts({"NCCL_IB_TIMEOUT": value})).severity is Severity.WARNING


def test_a_gid_index_is_a_risk_on_roce_since_2_21_only() -> None:
    assert only(facts({"NCCL_IB_GID_INDEX": "3"}, ports=(ROCE,))).severity is Severity.WARNING
    (outcome,) = check_risky(facts({"NCCL_IB_GID_INDEX": "3"}, ports=(ROCE,), nccl="2.20.5"))
    assert isinstance(outcome, Passed)


def test_nvls_off_matters_from_hopper_on() -> None:
    assert only(facts({"NCCL_NVLS_ENABLE": "0"})).severity is Severity.WARNING
    (outcome,) = check_risky(facts({"NCCL_NVLS_ENABLE": "0"}, gpus=(PCIE, PCIE)))
    assert isinstance(outcome, Passed)


def test_multi_node_nvlink_off_matters_on_its_own_gpus_only() -> None:
    gb200 = GpuDevice(index=0, name="NVIDIA GB200")
    assert only(facts({"NCCL_MNNVL_ENABLE": "0"}, gpus=(gb200, gb200))).severity is Severity.CRITICAL
    (outcome,) = check_risky(facts({"NCCL_MNNVL_ENABLE": "0"}))
    assert isinstance(outcome, Passed)


def test_an_unreadable_topology_file_is_critical() -> None:
    given = facts({"NCCL_TOPO_FILE": "/topo.xml"}, paths={"NCCL_TOPO_FILE": "No such file or directory"})
    assert only(given).severity is Severity.CRITICAL


def test_launch_blocking_can_hang_an_old_nccl() -> None:
    assert only(facts({"CUDA_LAUNCH_BLOCKING": "1"})).severity is Severity.WARNING
    assert only(facts({"CUDA_LAUNCH_BLOCKING": "1"}, nccl="2.14.3")).severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_HOSTID", "x"), ("NCCL_COMM_ID", "10.0.0.1:5000"), ("NCCL_DEBUG", "TRACE"), ("NCCL_CUMEM_ENABLE", "0"),
        ("NCCL_SHM_DISABLE", "1"), ("NCCL_PROTO", "LL128"), ("NCCL_MAX_NCHANNELS", "1"), ("NCCL_LAUNCH_MODE", "GROUP"),
        ("CUDA_INJECTION64_PATH", "/x.so"), ("TORCH_DISTRIBUTED_DEBUG", "detail"), ("TORCH_NCCL_BLOCKING_WAIT", "yes"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"), ("NVIDIA_TF32_OVERRIDE", "0"), ("NCCL_BUFFSIZE", "1024"),
        ("NCCL_GDR_FLUSH_DISABLE", "1"), ("CUDA_DEVICE_MAX_CONNECTIONS", "64"), ("NCCL_ALGO", "Ring"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"), ("NCCL_DEBUG", "WARNING"), ("NCCL_SOCKET_FAMILY", "inet"),
        ("NCCL_SOCKET_IFNAME", '"eth0"'),
    ],
)  # fmt: skip
def test_each_risk_is_a_warning(name: str, value: str) -> None:
    assert only(facts({name: value})).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_NCCL_BLOCKING_WAIT", "on"), ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "ten"), ("TORCH_DISTRIBUTED_DEBUG", "1"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segment:True"), ("NCCL_ALGO", "Rings"), ("NCCL_PROTO", "Simpel"),
    ],
)  # fmt: skip
def test_what_its_reader_refuses_is_critical(name: str, value: str) -> None:
    found = [
        each
        for each in check_risky(facts({name: value}))
        if isinstance(each, Found) and each.key.endswith("value")
    ]
    assert [each.severity for each in found] == [Severity.CRITICAL]


def test_good_values_pass() -> None:
    good = {
        "NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "=mlx5_0", "NCCL_IB_TIMEOUT": "22", "NCCL_ALGO": "^Tree", "NCCL_NET": "IB",
        "NCCL_CROSS_NIC": "1", "NCCL_BUFFSIZE": "8388608", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "NCCL_P2P_LEVEL": "NVL",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True,roundup_power2_divisions:[256:1,512:2]", "NCCL_NVLS_ENABLE": "1",
        "OMP_NUM_THREADS": "8", "NCCL_NET_GDR_LEVEL": "SYS", "TORCH_DISTRIBUTED_DEBUG": "INFO", "NCCL_IB_DISABLE": "0",
    }  # fmt: skip
    (outcome,) = check_risky(facts(good))
    assert isinstance(outcome, Passed)


def test_variables_that_were_not_read_are_not_passed() -> None:
    (outcome,) = check_risky(EnvFacts())
    assert isinstance(outcome, NotSeen)

"""Names of variables: slips, names that nobody knows, names that others read."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotSeen, Passed
from distdoctor.env.checks.nccl_variable_names import check_typos, check_unknown
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Confidence, Severity


def facts(nccl: str | None = "2.27.5", **environment: str) -> EnvFacts:
    return EnvFacts(
        host_name="host-a",
        variables=VariableFacts(environment=environment),
        nccl=NcclFacts(loaded_version=nccl),
    )


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("NCCL_SOCKET_IFNAM", "NCCL_SOCKET_IFNAME"),
        ("NCCL_SOKCET_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IFNAME", "NCCL_SOCKET_IFNAME"),
        ("NCCL_IFNAME_SOCKET", "NCCL_SOCKET_IFNAME"),
        ("NCCL_DISABLE_IB", "NCCL_IB_DISABLE"),
        ("NCCL_IB_HCAS", "NCCL_IB_HCA"),
        ("NCCL_BUFFER_SIZE", "NCCL_BUFFSIZE"),
        ("NCCL_DEBUG_SUBSYSTEM", "NCCL_DEBUG_SUBSYS"),
        ("NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("TORCH_NCCL_DEBUG", "NCCL_DEBUG"),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
        ("GLOO_SOCKET_IFNAMES", "GLOO_SOCKET_IFNAME"),
        ("PYTORCH_CUDA_ALLOCATOR_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "PYTORCH_CUDA_ALLOC_CONF"),
        ("CUDA_VISIBLE_DEVICE", "CUDA_VISIBLE_DEVICES"),
        ("CUDA_DEVICE_MAX_CONNECTION", "CUDA_DEVICE_MAX_CONNECTIONS"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("NCCL_DEBUG ", "NCCL_DEBUG"),
        ("export NCCL_DEBUG", "NCCL_DEBUG"),
        ("NCCL_NVLS_DISABLE", "NCCL_NVLS_ENABLE"),
    ],
)
def test_a_slip_is_named_with_what_was_meant(wrong: str, right: str) -> None:
    (found,) = check_typos(facts(**{wrong: "1"}))
    assert isinstance(found, Found)
    assert right in found.evidence[0].expected
    assert found.severity is Severity.WARNING
    assert found.confidence is not Confidence.LOW
    assert len(found.title) <= 80


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_VERSION", "NCCL_ROOT", "NCCL_HOME", "NCCL_INCLUDE_DIR", "NCCL_TESTS_SPLIT", "NCCL_TOPO_DUMP_FILE",
        "NCCL_GPUDIRECTTCPX_CTRL_DEV", "NCCL_FASTRAK_NUM_FLOWS", "OFI_NCCL_PROTOCOL", "NCCL_IBEXT_DISABLE",
        "NCCL_ASYNC_ERROR_HANDLING", "CUDA_HOME", "CUDA_PATH", "CUDA_VERSION", "CUDA_TOOLKIT_ROOT_DIR",
        "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_IB_HCA", "TORCH_CUDA_ARCH_LIST", "FI_EFA_FORK_SAFE", "UCX_TLS",
        "NVIDIA_PRODUCT_NAME", "LD_RUN_PATH", "MASTER_HOST",
    ],
)  # fmt: skip
def test_a_real_name_is_no_slip(name: str) -> None:
    (outcome,) = check_typos(facts(**{name: "1"}))
    assert isinstance(outcome, Passed)
    (outcome,) = check_unknown(facts(**{name: "1"}))
    assert isinstance(outcome, Passed)


def test_a_slip_beside_the_right_name_is_only_worth_knowing() -> None:
    (found,) = check_typos(facts(NCCL_SOCKET_IFNAM="eth0", NCCL_SOCKET_IFNAME="eth0"))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO


@pytest.mark.parametrize("version", ["2.31.2", None])
def test_a_newer_or_unknown_nccl_lowers_the_confidence(version: str | None) -> None:
    (found,) = check_typos(facts(version, NCCL_SOCKET_IFNAM="eth0"))
    assert isinstance(found, Found)
    assert found.confidence is Confidence.MEDIUM
    assert "2.30.7" in found.explanation


def test_unknown_names_are_told_together_as_info() -> None:
    (found,) = check_unknown(facts(NCCL_FROBNICATE="1", TORCH_NCCL_WONDERFUL="2", NCCL_TIMEOUT="3600"))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert len(found.evidence) == 3
    assert "init_process_group(timeout=" in found.explanation


def test_an_unknown_name_on_a_newer_nccl_is_our_gap() -> None:
    (found,) = check_unknown(facts("2.32.3", NCCL_FROBNICATE="1"))
    assert isinstance(found, Found)
    assert found.confidence is Confidence.LOW
    assert "catalog" in found.explanation


def test_variables_that_were_not_read_are_not_passed() -> None:
    for check in (check_typos, check_unknown):
        (outcome,) = check(EnvFacts())
        assert isinstance(outcome, NotSeen)

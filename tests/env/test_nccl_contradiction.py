"""Settings that fight, and pairs that only look as if they did."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotSeen, Passed
from distdoctor.env.checks.nccl_variable_contradiction import check_contradictions
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.variables import Setting, VariableFacts
from distdoctor.report.model import Severity


def facts(
    environment: dict[str, str], settings: tuple[Setting, ...] = (), num_gpus: int | None = None
) -> EnvFacts:
    devices = None if num_gpus is None else tuple(GpuDevice(index=index) for index in range(num_gpus))
    return EnvFacts(
        variables=VariableFacts(environment=environment, settings=settings),
        gpus=GpuFacts(devices=devices),
    )


@pytest.mark.parametrize(
    ("environment", "severity"),
    [
        ({"NCCL_NET": "IB", "NCCL_IB_DISABLE": "1"}, Severity.CRITICAL),
        ({"NCCL_IB_HCA": "mlx5", "NCCL_IB_DISABLE": "1"}, Severity.WARNING),
        ({"NCCL_ALGO": "NVLS", "NCCL_NVLS_ENABLE": "0"}, Severity.CRITICAL),
        ({"NCCL_ALGO": "NVLS,Ring", "NCCL_NVLS_ENABLE": "0"}, Severity.WARNING),
        ({"NCCL_NVLS_ENABLE": "1", "NCCL_CUMEM_ENABLE": "0"}, Severity.WARNING),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}, Severity.WARNING),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": "NVL"}, Severity.WARNING),
        ({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "8"}, Severity.WARNING),
        ({"NCCL_NSOCKS_PERTHREAD": "16", "NCCL_SOCKET_NTHREADS": "8"}, Severity.WARNING),
        ({"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "ib0"}, Severity.INFO),
        ({"NCCL_SOCKET_IFNAME": "eth", "GLOO_SOCKET_IFNAME": "^docker0"}, Severity.WARNING),
        ({"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "0,1"}, Severity.WARNING),
        ({"NVIDIA_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "4,5"}, Severity.CRITICAL),
        ({"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": "a:2"}, Severity.WARNING),
        ({"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync,expandable_segments:True"}, Severity.WARNING),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True", "NCCL_CUMEM_ENABLE": "0"}, Severity.INFO),
        ({"TORCH_FR_BUFFER_SIZE": "0", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"}, Severity.WARNING),
    ],
)
def test_a_pair_that_fights_is_told(environment: dict[str, str], severity: Severity) -> None:
    found = [each for each in check_contradictions(facts(environment)) if isinstance(each, Found)]
    assert severity in [each.severity for each in found]
    assert all(len(each.title) <= 80 for each in found)


@pytest.mark.parametrize(
    "environment",
    [
        {"NCCL_NET": "IB", "NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "mlx5"},
        {"NCCL_SOCKET_IFNAME": "eth", "GLOO_SOCKET_IFNAME": "eth0"},
        {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0"},
        {"NCCL_SOCKET_IFNAME": "^docker0,lo", "GLOO_SOCKET_IFNAME": "eth0"},
        {"NCCL_ALGO": "^NVLS", "NCCL_NVLS_ENABLE": "0"},
        {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "6,7"},
        {"NVIDIA_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "0,1"},
        {"NCCL_MIN_NCHANNELS": "16"},
        {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
        {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000"},
    ],
)
def test_what_goes_together_passes(environment: dict[str, str]) -> None:
    (outcome,) = check_contradictions(facts(environment))
    assert isinstance(outcome, Passed)


def test_more_gpus_than_the_container_was_given_refute_the_clash() -> None:
    given = facts({"NVIDIA_VISIBLE_DEVICES": "4,5", "CUDA_VISIBLE_DEVICES": "4,5"}, num_gpus=8)
    (outcome,) = check_contradictions(given)
    assert isinstance(outcome, Passed)


def test_a_file_that_loses_to_the_environment_is_told() -> None:
    setting = Setting(
        name="NCCL_DEBUG", value="WARN", origin="environment", overridden=("/etc/nccl.conf=INFO",)
    )
    (found,) = check_contradictions(facts({"NCCL_DEBUG": "WARN"}, (setting,)))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert "/etc/nccl.conf=INFO" in found.explanation


def test_variables_that_were_not_read_are_not_passed() -> None:
    (outcome,) = check_contradictions(EnvFacts())
    assert isinstance(outcome, NotSeen)

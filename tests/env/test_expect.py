"""What a site expects of a host, against what the host has."""

from __future__ import annotations

import pytest

from distdoctor.env.expect import compare_with_baseline, compare_with_expected, parse_expect
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.network import NetworkFacts, RdmaPort
from distdoctor.errors import UsageError
from distdoctor.report.model import CheckState, Fact, Report, Severity, Status, Tool, Verdict


def host(num_gpus: int = 8, num_lost: int = 0, num_ib: int = 8, driver: str = "570.86.15") -> EnvFacts:
    devices = tuple(
        GpuDevice(index=each, lost=each < num_lost, name="NVIDIA H100 80GB HBM3") for each in range(num_gpus)
    )
    ports = tuple(
        RdmaPort(device=f"mlx5_{each}", port=1, state="ACTIVE", link_layer="InfiniBand")
        for each in range(num_ib)
    )
    return EnvFacts(
        host_name="host-a",
        gpus=GpuFacts(devices=devices, driver_version=driver),
        network=NetworkFacts(
            rdma_ports=(*ports, RdmaPort(device="mlx5_9", port=1, state="DOWN", link_layer="InfiniBand")),
            interfaces=(),
        ),
    )


def states(facts: EnvFacts, text: str) -> list[CheckState]:
    return [each.state for each in compare_with_expected(facts, parse_expect(text), "--expect").checks]


def test_a_host_as_expected_passes() -> None:
    assert states(host(), "gpus=8,ib=8,driver=570.,gpu_type=h100") == [CheckState.PASSED] * 4


@pytest.mark.parametrize(
    ("facts", "text", "title"),
    [
        (host(num_gpus=7), "gpus=8", "usable GPUs: 7, expected 8"),
        (host(num_lost=1), "gpus=8", "usable GPUs: 7, expected 8"),
        (host(num_ib=7), "ib=8", "active InfiniBand ports: 7, expected 8"),
        (host(driver="535.54.03"), "driver=570.", "NVIDIA driver: 535.54.03, expected 570."),
        (host(), "gpu_type=b200", "GPU model: NVIDIA H100 80GB HBM3, expected b200"),
    ],
)
def test_a_host_that_has_something_else_is_critical(facts: EnvFacts, text: str, title: str) -> None:
    (finding,) = compare_with_expected(facts, parse_expect(text), "--expect").findings
    assert finding.severity is Severity.CRITICAL
    assert finding.title == title


def test_a_driver_prefix_ends_at_a_dot() -> None:
    assert states(host(driver="5700.1"), "driver=570") == [CheckState.FOUND]
    assert states(host(driver="570.1"), "driver=570") == [CheckState.PASSED]


def test_what_could_not_be_read_is_not_a_pass() -> None:
    outcome = compare_with_expected(EnvFacts(host_name="host-a"), {"gpus": "8"}, "--expect")
    assert outcome.findings == ()
    assert outcome.skipped[0].essential


@pytest.mark.parametrize("text", ["gpus", "gpus=", "cards=8", "gpus=eight"])
def test_a_malformed_expectation_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_expect(text)


def test_the_baseline_names_what_changed_on_the_host_and_not_in_the_shell() -> None:
    baseline = Report(
        tool=Tool(name="distdoctor", version="0", command="env"),
        verdict=Verdict(status=Status.OK, title="", summary=""),
        facts=(
            Fact(key="gpus.driver_version", value="580.95.05"),
            Fact(key="variables.environment.NCCL_DEBUG", value="INFO"),
            Fact(key="gpus.devices.0.name", value="NVIDIA H100 80GB HBM3"),
        ),
    )
    (finding,) = compare_with_baseline(host(), baseline, "good.json").findings
    assert finding.fingerprint == "host-unlike-baseline:gpus.driver_version"
    assert finding.evidence[0].expected == "580.95.05"

"""ACS and IOMMU between GPUs: on bare metal only, by port, by NVLink."""

from __future__ import annotations

from typing import Any

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.env.checks.pcie_isolation import check_acs, check_iommu
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, NvLink
from distdoctor.env.facts.host import HostFacts
from distdoctor.report.model import Confidence, Severity, SkipCause

SWITCH, ROOT = "0000:02:00.0", "0000:00:01.0"
GPU_NODES = {"0000:03:00.0": 0, "0000:04:00.0": 0}
NVLINKS = (NvLink(link=0, active=True),)


def facts(nvlinks: tuple[NvLink, ...] | None = (), **host: Any) -> EnvFacts:
    host = {
        "virtualisation": "none",
        "acs_relevant_bridges": (ROOT, SWITCH),
        "acs_port_types": {ROOT: "root port", SWITCH: "switch downstream"},
        "gpu_numa_nodes": GPU_NODES,
        "architecture": "x86_64",
        **host,
    }
    devices = tuple(
        GpuDevice(index=index, pci=f"00000000:0{index + 3}:00.0", nvlinks=nvlinks) for index in range(2)
    )
    return EnvFacts(host=HostFacts(**host), gpus=GpuFacts(devices=devices))


@pytest.mark.parametrize(
    ("nvlinks", "severity", "confidence"),
    [
        ((), Severity.CRITICAL, Confidence.HIGH),
        (NVLINKS, Severity.WARNING, Confidence.HIGH),
        (None, Severity.WARNING, Confidence.MEDIUM),
    ],
)
def test_acs_on_a_switch_is_judged_by_nvlink(
    nvlinks: tuple[NvLink, ...] | None, severity: Severity, confidence: Confidence
) -> None:
    (found,) = check_acs(facts(nvlinks, acs_bridges={SWITCH: 0x1D, ROOT: 0}))
    assert isinstance(found, Found)
    assert (found.severity, found.confidence) == (severity, confidence)
    assert "SrcValid+ ReqRedir+" in found.evidence[0].text
    assert "setpci -s 0000:02:00.0" in (found.actions[0].command or "")


@pytest.mark.parametrize("bridges", [{ROOT: 0x1D, SWITCH: 0}, {ROOT: 0, SWITCH: 0x01}])
def test_acs_at_root_ports_or_without_redirection_is_less(bridges: dict[str, int]) -> None:
    (found,) = check_acs(facts(acs_bridges=bridges))
    assert isinstance(found, Found)
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)


@pytest.mark.parametrize("bridges", [{}, {SWITCH: 0, ROOT: 0}, {SWITCH: 0x40}, {"0000:aa:00.0": 0x1D}])
def test_acs_off_or_elsewhere_is_passed(bridges: dict[str, int]) -> None:
    (outcome,) = check_acs(facts(acs_bridges=bridges))
    assert isinstance(outcome, Passed)


def test_in_a_virtual_machine_neither_is_judged() -> None:
    machine = facts(
        virtualisation="kvm", acs_bridges={SWITCH: 0x1D}, device_iommu_types=dict.fromkeys(GPU_NODES, "DMA")
    )
    assert isinstance(check_acs(machine)[0], NotApplicable)
    assert isinstance(check_iommu(machine)[0], NotApplicable)


def test_without_root_acs_is_not_seen() -> None:
    unread = Unread(cause=SkipCause.NEEDS_ROOT, reason="64 bytes")
    (outcome,) = check_acs(facts(unread={"acs_bridges": unread}))
    assert outcome == NotSeen(unread=unread)


def test_when_nobody_knows_whether_it_is_a_machine_nothing_is_judged() -> None:
    for check in (check_acs, check_iommu):
        assert isinstance(check(facts(virtualisation=None))[0], NotSeen)
        assert isinstance(check(EnvFacts())[0], NotSeen)


def test_without_bridges_to_gpus_acs_does_not_matter() -> None:
    (outcome,) = check_acs(facts(acs_relevant_bridges=(), acs_bridges={}))
    assert isinstance(outcome, NotApplicable)


@pytest.mark.parametrize("kind", ["DMA", "DMA-FQ"])
def test_a_translating_iommu_between_gpus_is_found(kind: str) -> None:
    (found,) = check_iommu(
        facts(device_iommu_types=dict.fromkeys(GPU_NODES, kind), kernel_command_line="ro intel_iommu=on")
    )
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert "intel_iommu=on" in found.evidence[1].text
    assert [gpu.index for gpu in found.scope.gpus] == [0, 1]


def test_on_arm_a_translating_iommu_is_an_info() -> None:
    (found,) = check_iommu(facts(architecture="aarch64", device_iommu_types=dict.fromkeys(GPU_NODES, "DMA")))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO


@pytest.mark.parametrize("types", [{}, dict.fromkeys(GPU_NODES, "identity"), {"0000:05:00.0": "DMA"}])
def test_pass_through_and_no_iommu_are_passed(types: dict[str, str]) -> None:
    (outcome,) = check_iommu(facts(device_iommu_types=types))
    assert isinstance(outcome, Passed)


def test_one_gpu_has_nobody_to_talk_to() -> None:
    (outcome,) = check_iommu(
        facts(gpu_numa_nodes={"0000:03:00.0": 0}, device_iommu_types={"0000:03:00.0": "DMA"})
    )
    assert isinstance(outcome, NotApplicable)


def test_unread_iommu_domains_are_not_passed() -> None:
    assert isinstance(check_iommu(facts())[0], NotSeen)

"""What holds for every check of GPUs: silent on machines that are well, honest about what was not seen."""

from __future__ import annotations

import dataclasses

import pytest

from distdoctor.env.checks.all import ENV_CHECKS
from distdoctor.env.checks.base import Check, run_check
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, NvmlState
from distdoctor.env.facts.host import ContainerFacts
from distdoctor.report.model import CheckState, SkipCause
from gpu_builders import env, h100, hgx, host_gpus, links, pairs, pasted

# These judge the driver, the host or pairs, and not a field of each GPU.
OF_THE_HOST = {"gpu-driver-unreachable", "gpu-lost", "gpu-smi-version", "gpu-fabric", "gpu-imex", "gpu-p2p"}

GPU_CHECKS = [
    check
    for check in ENV_CHECKS
    if check.run.__module__.startswith("distdoctor.env.checks.gpu_")
    and check.id not in ("gpu-vendors-mixed", "rocm-runtime-missing", "gpu-nic-affinity")
]
every_check = pytest.mark.parametrize("check", GPU_CHECKS, ids=lambda check: check.id)


def test_there_are_23_checks_of_gpus() -> None:
    assert len([check for check in GPU_CHECKS if check.id.startswith("gpu-")]) == 23


@every_check
def test_eight_h100_that_are_well_give_no_finding_and_no_skip(check: Check) -> None:
    findings, skipped, result = run_check(check, env(hgx()))
    assert findings == []
    assert skipped == []
    assert result.state in (CheckState.PASSED, CheckState.NOT_APPLICABLE)


def busy(device: GpuDevice) -> GpuDevice:
    return dataclasses.replace(
        device,
        utilisation_pct=100,
        power_w=690.0,
        throttle_reasons=("sw_power_cap",),
        sm_clock_mhz=1665 + device.index,
        temperature_c=70,
        temperature_margin_c=17,
        memory_used_bytes=70 << 30,
    )


@every_check
def test_eight_busy_h100_in_a_container_give_no_finding(check: Check) -> None:
    """At the power limit, memory full, processes hidden, PCI bus of the whole host."""
    gpus = host_gpus(*(busy(h100(index)) for index in range(4)))
    gpus = dataclasses.replace(gpus, num_pci_gpus=8, num_nvswitches=0, fabric_manager=None)
    findings, _, _ = run_check(check, env(gpus, container=ContainerFacts(kind="docker")))
    assert findings == []


@every_check
def test_other_machines_that_are_well_give_no_finding(check: Check) -> None:
    """Four A100 on one board, four L40S on PCIe, one A10 in a virtual machine, GB200 with IMEX."""
    a100 = [
        h100(
            index, name="NVIDIA A100-SXM4-80GB", compute_capability=(8, 0), nvlinks=links(12, speed_gbps=25.0)
        )
        for index in range(4)
    ]
    l40s = [h100(index, name="NVIDIA L40S", compute_capability=(8, 9), nvlinks=()) for index in range(4)]
    a10 = h100(0, name="NVIDIA A10", nvlinks=(), persistence_mode=True, fabric_state=0)
    gb200 = [h100(index, name="NVIDIA GB200", nvlinks=links(18, speed_gbps=53.125)) for index in range(4)]
    for facts in (
        host_gpus(*a100, pair_links=pairs(4, "NV4"), num_nvswitches=0, fabric_manager="not installed"),
        host_gpus(*l40s, pair_links=pairs(4, "NODE"), num_nvswitches=0, fabric_manager="failed"),
        host_gpus(a10, pair_links=(), num_nvswitches=0, fabric_manager=None),
        host_gpus(
            *gb200, num_nvswitches=0, fabric_manager="not installed", imex_state="UP", num_imex_channels=1
        ),
    ):
        findings, _, _ = run_check(check, env(facts))
        assert findings == []


@every_check
def test_a_host_without_nvidia_gpus_is_not_applicable(check: Check) -> None:
    gpus = GpuFacts(nvml_state=NvmlState.NO_LIBRARY, num_pci_gpus=0, num_device_nodes=0, devices=())
    _, _, result = run_check(check, env(gpus))
    assert result.state is CheckState.NOT_APPLICABLE
    assert "no NVIDIA GPU here" in result.detail


@every_check
def test_amd_gpus_are_not_judged(check: Check) -> None:
    amd = GpuDevice(index=0, vendor="amd", pci="0000:c1:00.0")
    gpus = GpuFacts(
        nvml_state=NvmlState.NO_LIBRARY, num_pci_gpus=0, amd_pci_gpus=("0000:c1:00.0",), devices=(amd,)
    )
    findings, _, result = run_check(check, env(gpus))
    assert findings == []
    assert result.state is not CheckState.PASSED


@every_check
def test_evidence_about_other_things_is_skipped(check: Check) -> None:
    _, skipped, result = run_check(check, EnvFacts(origin="ibstat.txt"))
    assert result.state is CheckState.SKIPPED
    assert not any(skip.essential for skip in skipped)


@every_check
def test_a_driver_that_does_not_answer_is_told_once(check: Check) -> None:
    """One finding, and every other check is skipped with NVML's words."""
    why = Unread(cause=SkipCause.FAILED, reason="NVML: Driver Not Loaded (9)")
    unread = dict.fromkeys(("devices", "driver_version", "pair_links"), why)
    gpus = GpuFacts(
        nvml_state=NvmlState.DRIVER_NOT_LOADED,
        num_pci_gpus=1,
        pci_gpus=("0000:1b:00.0",),
        num_nvswitches=0,
        unread=unread,
    )
    findings, _, result = run_check(check, env(gpus))
    if check.id == "gpu-driver-unreachable":
        assert len(findings) == 1
    else:
        assert findings == []
        assert result.state in (CheckState.SKIPPED, CheckState.NOT_APPLICABLE)


@pytest.mark.parametrize(
    "check", [check for check in GPU_CHECKS if check.id not in OF_THE_HOST], ids=lambda check: check.id
)
def test_a_gpu_of_which_nothing_is_known_does_not_pass(check: Check) -> None:
    _, skipped, result = run_check(check, pasted(GpuDevice(index=0), GpuDevice(index=1)))
    assert result.state is CheckState.SKIPPED
    assert skipped[0].cause is SkipCause.NOT_IN_EVIDENCE


@every_check
def test_a_lost_gpu_is_judged_by_nobody_else(check: Check) -> None:
    lost = GpuDevice(
        index=3, lost=True, lost_reason="GPU is lost (NVML 15 GPU_IS_LOST)", pci="00000000:61:00.0"
    )
    findings, _, _ = run_check(check, env(hgx(lost)))
    assert [finding.id for finding in findings] == (["gpu-lost"] if check.id == "gpu-lost" else [])


@every_check
def test_a_whole_section_of_nothing_raises_nothing(check: Check) -> None:
    for facts in (env(GpuFacts()), pasted(), env(GpuFacts(devices=())), env(host_gpus())):
        findings, _, _ = run_check(check, facts)
        assert findings == []

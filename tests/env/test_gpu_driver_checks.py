"""The driver that does not answer, GPUs that are lost, versions that differ."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.env.checks.gpu_driver import check_driver
from distdoctor.env.checks.gpu_lost import check_lost
from distdoctor.env.checks.gpu_recovery import check_recovery_action
from distdoctor.env.checks.gpu_smi_version import check_smi_version
from distdoctor.env.checks.kernel_xid import check_xid
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import UNKNOWN_INDEX, GpuDevice, GpuFacts, NvmlState
from distdoctor.env.facts.host import ContainerFacts
from distdoctor.env.facts.kernel_log import KernelEvent, KernelEventKind, KernelLogFacts
from distdoctor.report.model import Confidence, Severity, SkipCause
from gpu_builders import env, h100, hgx, pasted

DOCKER = ContainerFacts(kind="docker")
DOCKER_WITH_GPUS = ContainerFacts(kind="docker", visible_devices="all")


def broken(state: NvmlState, **changes: object) -> GpuFacts:
    """A host with one GPU on the bus whose driver does not answer."""
    fields: dict[str, object] = {
        "nvml_state": state,
        "nvml_error": f"words of NVML about {state.value}",
        "num_pci_gpus": 1,
        "pci_gpus": ("0000:1b:00.0",),
        "num_device_nodes": 1,
        **changes,
    }
    return GpuFacts(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "state",
    [
        NvmlState.NO_LIBRARY,
        NvmlState.DRIVER_NOT_LOADED,
        NvmlState.VERSION_MISMATCH,
        NvmlState.NO_PERMISSION,
        NvmlState.UNKNOWN_ERROR,
        NvmlState.HUNG,
    ],
)
def test_every_failure_is_critical_with_nvmls_words(state: NvmlState) -> None:
    (found,) = check_driver(env(broken(state)))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert any("words of NVML" in each.text for each in found.evidence)
    assert found.actions


def test_a_mismatch_names_both_versions_and_holds_the_packages() -> None:
    gpus = broken(
        NvmlState.VERSION_MISMATCH, kernel_module_version="535.183.01", nvml_library_version="535.216.03"
    )
    (found,) = check_driver(env(gpus))
    assert isinstance(found, Found)
    assert "535.183.01" in found.title
    assert "535.216.03" in found.title
    commands = " ".join(action.command or "" for action in found.actions)
    assert "reboot" in commands
    assert "hold" in commands


def test_an_unknown_error_in_a_container_tells_of_the_device_cgroup() -> None:
    (found,) = check_driver(env(broken(NvmlState.UNKNOWN_ERROR), container=DOCKER_WITH_GPUS))
    assert isinstance(found, Found)
    assert "daemon-reload" in found.explanation


def test_a_driver_that_lists_no_gpu_says_so() -> None:
    gpus = GpuFacts(nvml_state=NvmlState.UNKNOWN_ERROR, nvml_error="No devices were found")
    (found,) = check_driver(EnvFacts(origin="ticket.txt", gpus=gpus))
    assert isinstance(found, Found)
    assert "lists no GPU" in found.title


def test_nouveau_is_named_when_it_holds_the_gpu() -> None:
    gpus = broken(NvmlState.DRIVER_NOT_LOADED, pci_drivers={"0000:1b:00.0": "nouveau"})
    (found,) = check_driver(env(gpus))
    assert isinstance(found, Found)
    assert "nouveau" in found.title


def test_gpus_handed_to_virtual_machines_need_no_driver_here() -> None:
    gpus = broken(NvmlState.DRIVER_NOT_LOADED, pci_drivers={"0000:1b:00.0": "vfio-pci"}, num_device_nodes=0)
    (outcome,) = check_driver(env(gpus))
    assert isinstance(outcome, NotApplicable)


def test_a_driver_package_on_a_host_without_gpus_is_no_fault() -> None:
    gpus = GpuFacts(nvml_state=NvmlState.DRIVER_NOT_LOADED, num_pci_gpus=0, num_device_nodes=0)
    (outcome,) = check_driver(env(gpus))
    assert isinstance(outcome, NotApplicable)


def test_a_container_that_was_given_no_gpu_is_no_fault() -> None:
    """It sees the host's PCI bus all the same."""
    gpus = broken(NvmlState.NO_LIBRARY, num_device_nodes=0, num_pci_gpus=8)
    (outcome,) = check_driver(env(gpus, container=DOCKER))
    assert isinstance(outcome, NotApplicable)


def test_a_container_with_devices_but_no_library_lacks_a_capability() -> None:
    (found,) = check_driver(env(broken(NvmlState.NO_LIBRARY), container=DOCKER))
    assert isinstance(found, Found)
    assert "NVIDIA_DRIVER_CAPABILITIES" in (found.actions[0].command or "")


def test_a_binding_that_cannot_be_loaded_is_not_seen() -> None:
    why = Unread(cause=SkipCause.FAILED, reason="nvidia-ml-py is not installed")
    gpus = GpuFacts(num_pci_gpus=1, unread={"nvml_state": why})
    assert check_driver(env(gpus)) == [NotSeen(unread=why)]


def test_a_pasted_error_without_the_pci_bus_is_less_sure() -> None:
    facts = EnvFacts(origin="ticket.txt", gpus=GpuFacts(nvml_state=NvmlState.DRIVER_NOT_LOADED))
    (found,) = check_driver(facts)
    assert isinstance(found, Found)
    assert found.confidence is Confidence.MEDIUM


# gpu-lost


def test_a_lost_gpu_is_named_with_index_and_address() -> None:
    lost = h100(3, lost=True, lost_reason="GPU is lost (NVML 15 GPU_IS_LOST)")
    (found,) = check_lost(env(hgx(lost)))
    assert isinstance(found, Found)
    assert found.title == "GPU 3 (00000000:61:00.0) is lost"
    assert found.severity is Severity.CRITICAL
    assert (found.scope.gpus[0].index, found.scope.gpus[0].pci) == (3, "00000000:61:00.0")


def test_a_gpu_that_needs_a_reset_says_so() -> None:
    lost = h100(1, lost=True, lost_reason="GPU requires restart (NVML 16 RESET_REQUIRED)")
    (found,) = check_lost(env(hgx(lost)))
    assert isinstance(found, Found)
    assert "needs a reset" in found.title


def test_a_gpu_on_the_bus_that_nvml_does_not_list_is_named() -> None:
    gpus = hgx()
    assert gpus.devices is not None
    seven = hgx(devices=gpus.devices[:7])
    (found,) = check_lost(env(seven))
    assert isinstance(found, Found)
    assert found.confidence is Confidence.HIGH
    assert "0000:df:00.0" in found.title
    assert [each.pci for each in found.scope.gpus] == ["0000:df:00.0"]


def test_gpus_that_the_job_was_not_given_are_not_lost() -> None:
    """Slurm's device cgroup: eight on the bus, two in the job, six device files that may not be opened."""
    gpus = hgx()
    assert gpus.devices is not None
    (outcome,) = check_lost(env(hgx(devices=gpus.devices[:2], num_forbidden_nodes=6)))
    assert isinstance(outcome, Passed)


def test_gpus_handed_to_virtual_machines_are_not_lost() -> None:
    gpus = hgx()
    assert gpus.devices is not None
    drivers = {**gpus.pci_drivers, "0000:df:00.0": "vfio-pci"}
    (outcome,) = check_lost(env(hgx(devices=gpus.devices[:7], pci_drivers=drivers)))
    assert isinstance(outcome, Passed)


def test_in_a_container_the_hosts_bus_is_no_measure() -> None:
    gpus = hgx()
    assert gpus.devices is not None
    two = hgx(devices=gpus.devices[:2], num_device_nodes=2)
    assert not any(isinstance(each, Found) for each in check_lost(env(two, container=DOCKER)))


def test_in_a_container_a_device_file_without_its_gpu_is_found() -> None:
    gpus = hgx()
    assert gpus.devices is not None
    facts = env(hgx(devices=gpus.devices[:7], num_device_nodes=8), container=DOCKER)
    found = [each for each in check_lost(facts) if isinstance(each, Found)]
    assert len(found) == 1
    assert found[0].confidence is Confidence.MEDIUM


def test_a_table_says_nothing_about_gpus_that_it_does_not_list() -> None:
    passed, unseen = check_lost(pasted(h100(0), h100(1)))
    assert isinstance(passed, Passed)
    assert isinstance(unseen, NotSeen)


def log(*events: KernelEvent) -> KernelLogFacts:
    return KernelLogFacts(events=events, source="dmesg.txt")


XID_79 = KernelEvent(
    kind=KernelEventKind.XID,
    code=79,
    pci="0000:61:00",
    text="NVRM: Xid (PCI:0000:61:00): 79, fallen off the bus.",
)
OFF_BUS = KernelEvent(
    kind=KernelEventKind.OFF_BUS,
    pci="0000:61:00.0",
    text="NVRM: GPU 0000:61:00.0: GPU has fallen off the bus.",
)


def ids(facts: EnvFacts) -> list[str]:
    checks = {"gpu-lost": check_lost, "kernel-xid": check_xid}
    return [name for name, check in checks.items() for each in check(facts) if isinstance(each, Found)]


def test_one_loss_is_told_once_by_nvml_and_log_together() -> None:
    lost = h100(3, lost=True, lost_reason="GPU is lost (NVML 15 GPU_IS_LOST)")
    facts = env(hgx(lost), kernel_log=log(XID_79, OFF_BUS))
    assert ids(facts) == ["gpu-lost"]
    (found,) = check_lost(facts)
    assert isinstance(found, Found)
    assert any("Xid" in each.text for each in found.evidence)


def test_one_loss_is_told_once_by_the_log_alone() -> None:
    assert ids(EnvFacts(origin="dmesg.txt", kernel_log=log(XID_79, OFF_BUS))) == ["kernel-xid"]
    assert ids(EnvFacts(origin="dmesg.txt", kernel_log=log(OFF_BUS))) == ["gpu-lost"]


def test_a_gpu_lost_by_its_uuid_is_the_one_of_the_xid() -> None:
    lost = GpuDevice(index=UNKNOWN_INDEX, lost=True, uuid="GPU-1", lost_reason="GPU is lost")
    facts = EnvFacts(origin="t", gpus=GpuFacts(devices=(lost,)), kernel_log=log(XID_79))
    assert ids(facts) == ["kernel-xid"]


# gpu-recovery-action


@pytest.mark.parametrize(
    ("action", "word"), [(1, "reset"), (2, "reboot"), (4, "drain and a reset"), (7, "reboot")]
)
def test_what_the_driver_asks_for_is_critical(action: int, word: str) -> None:
    (found,) = check_recovery_action(env(hgx(h100(5, recovery_action=action))))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert word in found.title
    assert found.scope.gpus[0].index == 5


def test_an_action_from_the_future_is_a_warning() -> None:
    (found,) = check_recovery_action(env(hgx(h100(5, recovery_action=42))))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


# gpu-smi-version


def test_wsl_with_a_linux_driver_inside_is_found() -> None:
    facts = EnvFacts(origin="t", gpus=GpuFacts(smi_version="470.129.06", driver_version="516.59"))
    (found,) = check_smi_version(facts)
    assert isinstance(found, Found)
    assert "470.129.06" in found.title
    assert found.severity is Severity.WARNING


def test_a_minor_difference_is_none() -> None:
    facts = EnvFacts(origin="t", gpus=GpuFacts(smi_version="570.86.10", driver_version="570.86.15"))
    (outcome,) = check_smi_version(facts)
    assert isinstance(outcome, Passed)


def test_a_mismatch_is_told_by_the_driver_check_alone() -> None:
    gpus = broken(
        NvmlState.VERSION_MISMATCH, kernel_module_version="535.183.01", nvml_library_version="550.54.15"
    )
    (outcome,) = check_smi_version(env(gpus))
    assert isinstance(outcome, NotApplicable)

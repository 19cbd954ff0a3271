"""What a container hides: told only when a check was really blinded."""

from __future__ import annotations

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.container import check_container
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, GpuProcess, NvmlState
from distdoctor.env.facts.host import ContainerFacts, HostFacts
from distdoctor.env.facts.kernel_log import KernelLogFacts
from distdoctor.env.facts.network import NetworkFacts, RdmaPort
from distdoctor.report.model import Severity

BUSY_GPU = GpuDevice(index=0, processes=(GpuProcess(pid=77),))


def judge(
    kind: str | None = "docker",
    *,
    capabilities: str | None = None,
    same_pid_namespace: bool = False,
    gpus: GpuFacts | None = None,
    kernel_log: KernelLogFacts | None = None,
    host: HostFacts | None = None,
    network: NetworkFacts | None = None,
) -> Outcome:
    container = ContainerFacts(
        kind=kind, runtime_capabilities=capabilities, same_pid_namespace_as_init=same_pid_namespace
    )
    facts = EnvFacts(container=container, gpus=gpus, kernel_log=kernel_log, host=host, network=network)
    (outcome,) = check_container(facts)
    return outcome


def test_each_thing_that_is_hidden_comes_with_its_flag() -> None:
    found = judge(
        gpus=GpuFacts(devices=(BUSY_GPU,), num_pci_gpus=8),
        kernel_log=KernelLogFacts(),
        host=HostFacts(virtualisation="none", acs_relevant_bridges=("0000:00:01.0",)),
        network=NetworkFacts(rdma_ports=(RdmaPort(device="mlx5_0", port=1, openable=False),)),
    )
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    flags = " ".join(action.text for action in found.actions)
    for flag in ("--device /dev/kmsg", "SYS_ADMIN", "--device /dev/infiniband", "--pid=host"):
        assert flag in flags


def test_a_pod_is_told_in_kubernetes_words() -> None:
    found = judge("kubernetes", gpus=GpuFacts(devices=(BUSY_GPU,)))
    assert isinstance(found, Found)
    assert "hostPID: true" in found.actions[0].text


def test_nvml_left_out_by_the_runtime_is_named() -> None:
    gpus = GpuFacts(nvml_state=NvmlState.NO_LIBRARY, kernel_module_version="570.86.15")
    found = judge(capabilities="compute", gpus=gpus)
    assert isinstance(found, Found)
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in found.actions[0].text


def test_nvml_that_was_asked_for_is_another_fault() -> None:
    gpus = GpuFacts(nvml_state=NvmlState.NO_LIBRARY, kernel_module_version="570.86.15")
    assert isinstance(judge(capabilities="all", gpus=gpus), Passed)


def test_a_container_without_gpus_hides_nothing_of_use() -> None:
    outcome = judge(
        gpus=GpuFacts(devices=(), num_pci_gpus=0),
        kernel_log=KernelLogFacts(),
        host=HostFacts(virtualisation="kvm"),
        network=NetworkFacts(rdma_ports=()),
    )
    assert isinstance(outcome, Passed)


def test_bare_metal_and_an_unknown_kind() -> None:
    assert isinstance(judge("none"), NotApplicable)
    assert isinstance(judge(None), NotSeen)

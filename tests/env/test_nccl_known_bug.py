"""Known faults: version and conditions, a version alone, and what was not seen."""

from __future__ import annotations

import re

from distdoctor.env.catalog.known_bugs import nccl_known_bugs
from distdoctor.env.checks import nccl_known_bug
from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.env.checks.nccl_known_bug import check_known_bugs
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.host import ContainerFacts, HostFacts
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.network import NetworkFacts, RdmaPort
from distdoctor.env.facts.process import ProcessFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.torch import TorchFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Confidence, Severity


def facts(
    version: str, *, layer: str = "InfiniBand", hosts: int = 1, architecture: str = "x86_64", **env: str
) -> EnvFacts:
    """One host of which everything is known and nothing is special."""
    port = RdmaPort(device="mlx5_0", port=1, state="ACTIVE", link_layer=layer, openable=True, is_efa=False)
    return EnvFacts(
        nccl=NcclFacts(loaded_version=version),
        variables=VariableFacts(environment=env),
        network=NetworkFacts(
            rdma_ports=(port,), peermem_module="", peermem_registered=False, dmabuf_possible=True
        ),
        gpus=GpuFacts(
            devices=(
                GpuDevice(index=0, name="NVIDIA A100-SXM4-80GB"),
                GpuDevice(index=1, name="NVIDIA A100-SXM4-80GB"),
            ),
            driver_version="580.95.05",
            fabric_manager="active",
        ),
        host=HostFacts(architecture=architecture, numa_nodes=()),
        container=ContainerFacts(kind="none"),
        process=ProcessFacts(stack_bytes=8 << 20, effective_capabilities=0),
        scheduler=SchedulerFacts(num_nodes=hosts, world_size=8 * hosts),
    )


def findings(given: EnvFacts) -> list[Found]:
    return [each for each in check_known_bugs(given) if isinstance(each, Found)]


def test_version_and_conditions_make_a_finding_of_its_own() -> None:
    (found,) = [
        each for each in findings(facts("2.26.2", layer="Ethernet", hosts=2)) if each.key == "roce-ece-slow"
    ]
    assert found.severity is Severity.WARNING
    assert found.confidence is Confidence.MEDIUM
    assert "2.26.3" in found.actions[0].text


def test_the_same_version_on_another_network_is_not_accused() -> None:
    assert not [each for each in findings(facts("2.26.2", hosts=2)) if each.key == "roce-ece-slow"]


def test_a_setting_can_be_the_condition() -> None:
    (found,) = [
        each
        for each in findings(facts("2.14.3", CUDA_LAUNCH_BLOCKING="1"))
        if each.severity is Severity.CRITICAL
    ]
    assert found.key == "launch-blocking-hang"


def test_arm_is_a_condition() -> None:
    assert [each.key for each in findings(facts("2.29.2", architecture="aarch64"))] == ["arm-gcc-hang"]
    assert not findings(facts("2.29.2"))


def test_a_version_alone_is_never_more_than_a_lead() -> None:
    (found,) = findings(facts("2.20.3"))
    assert found.severity is Severity.INFO
    assert found.confidence is Confidence.LOW


def test_what_was_not_seen_is_neither_passed_nor_accused() -> None:
    given = EnvFacts(nccl=NcclFacts(loaded_version="2.29.2"))
    (outcome,) = check_known_bugs(given)
    assert isinstance(outcome, NotSeen)
    assert "architecture" in outcome.unread.reason


def test_a_current_version_passes() -> None:
    (outcome,) = check_known_bugs(facts("2.31.2"))
    assert isinstance(outcome, Passed)


def test_an_unknown_version_is_not_passed() -> None:
    (outcome,) = check_known_bugs(EnvFacts())
    assert isinstance(outcome, NotSeen)


def test_rccl_and_cpu_builds_are_not_judged() -> None:
    for torch in (TorchFacts(hip_build="6.3"), TorchFacts(is_cpu_build=True)):
        (outcome,) = check_known_bugs(EnvFacts(torch=torch, nccl=NcclFacts(loaded_version="2.20.3")))
        assert isinstance(outcome, NotApplicable)


def test_every_row_of_the_table_can_be_judged() -> None:
    for bug in nccl_known_bugs():
        assert set(bug.when) <= set(nccl_known_bug._CONDITIONS)
        assert bug.first or bug.before
        assert bug.source and bug.fix and bug.symptom
        re.compile(str(bug.when.get("model", "")))
    assert len({bug.id for bug in nccl_known_bugs()}) == len(nccl_known_bugs())

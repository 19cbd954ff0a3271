"""CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER against the GPUs that are here."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.env.checks.cuda_variables import check_cuda_variables
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, MigInstance
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Severity

UUIDS = ("GPU-1a2b3c4d-0000-0000-0000-000000000000", "GPU-5e6f7a8b-0000-0000-0000-000000000000")


def facts(
    num_gpus: int | None = 2, *, rank: int | None = None, names: tuple[str, ...] = (), **env: str
) -> EnvFacts:
    devices = None
    if num_gpus is not None:
        devices = tuple(
            GpuDevice(
                index=i, uuid=UUIDS[i] if i < 2 else f"GPU-{i}", name=names[i] if names else "NVIDIA H100"
            )
            for i in range(num_gpus)
        )
    return EnvFacts(
        gpus=GpuFacts(devices=devices, num_pci_gpus=num_gpus),
        variables=VariableFacts(environment=env),
        scheduler=SchedulerFacts(rank=rank),
    )


@pytest.mark.parametrize(
    "value", ["0-1", "0 1", "0,one", "2", "0,1,2", "0,0", f"0,{UUIDS[0]}", "GPU-ffff", "0;1", "0,,1", "[0,1]"]
)
def test_a_list_that_cuda_cuts_short_is_critical(value: str) -> None:
    (found,) = check_cuda_variables(facts(CUDA_VISIBLE_DEVICES=value))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    assert len(found.title) <= 80


@pytest.mark.parametrize("value", ["0", "1,0", "0, 1", "0,1,", UUIDS[0], "GPU-1a2b", ",".join(UUIDS)])
def test_a_list_of_gpus_that_are_here_passes(value: str) -> None:
    (outcome,) = check_cuda_variables(facts(CUDA_VISIBLE_DEVICES=value))
    assert isinstance(outcome, Passed)


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles"])
def test_hiding_every_gpu_is_critical_for_a_rank(value: str) -> None:
    (found,) = check_cuda_variables(facts(rank=0, CUDA_VISIBLE_DEVICES=value))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL
    (found,) = check_cuda_variables(facts(CUDA_VISIBLE_DEVICES=value))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


def test_with_mig_numbers_are_not_judged() -> None:
    device = GpuDevice(index=0, mig_mode=True, mig_instances=(MigInstance(profile="3g.40gb"),))
    given = EnvFacts(
        gpus=GpuFacts(devices=(device,)), variables=VariableFacts(environment={"CUDA_VISIBLE_DEVICES": "1"})
    )
    (outcome,) = check_cuda_variables(given)
    assert isinstance(outcome, Passed)


def test_different_models_are_numbered_unlike_nvidia_smi() -> None:
    (found,) = check_cuda_variables(facts(names=("NVIDIA L4", "NVIDIA H100")))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    (outcome,) = check_cuda_variables(
        facts(names=("NVIDIA L4", "NVIDIA H100"), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    )
    assert isinstance(outcome, Passed)


def test_an_order_that_cuda_does_not_know_is_a_warning() -> None:
    (found,) = check_cuda_variables(facts(CUDA_DEVICE_ORDER="PCI"))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


def test_no_gpu_is_not_applicable() -> None:
    (outcome,) = check_cuda_variables(facts(0, CUDA_VISIBLE_DEVICES="7"))
    assert isinstance(outcome, NotApplicable)


def test_unread_gpus_leave_the_list_unjudged_but_not_its_form() -> None:
    (outcome,) = check_cuda_variables(facts(None, CUDA_VISIBLE_DEVICES="0,1"))
    assert isinstance(outcome, NotSeen)
    (found,) = check_cuda_variables(facts(None, CUDA_VISIBLE_DEVICES="0-1"))
    assert isinstance(found, Found)


def test_unread_variables_are_not_passed() -> None:
    (outcome,) = check_cuda_variables(EnvFacts(gpus=GpuFacts(devices=(GpuDevice(index=0),))))
    assert isinstance(outcome, NotSeen)

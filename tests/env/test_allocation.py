"""Login nodes, and GPUs that the scheduler gave against those that are seen."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.allocation import check_gpus_given, check_login_node
from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Confidence, Severity


def login(on_login_node: bool | None, gpus: GpuFacts | None) -> Outcome:
    facts = EnvFacts(scheduler=SchedulerFacts(on_login_node=on_login_node, scheduler="none"), gpus=gpus)
    (outcome,) = check_login_node(facts)
    return outcome


def test_slurm_without_job_and_gpu_is_a_login_node() -> None:
    found = login(True, GpuFacts(num_pci_gpus=0))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert "srun -w NODE" in (found.actions[0].command or "")


def test_slurm_without_job_but_with_gpus_is_a_compute_node() -> None:
    assert isinstance(login(True, GpuFacts(num_pci_gpus=8)), Passed)


def test_in_a_job_or_without_slurm_it_is_no_login_node() -> None:
    assert isinstance(login(False, GpuFacts(num_pci_gpus=0)), NotApplicable)


@pytest.mark.parametrize(("on_login_node", "gpus"), [(None, GpuFacts()), (True, None), (True, GpuFacts())])
def test_unknown_slurm_or_gpus_are_not_judged(on_login_node: bool | None, gpus: GpuFacts | None) -> None:
    assert isinstance(login(on_login_node, gpus), NotSeen)


def given(
    seen: int | None,
    *,
    requested: int | None = None,
    tasks: int | None = None,
    on_bus: int | None = None,
    visible: str | None = None,
    lost: int = 0,
    mig: bool = False,
) -> Outcome:
    devices = (
        None if seen is None else tuple(GpuDevice(index=i, lost=i < lost, mig_mode=mig) for i in range(seen))
    )
    facts = EnvFacts(
        gpus=GpuFacts(devices=devices, num_pci_gpus=on_bus),
        variables=VariableFacts(environment={} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}),
        scheduler=SchedulerFacts(gpus_requested=requested, tasks_on_node=tasks),
    )
    (outcome,) = check_gpus_given(facts)
    return outcome


@pytest.mark.parametrize(
    ("tasks", "confidence"), [(1, Confidence.HIGH), (8, Confidence.HIGH), (None, Confidence.MEDIUM)]
)
def test_fewer_gpus_than_given_are_critical(tasks: int | None, confidence: Confidence) -> None:
    found = given(7, requested=8, tasks=tasks)
    assert isinstance(found, Found)
    assert (found.severity, found.confidence) == (Severity.CRITICAL, confidence)
    assert found.title == "the scheduler gave 8 GPUs on this host, the job sees 7"


def test_a_lost_gpu_is_not_counted_as_seen() -> None:
    assert isinstance(given(8, requested=8, tasks=1, lost=1), Found)


@pytest.mark.parametrize(("seen", "tasks"), [(8, 1), (8, 8), (1, 8), (2, 4), (8, None)])
def test_all_gpus_or_a_tasks_share_are_passed(seen: int, tasks: int | None) -> None:
    assert isinstance(given(seen, requested=8, tasks=tasks), Passed)


def test_a_part_of_the_host_is_an_info() -> None:
    found = given(8, visible="0,1", on_bus=8)
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert found.title == "this process uses 2 of the host's 8 GPUs"


def test_the_whole_host_is_passed_and_an_empty_one_is_not_applicable() -> None:
    assert isinstance(given(8, on_bus=8), Passed)
    assert isinstance(given(0, on_bus=0), NotApplicable)


def test_slices_and_a_list_with_a_mistake_are_left_to_others() -> None:
    assert isinstance(given(1, mig=True, requested=8), NotApplicable)
    assert isinstance(given(8, visible="0,9"), NotApplicable)


def test_unread_gpus_are_not_passed() -> None:
    assert isinstance(given(None, requested=8), NotSeen)

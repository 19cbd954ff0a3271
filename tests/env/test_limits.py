"""Limits of locked memory, open files and stack: too low, fine, unread, and lifted by a capability."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.limits import check_memlock, check_nofile, check_stack
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.host import ContainerFacts
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.network import NetworkFacts, RdmaPort
from distdoctor.env.facts.process import UNLIMITED, ProcessFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.report.model import Confidence, Severity, SkipCause
from distdoctor.units import GIB, MIB

IPC_LOCK = 1 << 14
ONE_PORT = (RdmaPort(device="mlx5_0", port=1),)


def memlock(
    limit: int | None,
    *,
    ports: tuple[RdmaPort, ...] | None = ONE_PORT,
    capabilities: int = 0,
    kind: str = "docker",
    user_namespace: bool | None = False,
    root: bool = True,
) -> Outcome:
    facts = EnvFacts(
        process=ProcessFacts(memlock_bytes=limit, effective_capabilities=capabilities, is_root=root),
        network=NetworkFacts(rdma_ports=ports),
        container=ContainerFacts(kind=kind, user_namespace=user_namespace),
    )
    (outcome,) = check_memlock(facts)
    return outcome


@pytest.mark.parametrize(
    ("limit", "severity"),
    [(64 << 10, Severity.CRITICAL), (8 * MIB, Severity.CRITICAL), (16 * GIB, Severity.WARNING)],
)
def test_a_memlock_limit_with_rdma_is_found(limit: int, severity: Severity) -> None:
    found = memlock(limit)
    assert isinstance(found, Found)
    assert found.severity is severity
    assert found.confidence is Confidence.HIGH
    assert "--ulimit memlock=-1" in (found.actions[0].command or "")


def test_unlimited_memlock_is_passed() -> None:
    assert isinstance(memlock(UNLIMITED), Passed)


def test_without_rdma_memlock_does_not_matter() -> None:
    assert isinstance(memlock(8 * MIB, ports=()), NotApplicable)


def test_rdma_unread_is_never_critical() -> None:
    found = memlock(8 * MIB, ports=None)
    assert isinstance(found, Found)
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)


def test_an_unread_memlock_is_not_passed() -> None:
    assert isinstance(memlock(None), NotSeen)


def test_ipc_lock_lifts_the_limit_in_a_container() -> None:
    assert isinstance(memlock(8 * MIB, capabilities=IPC_LOCK), Passed)


def test_ipc_lock_of_a_user_namespace_lifts_nothing() -> None:
    assert isinstance(memlock(8 * MIB, capabilities=IPC_LOCK, user_namespace=True), Found)


def test_root_on_the_host_does_not_speak_for_the_jobs_user() -> None:
    outcome = memlock(8 * MIB, capabilities=IPC_LOCK, kind="none")
    assert isinstance(outcome, NotSeen)
    assert outcome.unread.how is not None


def test_a_login_shells_limit_is_less_sure() -> None:
    found = memlock(8 * MIB, kind="none", root=False)
    assert isinstance(found, Found)
    assert found.confidence is Confidence.MEDIUM


@pytest.mark.parametrize(
    ("limit", "ranks", "severity"),
    [
        (1024, 256, Severity.CRITICAL),
        (1024, 8, Severity.WARNING),
        (1024, None, Severity.WARNING),
        (20000, 8, Severity.INFO),
        (20000, 256, Severity.WARNING),
        (65535, None, Severity.WARNING),
    ],
)
def test_few_open_files_are_judged_by_the_size_of_the_job(
    limit: int, ranks: int | None, severity: Severity
) -> None:
    facts = EnvFacts(
        process=ProcessFacts(nofile=limit, nofile_hard=1 << 20),
        scheduler=SchedulerFacts(world_size=ranks, rank=0 if ranks else None),
    )
    (found,) = check_nofile(facts)
    assert isinstance(found, Found)
    assert found.severity is severity


def test_few_open_files_outside_a_job_and_without_a_gpu_are_an_info() -> None:
    gpus = GpuFacts(devices=(), num_pci_gpus=0)
    (found,) = check_nofile(EnvFacts(process=ProcessFacts(nofile=1024), gpus=gpus))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO


@pytest.mark.parametrize("limit", [65536, 1 << 20, UNLIMITED])
def test_enough_open_files_are_passed(limit: int) -> None:
    (outcome,) = check_nofile(EnvFacts(process=ProcessFacts(nofile=limit)))
    assert isinstance(outcome, Passed)


def test_open_files_unread_are_not_passed() -> None:
    unread = Unread(cause=SkipCause.NEEDS_ROOT, reason="/proc/7/limits: Permission denied")
    (outcome,) = check_nofile(EnvFacts(process=ProcessFacts(unread={"nofile": unread})))
    assert outcome == NotSeen(unread=unread)


def stack(limit: int | None, *, gpu: str = "NVIDIA GB200", nccl: str | None = "2.27.3") -> Outcome:
    facts = EnvFacts(
        process=ProcessFacts(stack_bytes=limit),
        gpus=GpuFacts(devices=(GpuDevice(index=0, name=gpu),)),
        nccl=NcclFacts(loaded_version=nccl),
    )
    (outcome,) = check_stack(facts)
    return outcome


def test_an_unlimited_stack_is_found_on_multi_node_nvlink() -> None:
    found = stack(UNLIMITED)
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize(("limit", "nccl"), [(8 * MIB, "2.27.3"), (UNLIMITED, "2.28.3"), (UNLIMITED, "2.30")])
def test_a_limited_stack_or_a_newer_nccl_is_passed(limit: int, nccl: str) -> None:
    assert isinstance(stack(limit, nccl=nccl), Passed)


def test_an_unlimited_stack_elsewhere_does_not_matter() -> None:
    assert isinstance(stack(UNLIMITED, gpu="NVIDIA H100 80GB HBM3"), NotApplicable)


def test_an_unknown_nccl_or_stack_is_not_seen() -> None:
    assert isinstance(stack(UNLIMITED, nccl=None), NotSeen)
    assert isinstance(stack(None), NotSeen)

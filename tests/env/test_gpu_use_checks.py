"""Modes, MIG, persistence, memory held by nobody, GPUs of several kinds."""

from __future__ import annotations

import pytest

from distdoctor.env.checks.base import Found, NotSeen, Passed
from distdoctor.env.checks.gpu_memory_held import check_memory_held
from distdoctor.env.checks.gpu_mixed import check_mixed
from distdoctor.env.checks.gpu_mode import check_mode
from distdoctor.env.checks.gpu_persistence import check_persistence
from distdoctor.env.facts.gpu import GpuDevice, GpuProcess, MigInstance
from distdoctor.env.facts.host import ContainerFacts
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.report.model import Confidence, Severity
from distdoctor.units import GIB, MIB
from gpu_builders import env, h100, hgx, host_gpus, pasted

DOCKER = ContainerFacts(kind="docker")
TWO_RANKS = SchedulerFacts(world_size=2, local_world_size=2)


def found_in(outcomes: object) -> list[Found]:
    assert isinstance(outcomes, list)
    return [each for each in outcomes if isinstance(each, Found)]


def test_prohibited_is_critical() -> None:
    (found,) = found_in(check_mode(env(hgx(h100(0, compute_mode="prohibited")))))
    assert found.severity is Severity.CRITICAL


def test_exclusive_is_critical_with_two_ranks_on_a_gpu_and_to_know_otherwise() -> None:
    gpus = host_gpus(h100(0, compute_mode="exclusive_process"))
    (crowded,) = found_in(check_mode(env(gpus, scheduler=TWO_RANKS)))
    assert crowded.severity is Severity.CRITICAL
    (alone,) = found_in(check_mode(env(gpus)))
    assert alone.severity is Severity.INFO


SLICED = h100(1, mig_mode=True, mig_mode_pending=True, mig_instances=(MigInstance(profile="3g.40gb"),))


@pytest.mark.parametrize(
    ("sections", "severity"),
    [
        ({"scheduler": TWO_RANKS}, Severity.CRITICAL),
        ({"scheduler": TWO_RANKS, "nccl": NcclFacts(loaded_version="2.28.9")}, Severity.CRITICAL),
        ({"scheduler": TWO_RANKS, "nccl": NcclFacts(loaded_version="2.30.7")}, Severity.WARNING),
        ({}, Severity.WARNING),
    ],
)
def test_mig_in_a_job_of_several_gpus(sections: dict[str, object], severity: Severity) -> None:
    (found,) = found_in(check_mode(env(host_gpus(h100(0), SLICED), **sections)))
    assert found.severity is severity
    assert "GPU 1" in found.title
    assert "3g.40gb" in found.evidence[0].text


def test_mig_with_one_rank_is_well() -> None:
    facts = env(host_gpus(h100(0), SLICED), scheduler=SchedulerFacts(world_size=1))
    assert not found_in(check_mode(facts))


def test_a_mode_that_waits_for_a_reset_is_a_warning() -> None:
    (found,) = found_in(check_mode(env(host_gpus(h100(0, mig_mode_pending=True)))))
    assert found.key == "mig-pending"


def test_persistence_off_is_one_finding_for_all() -> None:
    devices = [h100(index, persistence_mode=False) for index in range(4)]
    (found,) = found_in(check_persistence(env(host_gpus(*devices))))
    assert found.severity is Severity.WARNING
    assert "GPUs 0-3" in found.title


def test_in_a_container_and_on_a_workstation_it_is_to_know() -> None:
    gpus = host_gpus(h100(0, persistence_mode=False))
    (found,) = found_in(check_persistence(env(gpus, container=DOCKER)))
    assert found.severity is Severity.INFO
    (found,) = found_in(
        check_persistence(pasted(GpuDevice(index=0, name="NVIDIA GeForce RTX 4090", persistence_mode=False)))
    )
    assert found.severity is Severity.INFO


# gpu-memory-held


def test_memory_without_a_process_on_the_host_is_a_lead() -> None:
    (found,) = found_in(check_memory_held(env(hgx(h100(2, memory_used_bytes=30 * GIB)))))
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.LOW)
    assert "GPU 2" in found.title


def test_the_same_in_a_container_says_nothing() -> None:
    outcomes = check_memory_held(env(hgx(h100(2, memory_used_bytes=30 * GIB)), container=DOCKER))
    assert not found_in(outcomes)
    assert any(isinstance(each, NotSeen) for each in outcomes)


def test_a_pasted_table_with_one_gpu_fuller_than_the_others_says_nothing() -> None:
    """The script that prints the table owns the memory, and its container hides it."""
    used = [5858, *[1520] * 7]
    devices = [h100(index, memory_used_bytes=each * MIB, processes=()) for index, each in enumerate(used)]
    assert not found_in(check_memory_held(pasted(*devices)))


def test_a_process_explains_the_memory() -> None:
    job = (GpuProcess(pid=4242, name="python3", used_bytes=60 * GIB),)
    (outcome,) = check_memory_held(env(hgx(h100(2, memory_used_bytes=60 * GIB, processes=job))))
    assert isinstance(outcome, Passed)
    assert "python3" in outcome.detail


def test_processes_that_could_not_be_read_decide_nothing() -> None:
    outcomes = check_memory_held(env(hgx(h100(2, memory_used_bytes=60 * GIB, processes=None))))
    assert not found_in(outcomes)
    assert isinstance(outcomes[0], NotSeen)


# gpu-mixed


def test_two_models_are_a_warning() -> None:
    devices = [h100(0), h100(1, name="NVIDIA A100-SXM4-80GB")]
    (found,) = found_in(check_mixed(env(host_gpus(*devices))))
    assert found.severity is Severity.WARNING
    assert "2 kinds" in found.title


def test_one_model_of_two_sizes_is_a_warning() -> None:
    devices = [h100(0, name="NVIDIA A100-SXM"), h100(1, name="NVIDIA A100-SXM", memory_total_bytes=40 * GIB)]
    assert len(found_in(check_mixed(env(host_gpus(*devices))))) == 1


def test_a_card_for_the_screen_does_not_count() -> None:
    screen = h100(0, name="NVIDIA T400", memory_total_bytes=2 * GIB, display_active=True)
    assert not found_in(check_mixed(env(host_gpus(screen, h100(1), h100(2)))))


def test_other_firmware_is_to_know() -> None:
    (found,) = found_in(check_mixed(env(hgx(h100(6, vbios="96.00.74.00.01")))))
    assert found.severity is Severity.INFO
    assert found.scope.gpus[0].index == 6

"""CPUs that a rank may use, and GPUs whose NUMA node nobody tells."""

from __future__ import annotations

from typing import Any

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.cpu_placement import check_affinity, check_numa_known
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.host import HostFacts, NumaNode
from distdoctor.env.facts.process import ProcessFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.report.model import Confidence, Severity

NODES = (NumaNode(node=0, cpus=tuple(range(48))), NumaNode(node=1, cpus=tuple(range(48, 96))))


def affinity(
    cpus: tuple[int, ...] | None,
    *,
    parent: tuple[int, ...] | None = None,
    launcher: str | None = "slurm",
    num_cpus: int | None = 96,
    **place: Any,
) -> Outcome:
    place = {"rank": 0, "local_rank": 0, "local_world_size": 8, **place}
    facts = EnvFacts(
        process=ProcessFacts(affinity_cpus=cpus, parent_affinity_cpus=parent),
        host=HostFacts(num_cpus=num_cpus, numa_nodes=NODES),
        gpus=GpuFacts(devices=tuple(GpuDevice(index=i, numa_node=i // 4) for i in range(8))),
        scheduler=SchedulerFacts(launcher=launcher, **place),
    )
    (outcome,) = check_affinity(facts)
    return outcome


def test_all_cpus_are_passed() -> None:
    assert isinstance(affinity(tuple(range(96))), Passed)


@pytest.mark.parametrize("launcher", ["slurm", "openmpi", "torchrun"])
def test_a_single_cpu_is_found(launcher: str) -> None:
    found = affinity((5,), parent=(5,), launcher=launcher)
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert "CPU 5" in found.evidence[0].text


def test_ranks_that_share_few_cpus_are_found() -> None:
    shared = tuple(range(8))
    found = affinity(shared, parent=shared, launcher="torchrun")
    assert isinstance(found, Found)
    assert found.title == "only 8 CPUs for 8 ranks"


def test_a_rank_that_torchrun_bound_is_not_taken_for_shared() -> None:
    assert isinstance(affinity(tuple(range(8)), parent=tuple(range(96)), launcher="torchrun"), Passed)


def test_a_task_that_srun_bound_has_its_cpus_alone() -> None:
    assert isinstance(affinity((0, 1, 2, 3), launcher="slurm", cpus_requested=96), Passed)


def test_tasks_that_srun_did_not_bind_share_the_jobs_cpus() -> None:
    shared = tuple(range(8))
    assert isinstance(affinity(shared, parent=shared, launcher="slurm", cpus_requested=8), Found)


def test_cpus_of_the_other_socket_are_found() -> None:
    found = affinity(tuple(range(48, 96)), local_rank=1)
    assert isinstance(found, Found)
    assert found.confidence is Confidence.MEDIUM
    assert found.scope.gpus[0].index == 1


def test_cpus_of_the_same_socket_are_passed() -> None:
    assert isinstance(affinity(tuple(range(48, 96)), local_rank=5), Passed)


def test_a_shell_is_not_compared_with_a_gpu() -> None:
    outcome = affinity(
        tuple(range(48, 96)), rank=None, local_rank=None, local_world_size=None, launcher="none"
    )
    assert isinstance(outcome, Passed)
    assert "no rank" in outcome.detail


def test_unread_affinity_is_not_passed() -> None:
    assert isinstance(affinity(None), NotSeen)


def numa(nodes: dict[str, int] | None, *, sockets: int = 2, virtualisation: str | None = "none") -> Outcome:
    host = HostFacts(
        num_sockets=sockets,
        numa_nodes=NODES[:sockets],
        gpu_numa_nodes=nodes,
        virtualisation=virtualisation,
    )
    (outcome,) = check_numa_known(EnvFacts(host=host))
    return outcome


def test_a_gpu_without_a_node_is_found_on_two_sockets() -> None:
    found = numa({"0000:01:00.0": -1, "0000:81:00.0": 1})
    assert isinstance(found, Found)
    assert found.scope.gpus[0].pci == "0000:01:00.0"


def test_known_nodes_are_passed() -> None:
    assert isinstance(numa({"0000:01:00.0": 0}), Passed)


def test_one_socket_or_no_gpu_makes_no_difference() -> None:
    assert isinstance(numa({"0000:01:00.0": -1}, sockets=1), NotApplicable)
    assert isinstance(numa({}), NotApplicable)


def test_unread_nodes_are_not_passed() -> None:
    assert isinstance(numa(None), NotSeen)
    (outcome,) = check_numa_known(EnvFacts())
    assert isinstance(outcome, NotSeen)


def test_a_memory_only_node_is_no_second_socket() -> None:
    host = HostFacts(
        num_sockets=1,
        numa_nodes=(NumaNode(node=0, cpus=(0, 1)), NumaNode(node=1, cpus=())),
        gpu_numa_nodes={"0009:01:00.0": -1},
    )
    (outcome,) = check_numa_known(EnvFacts(host=host))
    assert isinstance(outcome, NotApplicable)

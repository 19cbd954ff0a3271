"""Launch variables against each other, against Slurm and against the GPUs, through the real collector."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed
from distdoctor.env.checks.launch import check_launch
from distdoctor.env.collect.scheduler import collect_scheduler
from distdoctor.env.collect.variables import collect_variables
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.env.facts.host import HostFacts
from distdoctor.env.facts.torch import TorchFacts
from distdoctor.report.model import Confidence, Severity
from fake_world import make_world
from host_trees import SLURM_ENVIRON

MANUAL = {
    "RANK": "3",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "3",
    "LOCAL_WORLD_SIZE": "8",
    "MASTER_ADDR": "gpu01",
    "MASTER_PORT": "29500",
}
TORCHRUN = {**MANUAL, "TORCHELASTIC_RUN_ID": "job", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "2"}
STEP = {**SLURM_ENVIRON, "SLURM_PROCID": "3", "SLURM_LOCALID": "3"}


def judge(
    tmp_path: Path,
    environ: dict[str, str],
    *,
    num_gpus: int | None = 8,
    cpu_build: bool = False,
    port_range: tuple[int, int] | None = (32768, 60999),
) -> list[Outcome]:
    world = make_world(tmp_path, {"/proc/self/comm": "python\n"}, environ=environ)
    devices = None if num_gpus is None else tuple(GpuDevice(index=index) for index in range(num_gpus))
    facts = EnvFacts(
        scheduler=collect_scheduler(world),
        variables=collect_variables(world),
        gpus=GpuFacts(devices=devices),
        host=HostFacts(port_range=port_range),
        torch=TorchFacts(cuda_build=None if cpu_build else "13.0", is_cpu_build=cpu_build),
    )
    return list(check_launch(facts))


def keys(outcomes: list[Outcome]) -> list[str]:
    return [each.key for each in outcomes if isinstance(each, Found)]


@pytest.mark.parametrize("environ", [MANUAL, TORCHRUN, STEP])
def test_launches_that_agree_are_passed(tmp_path: Path, environ: dict[str, str]) -> None:
    (outcome,) = judge(tmp_path, environ)
    assert isinstance(outcome, Passed)
    assert "rank 3 of 16" in outcome.detail


def test_a_shell_that_nobody_launched_is_not_judged(tmp_path: Path) -> None:
    (outcome,) = judge(tmp_path, {"CUDA_VISIBLE_DEVICES": "0"})
    assert isinstance(outcome, NotApplicable)


def test_without_variables_nothing_is_passed() -> None:
    (outcome,) = check_launch(EnvFacts())
    assert isinstance(outcome, NotSeen)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"RANK": "16"}, "beyond:RANK"),
        ({"LOCAL_RANK": "8"}, "beyond:LOCAL_RANK"),
        ({"RANK": "first"}, "not-a-number:RANK"),
        ({"WORLD_SIZE": "-4"}, "not-a-number:WORLD_SIZE"),
        ({"LOCAL_RANK": "1.0"}, "not-a-number:LOCAL_RANK"),
        ({"WORLD_SIZE": ""}, "half-set"),
        ({"MASTER_ADDR": ""}, "no-address"),
        ({"MASTER_PORT": "29500x"}, "bad-port"),
        ({"MASTER_PORT": "70000"}, "bad-port"),
        ({"MASTER_PORT": "40000"}, "ephemeral-port"),
    ],
)
def test_contradictions_are_found(tmp_path: Path, change: dict[str, str], key: str) -> None:
    assert key in keys(judge(tmp_path, {**MANUAL, **change}))


def test_the_port_that_torchrun_chose_is_no_fault(tmp_path: Path) -> None:
    assert keys(judge(tmp_path, {**TORCHRUN, "MASTER_PORT": "40000"})) == []


def test_a_port_is_not_compared_with_an_unknown_range(tmp_path: Path) -> None:
    assert keys(judge(tmp_path, {**MANUAL, "MASTER_PORT": "40000"}, port_range=None)) == []


def test_more_ranks_than_gpus_are_critical(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, TORCHRUN, num_gpus=4)
    assert isinstance(found, Found)
    assert found.title == "8 ranks on this host, but 4 GPUs to use"
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.HIGH)


def test_a_short_list_of_visible_gpus_is_critical(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {**TORCHRUN, "CUDA_VISIBLE_DEVICES": "0,1"})
    assert isinstance(found, Found)
    assert "CUDA_VISIBLE_DEVICES=0,1" in found.evidence[0].text


def test_torchrun_ranks_that_see_one_of_many_gpus_may_be_right(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, {**TORCHRUN, "CUDA_VISIBLE_DEVICES": "3"})
    assert isinstance(found, Found)
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.MEDIUM)


def test_tasks_of_srun_that_see_one_gpu_each_are_right(tmp_path: Path) -> None:
    assert keys(judge(tmp_path, {**STEP, "CUDA_VISIBLE_DEVICES": "0"}, num_gpus=1)) == []


@pytest.mark.parametrize(("num_gpus", "cpu_build"), [(0, False), (None, False), (4, True)])
def test_no_gpu_no_list_and_a_cpu_build_are_left_to_others(
    tmp_path: Path, num_gpus: int | None, cpu_build: bool
) -> None:
    assert keys(judge(tmp_path, TORCHRUN, num_gpus=num_gpus, cpu_build=cpu_build)) == []


def test_a_left_over_world_size_under_srun_is_found(tmp_path: Path) -> None:
    environ = {**STEP, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "gpu01"}
    assert keys(judge(tmp_path, environ)) == ["slurm-tasks"]


def test_a_rank_that_was_set_before_srun_is_found(tmp_path: Path) -> None:
    environ = {**STEP, **MANUAL, "RANK": "0", "LOCAL_RANK": "0"}
    assert keys(judge(tmp_path, environ)) == ["slurm-rank"]


@pytest.mark.parametrize(
    "change",
    [
        # One task per node, which spawns a process per GPU.
        {"SLURM_NTASKS": "2", "SLURM_PROCID": "0"},
        # Open MPI starts its daemons with srun, one on every node but the first.
        {"SLURM_NTASKS": "3", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "16"},
        # So does Hydra.
        {"SLURM_NTASKS": "5", "PMI_RANK": "3", "PMI_SIZE": "16"},
    ],
)
def test_srun_that_starts_something_else_than_ranks_is_no_contradiction(
    tmp_path: Path, change: dict[str, str]
) -> None:
    assert keys(judge(tmp_path, {**STEP, **MANUAL, **change})) == []


def test_torchrun_once_per_task_is_found(tmp_path: Path) -> None:
    assert keys(judge(tmp_path, {**STEP, **TORCHRUN})) == ["torchrun-per-task"]


def test_torchrun_once_per_node_is_right(tmp_path: Path) -> None:
    environ = {
        **STEP,
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_NTASKS": "2",
        "SLURM_PROCID": "0",
        **TORCHRUN,
    }
    assert keys(judge(tmp_path, environ)) == []

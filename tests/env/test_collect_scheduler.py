"""Place in the job under srun, torchrun, mpirun, Kubernetes and nothing; login nodes; bad variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.env.collect.scheduler import collect_scheduler, tasks_per_node
from distdoctor.report.model import SkipCause
from fake_world import make_world
from host_trees import SLURM_ENVIRON, bare_metal, kubernetes_v1, slurm_step

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "RANK": "9",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "8",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "gpu01",
    "MASTER_PORT": "29500",
}


def test_a_task_of_srun_knows_its_place_and_its_job(tmp_path: Path) -> None:
    facts = collect_scheduler(make_world(tmp_path, slurm_step(), environ=SLURM_ENVIRON))
    assert (facts.launcher, facts.scheduler) == ("slurm", "slurm")
    assert (facts.rank, facts.world_size, facts.local_rank, facts.local_world_size) == (9, 16, 1, 8)
    assert (facts.node_rank, facts.num_nodes, facts.tasks_on_node) == (1, 2, 8)
    assert (facts.job_id, facts.job_name, facts.partition) == ("77", "llama", "h100")
    assert facts.node_list == ("gpu01", "gpu02")
    assert (facts.gpus_requested, facts.cpus_requested) == (8, 96)
    assert facts.on_login_node is False


def test_torchrun_below_srun_is_torchrun_in_a_slurm_job(tmp_path: Path) -> None:
    environ = {**SLURM_ENVIRON, "SLURM_NTASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", **TORCHRUN}
    facts = collect_scheduler(make_world(tmp_path, slurm_step(), environ=environ))
    assert (facts.launcher, facts.scheduler) == ("torchrun", "slurm")
    assert (facts.local_world_size, facts.num_nodes, facts.tasks_on_node) == (8, 2, 1)
    assert (facts.master_addr, facts.master_port, facts.restart_count) == ("gpu01", 29500, 2)


def test_a_batch_script_is_no_rank(tmp_path: Path) -> None:
    environ = {
        "SLURM_JOB_ID": "77",
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": "16",
        "SLURM_JOB_NODELIST": "gpu[01-02]",
    }
    facts = collect_scheduler(make_world(tmp_path, slurm_step(), environ=environ))
    assert (facts.scheduler, facts.launcher, facts.rank) == ("slurm", "none", None)
    assert facts.unread["rank"].cause is SkipCause.ABSENT


@pytest.mark.parametrize(
    ("environ", "launcher", "scheduler"),
    [
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PBS_JOBID": "9.pbs"}, "openmpi", "pbs"),
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "LSB_JOBID": "9"}, "pmi", "lsf"),
        ({"RANK": "1", "WORLD_SIZE": "4"}, "manual", "none"),
    ],
)
def test_other_launchers_and_schedulers_are_known(
    tmp_path: Path, environ: dict[str, str], launcher: str, scheduler: str
) -> None:
    facts = collect_scheduler(make_world(tmp_path, bare_metal(), environ=environ))
    assert (facts.launcher, facts.scheduler, facts.rank) == (launcher, scheduler, 1)


def test_a_pod_has_its_name_and_namespace(tmp_path: Path) -> None:
    environ = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "HOSTNAME": "llama-worker-3",
        "RANK": "4",
        "WORLD_SIZE": "8",
    }
    facts = collect_scheduler(make_world(tmp_path, kubernetes_v1(), environ=environ))
    assert (facts.scheduler, facts.pod_name, facts.pod_namespace) == (
        "kubernetes",
        "llama-worker-3",
        "training",
    )


def test_slurm_without_a_job_is_a_login_node(tmp_path: Path) -> None:
    facts = collect_scheduler(make_world(tmp_path, {"/usr/bin/sinfo": "", "/proc/self/status": ""}))
    assert facts.on_login_node is True


def test_a_rank_that_is_no_number_leaves_the_place_unread(tmp_path: Path) -> None:
    facts = collect_scheduler(
        make_world(tmp_path, bare_metal(), environ={"RANK": "first", "WORLD_SIZE": "8"})
    )
    assert facts.rank is None
    assert facts.unread["rank"].cause is SkipCause.FAILED
    assert "RANK" in facts.unread["rank"].reason


def test_absurd_counts_are_unread(tmp_path: Path) -> None:
    environ = {
        **SLURM_ENVIRON,
        "SLURM_GPUS_ON_NODE": "gpu:8",
        "SLURM_STEP_TASKS_PER_NODE": "8(x",
        "SLURM_RESTART_COUNT": "-1",
    }
    facts = collect_scheduler(make_world(tmp_path, slurm_step(), environ=environ))
    assert facts.gpus_requested is None
    assert facts.tasks_on_node is None
    assert facts.restart_count is None
    assert {"gpus_requested", "tasks_on_node", "restart_count"} <= set(facts.unread)


def test_slurms_task_counts_are_expanded() -> None:
    assert [tasks_per_node("8(x2),4", node) for node in range(3)] == [8, 8, 4]
    with pytest.raises(ValueError, match="does not reach"):
        tasks_per_node("8(x2),4", 3)

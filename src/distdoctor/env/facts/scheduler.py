"""Facts about who started this process and its place in the job."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.env.facts.base import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFacts(Section):
    """Launcher, scheduler and ranks, from variables that torchrun, Slurm, Open MPI and Kubernetes set."""

    launcher: str | None = None
    """"torchrun", "slurm", "openmpi", "pmi", "kubernetes", "distdoctor", "manual", "none"."""
    scheduler: str | None = None
    """"slurm", "kubernetes", "pbs", "lsf", "flux", "sge", "none"."""
    rank: int | None = None
    """None when no launcher started this process as a rank."""
    world_size: int | None = None
    local_rank: int | None = None
    local_world_size: int | None = None
    node_rank: int | None = None
    num_nodes: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    job_id: str | None = None
    job_name: str | None = None
    step_id: str | None = None
    node_list: tuple[str, ...] = ()
    partition: str | None = None
    restart_count: int | None = None
    pod_name: str | None = None
    pod_namespace: str | None = None
    gpus_requested: int | None = None
    """GPUs on this node by the scheduler (SLURM_GPUS_ON_NODE)."""
    cpus_requested: int | None = None
    tasks_on_node: int | None = None
    """Tasks that srun started on this node in this step."""
    notes: tuple[str, ...] = ()
    """What was odd about the launcher's variables, one line each."""
    on_login_node: bool | None = None
    """Slurm is installed here but we are in no job."""

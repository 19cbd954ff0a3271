"""Is there a GPU for every rank of this host? Part of the check of the launch variables."""

from __future__ import annotations

from distdoctor.env.checks.base import Found, Outcome
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.visible_gpus import VisibleGpus, visible_gpus
from distdoctor.ranks.launchers import is_slurm_step
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

NCCL_RULE = "NCCL refuses two ranks of one communicator on one GPU (`Duplicate GPU detected`)"


def gpu_problems(facts: EnvFacts) -> list[Outcome]:
    """More ranks than GPUs, a local rank without a GPU, torchrun started once per task.

    Nothing for a torch built without CUDA, and nothing when GPUs were not read or there is none: then other
    checks speak.
    """
    scheduler, visible = facts.scheduler, visible_gpus(facts)
    if scheduler is None or scheduler.rank is None or visible is None or visible.count == 0:
        return []
    if facts.torch is not None and facts.torch.is_cpu_build:
        return []
    nested = _nested_torchrun(facts, scheduler, visible)
    return nested or _too_many_ranks(facts, scheduler, visible)


def _too_many_ranks(facts: EnvFacts, scheduler: SchedulerFacts, visible: VisibleGpus) -> list[Outcome]:
    ranks, local_rank = scheduler.local_world_size, scheduler.local_rank
    wanted = max(ranks or 0, (local_rank or 0) + 1)
    if wanted <= visible.count:
        return []
    all_devices = len(facts.gpus.devices or ()) if facts.gpus is not None else 0
    own_gpu_each = visible.count == 1 and (all_devices >= wanted or scheduler.launcher != "torchrun")
    if own_gpu_each and scheduler.launcher != "torchrun":
        # srun and mpirun wrappers give each rank one GPU, which it sees as number 0.
        return []
    cuda = facts.torch is not None and bool(facts.torch.cuda_build or facts.torch.hip_build)
    who = f"{ranks} ranks" if ranks else f"local rank {local_rank}"
    return [
        Found(
            key="ranks-over-gpus",
            title=f"{who} on this host, but {visible.count} GPU{'s' if visible.count > 1 else ''} to use",
            severity=Severity.WARNING if own_gpu_each else Severity.CRITICAL,
            confidence=Confidence.HIGH if cuda and not own_gpu_each else Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"LOCAL_WORLD_SIZE {ranks if ranks else 'not set'}, LOCAL_RANK {local_rank}; {visible.why}",
                    value=visible.count,
                    unit="GPUs",
                    expected=f"{wanted}, one for each rank",
                    expected_source=NCCL_RULE,
                    source="environment and NVML",
                ),
            ),
            explanation=(
                "The ranks see one GPU only. That is right when a wrapper gives each rank its own; else all use the "
                "same one and NCCL refuses."
                if own_gpu_each
                else "A rank without a GPU stops with `invalid device ordinal`, or shares one and NCCL stops with "
                "`Duplicate GPU detected`."
            ),
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="Start as many ranks as there are GPUs, or let the job see more of them",
                    command=f"torchrun --nproc-per-node {visible.count} …   # and: echo $CUDA_VISIBLE_DEVICES",
                ),
            ),
            cause_class="config:duplicate_gpu",
            fault=Fault.CONFIG,
        )
    ]


def _nested_torchrun(facts: EnvFacts, scheduler: SchedulerFacts, visible: VisibleGpus) -> list[Outcome]:
    """srun starts torchrun several times on one node, and each starts a rank per GPU."""
    environ = facts.variables.environment if facts.variables is not None else {}
    tasks, ranks = scheduler.tasks_on_node, scheduler.local_world_size
    if scheduler.launcher != "torchrun" or not is_slurm_step(environ) or tasks is None or ranks is None:
        return []
    if tasks < 2 or tasks * ranks <= visible.count:
        return []
    return [
        Found(
            key="torchrun-per-task",
            title=f"srun starts torchrun {tasks} times on this host, {tasks * ranks} ranks for {visible.count} GPUs",
            severity=Severity.CRITICAL,
            confidence=Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"{tasks} tasks on this node, each a torchrun with {ranks} ranks; {visible.why}",
                    value=tasks,
                    unit="tasks",
                    expected="one task per node when torchrun starts the ranks",
                    expected_source="torchrun documentation: one agent per node",
                    source=scheduler.sources.get("tasks_on_node"),
                ),
            ),
            explanation="torchrun starts the ranks of a host itself; srun must start it once per host.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="One task per node",
                    command="srun --ntasks-per-node=1 torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8 …",
                ),
            ),
            cause_class="config:duplicate_gpu",
            fault=Fault.CONFIG,
        )
    ]

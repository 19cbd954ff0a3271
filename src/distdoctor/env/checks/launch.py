"""Do the launcher's variables agree with each other, with the scheduler and with the GPUs here?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.launch_address import address_problems
from distdoctor.env.checks.launch_gpus import gpu_problems
from distdoctor.env.facts.all import EnvFacts
from distdoctor.ranks.launchers import is_slurm_step
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK")
ENV_SOURCE = "PyTorch documentation, torch.distributed: environment variable initialization"


def check_launch(facts: EnvFacts) -> Sequence[Outcome]:
    """Every contradiction among RANK, WORLD_SIZE, LOCAL_RANK, MASTER_*, Slurm's tasks and the GPUs here."""
    if facts.variables is None:
        return [missing(facts, "variables.environment")]
    environ = facts.variables.environment
    if not any(name in environ for name in (*NUMBERS, "MASTER_ADDR")) and not is_slurm_step(environ):
        return [NotApplicable(detail="no launcher started this process: RANK and WORLD_SIZE are not set")]
    problems = [
        *_bad_numbers(environ),
        *_rank_beyond(environ, "RANK", "WORLD_SIZE"),
        *_rank_beyond(environ, "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        *_half_set(environ),
        *_slurm_contradicts(environ),
        *address_problems(facts),
        *gpu_problems(facts),
    ]
    if problems:
        return problems
    return [Passed(detail=_summary(facts))]


def number(environ: Mapping[str, str], name: str) -> int | None:
    """A launch variable as a whole number; None when it is unset, empty or none."""
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _summary(facts: EnvFacts) -> str:
    scheduler = facts.scheduler
    if scheduler is None or scheduler.rank is None:
        return "the launch variables that are set agree"
    return f"rank {scheduler.rank} of {scheduler.world_size}, started by {scheduler.launcher}"


def _bad_numbers(environ: Mapping[str, str]) -> list[Outcome]:
    return [
        Found(
            key=f"not-a-number:{name}",
            title=f"{name} is not a whole number"[:80],
            severity=Severity.CRITICAL,
            confidence=Confidence.HIGH,
            evidence=(_evidence(f"{name}=`{environ[name][:40]}`", name, "a whole number, 0 or more"),),
            explanation="The program reads it as a number when it starts, and stops there.",
            actions=(_fix(f"unset {name}"),),
            cause_class="config:launch_variables",
            fault=Fault.CONFIG,
        )
        for name in NUMBERS
        if environ.get(name, "").strip() and number(environ, name) is None
    ]


def _rank_beyond(environ: Mapping[str, str], rank_name: str, size_name: str) -> list[Outcome]:
    rank, size = number(environ, rank_name), number(environ, size_name)
    if rank is None or size is None or rank < size:
        return []
    return [
        Found(
            key=f"beyond:{rank_name}",
            title=f"{rank_name} {rank} does not exist among {size} ranks",
            severity=Severity.CRITICAL,
            confidence=Confidence.HIGH,
            evidence=(
                _evidence(
                    f"{rank_name}={rank}, {size_name}={size}", rank_name, f"{rank_name} below {size_name}"
                ),
            ),
            explanation="Ranks count from 0. The process group refuses this one, or waits for one that never comes.",
            actions=(_fix(f"env | grep -E '^({rank_name}|{size_name})='"),),
            cause_class="config:launch_variables",
            fault=Fault.CONFIG,
        )
    ]


def _half_set(environ: Mapping[str, str]) -> list[Outcome]:
    have = [name for name in ("RANK", "WORLD_SIZE") if environ.get(name, "").strip()]
    # A lone WORLD_SIZE is common in shells and in Kubernetes pods before torchrun starts.
    if have != ["RANK"]:
        return []
    return [
        Found(
            key="half-set",
            title="RANK is set but WORLD_SIZE is not",
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM,
            evidence=(_evidence(f"RANK={environ['RANK'][:20]}, no WORLD_SIZE", "RANK", "both or none"),),
            explanation=(
                "PyTorch's `env://` start then stops with `environment variable WORLD_SIZE expected, but not set`. "
                "A RANK that was left over in the shell does that too."
            ),
            actions=(_fix("unset RANK   # or start the ranks with torchrun"),),
            cause_class="config:launch_variables",
            fault=Fault.CONFIG,
        )
    ]


def _slurm_contradicts(environ: Mapping[str, str]) -> list[Outcome]:
    """RANK and WORLD_SIZE of a script inside `srun`, which must fit srun's tasks. torchrun counts its own."""
    tasks, size = number(environ, "SLURM_NTASKS"), number(environ, "WORLD_SIZE")
    if not is_slurm_step(environ) or "TORCHELASTIC_RUN_ID" in environ or tasks is None or size is None:
        return []
    # mpirun uses srun to start its own daemons, so that Slurm counts those and not the ranks.
    if "OMPI_COMM_WORLD_RANK" in environ or number(environ, "PMI_SIZE") not in (None, tasks):
        return []
    if size >= tasks and size % tasks == 0:
        return _early_rank(environ, tasks, size)
    return [
        Found(
            key="slurm-tasks",
            title=f"WORLD_SIZE is {size}, but srun started {tasks} tasks",
            severity=Severity.WARNING,
            confidence=Confidence.HIGH if size == 1 else Confidence.MEDIUM,
            evidence=(
                _evidence(
                    f"WORLD_SIZE={size}, SLURM_NTASKS={tasks}",
                    "WORLD_SIZE",
                    "one rank, or equally many, per task",
                ),
            ),
            explanation=(
                "Every task trains by itself, or waits for ranks that nobody starts. WORLD_SIZE was probably set "
                "in the batch script or left over in the shell; Slurm passes it on to all tasks."
            ),
            actions=(
                _fix(
                    "export WORLD_SIZE=$SLURM_NTASKS RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID   # inside the task"
                ),
            ),
            cause_class="config:launch_variables",
            fault=Fault.CONFIG,
        )
    ]


def _early_rank(environ: Mapping[str, str], tasks: int, size: int) -> list[Outcome]:
    rank, task = number(environ, "RANK"), number(environ, "SLURM_PROCID")
    if size != tasks or rank is None or task is None or rank == task:
        return []
    return [
        Found(
            key="slurm-rank",
            title=f"RANK is {rank}, but this is task {task} of srun",
            severity=Severity.CRITICAL,
            confidence=Confidence.MEDIUM,
            evidence=(_evidence(f"RANK={rank}, SLURM_PROCID={task}, {tasks} tasks", "RANK", f"{task}"),),
            explanation=(
                "RANK was probably set in the batch script, before srun, where SLURM_PROCID is 0: then all tasks "
                "have the same rank, and the job hangs when it starts."
            ),
            actions=(
                _fix("srun bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec python train.py'"),
            ),
            cause_class="config:launch_variables",
            fault=Fault.CONFIG,
        )
    ]


def _evidence(text: str, name: str, expected: str) -> Evidence:
    return Evidence(text=text, expected=expected, expected_source=ENV_SOURCE, source=f"environment ({name})")


def _fix(command: str) -> Action:
    return Action(team=Team.JOB_OWNER, text="Correct it where the ranks are started", command=command)


CHECK = Check(id="launch-variables", title="variables of the launch", run=check_launch)

"""What each launcher says in its variables about this process's place in the job. Pure functions.

Every reader takes the environment and gives a Place, or None when that launcher did not start this process.
A number that cannot be one is a UsageError: guessing a rank would accuse the wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from distdoctor.errors import UsageError

Environ = Mapping[str, str]

# Ten times the largest jobs we know of; keeps `range(world_size)` harmless. Our own bound.
MAX_WORLD_SIZE = 1 << 20

# slurm.h: SLURM_MAX_NORMAL_STEP_ID. Ids above it are the batch script's, the interactive shell's and others.
SLURM_MAX_NORMAL_STEP_ID = 0xFFFFFFF0


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Launcher(str, Enum):
    """Who started this process as a rank."""

    TORCHRUN = "torchrun"
    DISTDOCTOR = "distdoctor"
    """`--launch N` with plain processes."""
    MANUAL = "manual"
    """RANK and WORLD_SIZE set by somebody else: a script, a Kubernetes operator."""
    OPEN_MPI = "openmpi"
    PMI = "pmi"
    """MPICH, Intel MPI, Cray, MVAPICH."""
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This process's place, and the variables that its whole launch shares."""

    launcher: Launcher
    rank: int
    world_size: int
    rank_variable: str
    """Holds the rank; every rank of the launch has it and the launcher has not."""
    marker_variable: str
    """Set for the ranks and not for the launcher itself."""
    job_variables: tuple[tuple[str, str], ...] = ()
    """Equal in all ranks of this launch, different in another launch, as well as the launcher lets us."""
    job_name: str = ""
    """Names the launch where no variable does."""
    never_reused: bool = False
    """No later launch can have the same job variables."""
    local_rank: int | None = None
    local_world_size: int | None = None
    node_rank: int | None = None
    num_nodes: int | None = None
    ranks_here: tuple[int, ...] | None = None
    """Global ranks on this host, where the launcher says them."""
    notes: tuple[str, ...] = ()


def number(environ: Environ, name: str, *, at_least: int = 0) -> int | None:
    """A variable as a whole number, None when unset or empty. Raises UsageError for anything else."""
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"-?\d{1,12}", text) or int(text) < at_least:
        raise UsageError(
            f"{name}=`{text[:40]}` is not a whole number of at least {at_least}",
            hint=f"unset {name}, or start the ranks with torchrun, srun or mpirun",
        )
    return int(text)


def read_torchrun(environ: Environ) -> Place | None:
    """torchrun and everything else on torch's elastic agent."""
    if "TORCHELASTIC_RUN_ID" not in environ or "RANK" not in environ:
        return None
    rank, world_size = _rank_and_size(environ, "RANK", "WORLD_SIZE")
    local_rank, local_size = number(environ, "LOCAL_RANK"), number(environ, "LOCAL_WORLD_SIZE", at_least=1)
    ranks_here = None
    if local_rank is not None and local_size is not None and rank >= local_rank:
        # The agent numbers the workers of a node one after the other.
        first = rank - local_rank
        ranks_here = tuple(range(first, min(first + local_size, world_size)))
    return Place(
        launcher=Launcher.TORCHRUN,
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=local_size,
        node_rank=number(environ, "GROUP_RANK"),
        num_nodes=number(environ, "GROUP_WORLD_SIZE", at_least=1),
        ranks_here=ranks_here,
        # `--standalone` makes a UUID; `none` is the default and any other is the user's to repeat.
        never_reused=_UUID.fullmatch(environ["TORCHELASTIC_RUN_ID"]) is not None,
        rank_variable="RANK",
        marker_variable="TORCHELASTIC_RUN_ID",
        job_variables=_present(
            environ, ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
        ),
    )


def read_own_launch(environ: Environ) -> Place | None:
    """`distdoctor … --launch N` with plain processes."""
    if not environ.get("DISTDOCTOR_LAUNCH_ID") or "RANK" not in environ:
        return None
    rank, world_size = _rank_and_size(environ, "RANK", "WORLD_SIZE")
    return Place(
        launcher=Launcher.DISTDOCTOR,
        rank=rank,
        world_size=world_size,
        local_rank=rank,
        local_world_size=world_size,
        node_rank=0,
        num_nodes=1,
        ranks_here=tuple(range(world_size)),
        never_reused=True,
        rank_variable="RANK",
        marker_variable="RANK",
        job_variables=_present(environ, ("DISTDOCTOR_LAUNCH_ID",)),
    )


def read_manual(environ: Environ) -> Place | None:
    """RANK and WORLD_SIZE without an elastic agent. One of them alone means nothing."""
    if not environ.get("RANK") or not environ.get("WORLD_SIZE"):
        return None
    operator = _read_pytorch_operator(environ)
    if operator is not None:
        return operator
    rank, world_size = _rank_and_size(environ, "RANK", "WORLD_SIZE")
    notes = []
    task = environ.get("SLURM_PROCID", "") if is_slurm_step(environ) else ""
    if task and task != str(rank) and environ.get("SLURM_NTASKS") == environ["WORLD_SIZE"]:
        notes.append(f"RANK={rank} but Slurm says that this is task {task[:12]}: RANK was set too early")
    job = ["MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"]
    if is_slurm_step(environ):
        job += ["SLURM_JOB_ID", "SLURM_STEP_ID"]
    return Place(
        launcher=Launcher.MANUAL,
        rank=rank,
        world_size=world_size,
        local_rank=number(environ, "LOCAL_RANK"),
        local_world_size=number(environ, "LOCAL_WORLD_SIZE", at_least=1),
        node_rank=number(environ, "NODE_RANK"),
        rank_variable="RANK",
        marker_variable="RANK",
        job_variables=_present(environ, job),
        notes=tuple(notes),
    )


def _read_pytorch_operator(environ: Environ) -> Place | None:
    """A pod of Kubeflow's PyTorchJob or TrainJob in which torchrun was not started.

    There RANK and PET_NODE_RANK number the pods while WORLD_SIZE may count all processes, so that taking
    WORLD_SIZE at its word would wait for ranks that nobody starts.
    """
    pods = environ.get("PET_NNODES", "").strip()
    if "LOCAL_RANK" in environ or not pods.isdecimal() or not environ.get("PET_NODE_RANK"):
        return None
    rank, num_pods = _rank_and_size(environ, "PET_NODE_RANK", "PET_NNODES")
    return Place(
        launcher=Launcher.KUBERNETES,
        rank=rank,
        world_size=num_pods,
        local_rank=0,
        local_world_size=1,
        node_rank=rank,
        num_nodes=num_pods,
        ranks_here=(rank,),
        rank_variable="PET_NODE_RANK",
        marker_variable="PET_NODE_RANK",
        job_variables=_present(environ, ("PET_MASTER_ADDR", "PET_MASTER_PORT", "MASTER_ADDR", "MASTER_PORT")),
        notes=("one process per pod: torchrun was not used",),
    )


def read_open_mpi(environ: Environ) -> Place | None:
    """mpirun of Open MPI 4 and 5, and jsrun of Spectrum MPI."""
    if "OMPI_COMM_WORLD_RANK" not in environ:
        return None
    rank, world_size = _rank_and_size(environ, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
    job = _present(environ, ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "JSM_NAMESPACE_ID"))
    return Place(
        launcher=Launcher.OPEN_MPI,
        rank=rank,
        world_size=world_size,
        local_rank=number(environ, "OMPI_COMM_WORLD_LOCAL_RANK"),
        local_world_size=number(environ, "OMPI_COMM_WORLD_LOCAL_SIZE", at_least=1),
        rank_variable="OMPI_COMM_WORLD_RANK",
        marker_variable="OMPI_COMM_WORLD_RANK",
        job_variables=job,
        never_reused=bool(job),
    )


# Rank, size, local rank, local size; the first variable that is set decides which implementation it is.
_PMI_FAMILY = (
    ("PMI_RANK", "PMI_SIZE", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE")),
    (
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
    ),
)


def read_pmi(environ: Environ) -> Place | None:
    """Hydra (MPICH, Intel MPI), Cray's and MVAPICH's launchers.

    Bare PMIx gives a rank but no size; under srun Slurm's variables have both.
    """
    for rank_name, size_name, local_ranks, local_sizes in _PMI_FAMILY:
        if not environ.get(rank_name) or not environ.get(size_name):
            continue
        rank, world_size = _rank_and_size(environ, rank_name, size_name)
        job = [
            "PMI_JOBID",
            "PALS_APID",
            "MASTER_ADDR",
            "MASTER_PORT",
            "SLURM_JOB_ID",
            "LSB_JOBID",
            "PBS_JOBID",
        ]
        if is_slurm_step(environ) and environ.get("SLURM_PROCID") == str(rank):
            job.append("SLURM_STEP_ID")
        return Place(
            launcher=Launcher.PMI,
            rank=rank,
            world_size=world_size,
            local_rank=_first_number(environ, local_ranks),
            local_world_size=_first_number(environ, local_sizes, at_least=1),
            rank_variable=rank_name,
            marker_variable=rank_name,
            job_variables=_present(environ, job),
        )
    return None


def read_slurm(environ: Environ) -> Place | None:
    """A task of srun. The shell of sbatch or salloc has SLURM_PROCID=0, too, and is no task."""
    if not is_slurm_step(environ) or not environ.get("SLURM_PROCID"):
        return None
    size_name = "SLURM_STEP_NUM_TASKS" if environ.get("SLURM_STEP_NUM_TASKS") else "SLURM_NTASKS"
    if not environ.get(size_name):
        size_name = "SLURM_NPROCS"
    if "SLURM_HET_SIZE" in environ and _beyond(environ, "SLURM_PROCID", size_name):
        return None  # a heterogeneous step counts tasks over all its parts but tells each part's size
    rank, world_size = _rank_and_size(environ, "SLURM_PROCID", size_name)
    num_nodes = _first_number(environ, ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"), at_least=1)
    ranks_here = _slurm_ranks_here(environ, rank, world_size)
    return Place(
        launcher=Launcher.SLURM,
        rank=rank,
        world_size=world_size,
        local_rank=number(environ, "SLURM_LOCALID"),
        never_reused=bool(environ.get("SLURM_JOB_ID")),
        local_world_size=len(ranks_here) if ranks_here else (world_size if num_nodes == 1 else None),
        node_rank=number(environ, "SLURM_NODEID"),
        num_nodes=num_nodes,
        ranks_here=ranks_here,
        rank_variable="SLURM_PROCID",
        marker_variable="SLURM_STEP_ID",
        job_variables=_present(
            environ, ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
        ),
    )


def is_slurm_step(environ: Environ) -> bool:
    """Whether srun started this process: a step id that is neither the batch script's nor the shell's."""
    step = environ.get("SLURM_STEP_ID", "")
    return step.isdecimal() and len(step) <= 10 and int(step) <= SLURM_MAX_NORMAL_STEP_ID


def _slurm_ranks_here(environ: Environ, rank: int, world_size: int) -> tuple[int, ...] | None:
    """SLURM_GTIDS: "0,1,2,3", the global task ids on this node; None when absent or not believable."""
    words = environ.get("SLURM_GTIDS", "").split(",")
    if not all(word.isdecimal() for word in words) or len(words) > world_size:
        return None
    ranks = tuple(sorted({int(word) for word in words}))
    return ranks if rank in ranks and ranks[-1] < world_size else None


def read_kubernetes(environ: Environ) -> Place | None:
    """A pod of an Indexed Job. Kubernetes numbers it but does not say how many there are."""
    if not environ.get("JOB_COMPLETION_INDEX") or not environ.get("WORLD_SIZE"):
        return None
    rank, world_size = _rank_and_size(environ, "JOB_COMPLETION_INDEX", "WORLD_SIZE")
    # The controller names the pods JOB-INDEX; what stands before the index names the job.
    job_name = environ.get("HOSTNAME", "").removesuffix(f"-{rank}")
    return Place(
        launcher=Launcher.KUBERNETES,
        rank=rank,
        world_size=world_size,
        local_rank=0,
        local_world_size=1,
        node_rank=rank,
        num_nodes=world_size,
        ranks_here=(rank,),
        rank_variable="JOB_COMPLETION_INDEX",
        marker_variable="JOB_COMPLETION_INDEX",
        job_variables=_present(environ, ("MASTER_ADDR", "MASTER_PORT")),
        job_name=job_name,
    )


LAUNCHERS: tuple[Callable[[Environ], Place | None], ...] = (
    read_torchrun,
    read_own_launch,
    read_manual,
    read_open_mpi,
    read_pmi,
    read_slurm,
    read_kubernetes,
)
"""In order of precedence: the launcher nearest to the process first, so that torchrun under srun is torchrun."""


def _rank_and_size(environ: Environ, rank_name: str, size_name: str) -> tuple[int, int]:
    rank, size = number(environ, rank_name), number(environ, size_name, at_least=1)
    if rank is None or size is None:
        missing = rank_name if rank is None else size_name
        present = size_name if rank is None else rank_name
        raise UsageError(
            f"{present} is set but {missing} is not",
            hint=f"set {missing}, or start the ranks with torchrun, srun or mpirun",
        )
    if size > MAX_WORLD_SIZE:
        raise UsageError(
            f"{size_name}={size} is more than {MAX_WORLD_SIZE} ranks", hint=f"correct {size_name}"
        )
    if rank >= size:
        raise UsageError(
            f"{rank_name}={rank} is not below {size_name}={size}",
            hint=f"ranks count from 0 to {size - 1}; correct {rank_name} or {size_name}",
        )
    return rank, size


def _beyond(environ: Environ, rank_name: str, size_name: str) -> bool:
    rank, size = number(environ, rank_name), number(environ, size_name)
    return rank is not None and size is not None and rank >= size


def _first_number(environ: Environ, names: Iterable[str], *, at_least: int = 0) -> int | None:
    for name in names:
        value = number(environ, name, at_least=at_least)
        if value is not None:
            return value
    return None


def _present(environ: Environ, names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, environ[name]) for name in names if environ.get(name))

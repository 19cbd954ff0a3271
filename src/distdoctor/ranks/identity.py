"""Who am I among the ranks of this launch? Read from the environment, without torch."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from distdoctor.errors import UsageError
from distdoctor.ranks.launchers import LAUNCHERS, Environ, Launcher, Place, is_slurm_step
from distdoctor.ranks.nodelist import (
    MAX_TEXT_CHARS,
    expand_node_list,
    hosts_of_lsf,
    hosts_of_node_file,
    short_name,
)
from distdoctor.ranks.processes import entered_container_from_outside

# Names under which pods commonly get `spec.nodeName` by the downward API; Kubernetes sets none by itself.
_NODE_NAME_VARIABLES = ("NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME", "KUBE_NODE_NAME")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankIdentity:
    """This process's place in its launch. None means that the launcher does not say."""

    launcher: Launcher
    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None
    node_rank: int | None
    num_nodes: int | None
    ranks_here: tuple[int, ...] | None
    """Global ranks on this host (or in this pod), this one included."""
    master_addr: str | None
    master_port: int | None
    job_key: str
    """Equal in all ranks of one launch. Another launch has another, unless its variables are the same."""
    key_never_reused: bool
    """Whether the launcher vouches that no later launch has the same key."""
    job_variables: tuple[tuple[str, str], ...]
    rank_variable: str | None
    marker_variable: str | None
    """A variable that ranks have and their launcher has not."""
    host: str
    """The machine's short name: the scheduler's name for it where it tells one."""
    hostname: str
    """What the machine (or pod) calls itself, short."""
    pod: str | None
    node_list: tuple[str, ...]
    """All hosts of the job by the scheduler, in its order; empty when it does not say."""
    pid: int
    notes: tuple[str, ...] = ()
    """What was odd about the variables, one line each."""

    @property
    def is_reporter(self) -> bool:
        """Whether this is the rank that speaks, as long as it lives."""
        return self.rank == 0

    @property
    def spans_hosts(self) -> bool | None:
        """Whether ranks run on more than one host (or pod); None when nothing tells."""
        if self.world_size == 1 or self.num_nodes == 1:
            return False
        if self.num_nodes is not None:
            return True
        if self.local_world_size is not None:
            return self.local_world_size < self.world_size
        return None

    def missing_hosts(self, seen: frozenset[str]) -> tuple[str, ...]:
        """Hosts of the node list that `seen` does not name, or () when that proves nothing.

        A scheduler's list may hold hosts on which no rank was to run (LSF's batch host, the spare nodes of a
        small torchrun in a large allocation), so it counts only when it is as long as the launch is wide.
        """
        if self.num_nodes is None or len(self.node_list) != self.num_nodes:
            return ()
        known = {short_name(host) for host in seen}
        return tuple(host for host in self.node_list if short_name(host) not in known)


def detect_identity(
    environ: Environ,
    hostname: str | None = None,
    *,
    entered_from_outside: Callable[[str], bool] = entered_container_from_outside,
    read_file: Callable[[str], str] | None = None,
) -> RankIdentity:
    """This process's identity, by the nearest launcher that left its variables.

    Order: torchrun, our own `--launch`, RANK and WORLD_SIZE, Open MPI, PMI, a Slurm step, Kubernetes, none.

    `kubectl exec` into a pod inherits the pod's RANK; such a process was launched by nobody and stands alone,
    with a note. `entered_from_outside` and `read_file` (node files) are the two looks at the machine.

    Raises UsageError for variables that contradict themselves: RANK=abc, RANK not below WORLD_SIZE.
    """
    notes: list[str] = []
    place = _place(environ, notes, entered_from_outside)
    name = short_name(hostname if hostname is not None else socket.gethostname())
    return RankIdentity(
        launcher=place.launcher,
        rank=place.rank,
        world_size=place.world_size,
        local_rank=place.local_rank,
        local_world_size=place.local_world_size,
        node_rank=place.node_rank,
        num_nodes=place.num_nodes,
        ranks_here=place.ranks_here,
        master_addr=environ.get("MASTER_ADDR") or None,
        master_port=_port(environ, notes),
        job_key=_job_key(place),
        key_never_reused=place.never_reused,
        job_variables=place.job_variables,
        rank_variable=place.rank_variable or None,
        marker_variable=place.marker_variable or None,
        host=_machine_name(environ, place, name),
        hostname=name,
        pod=_pod_name(environ, hostname),
        node_list=_node_list(environ, place, read_file or _read_node_file, notes),
        pid=os.getpid(),
        notes=(*place.notes, *notes),
    )


def single_identity(hostname: str | None = None) -> RankIdentity:
    """A process that stands alone, whatever the environment says."""
    return detect_identity({}, hostname)


def _place(environ: Environ, notes: list[str], entered_from_outside: Callable[[str], bool]) -> Place:
    for read in LAUNCHERS:
        place = read(environ)
        if place is None:
            continue
        in_container_variables = place.launcher in (Launcher.MANUAL, Launcher.KUBERNETES)
        if in_container_variables and entered_from_outside(place.rank_variable):
            notes.append(
                f"{place.rank_variable}={place.rank} belongs to the container; this process was started by "
                "hand and stands alone"
            )
            return _alone()
        return _without_ranks_of_others(place)
    if environ.get("JOB_COMPLETION_INDEX"):
        notes.append(
            f"pod {environ['JOB_COMPLETION_INDEX'][:12]} of an Indexed Job of unknown size: "
            "set WORLD_SIZE to its completions to gather all pods"
        )
    elif environ.get("RANK"):
        notes.append("RANK is set but WORLD_SIZE is not: taken as a single process")
    return _alone()


def _without_ranks_of_others(place: Place) -> Place:
    """Drop a local rank or size that cannot be: it would only mislead."""
    size = place.local_world_size
    if size is not None and size > place.world_size:
        size = None
    local_rank = place.local_rank
    if local_rank is not None and local_rank >= (size or place.world_size):
        local_rank = None
    return replace(place, local_world_size=size, local_rank=local_rank)


def _alone() -> Place:
    return Place(
        launcher=Launcher.NONE,
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        node_rank=0,
        num_nodes=1,
        ranks_here=(0,),
        rank_variable="",
        marker_variable="",
        job_name=f"pid {os.getpid()}",
    )


def _job_key(place: Place) -> str:
    parts = [place.launcher.value, str(place.world_size), place.job_name]
    parts += [f"{name}={value[:256]}" for name, value in place.job_variables]
    return "|".join(parts)


def _port(environ: Environ, notes: list[str]) -> int | None:
    text = environ.get("MASTER_PORT", "").strip()
    if not text:
        return None
    if text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65_536:
        return int(text)
    notes.append(f"MASTER_PORT=`{text[:20]}` is not a port")
    return None


def _machine_name(environ: Environ, place: Place, name: str) -> str:
    """Slurm's name for the node, or Kubernetes' for the pod's node, or what the machine calls itself.

    Hydra and `mpirun -x` carry the first node's variables to all others, so that only launchers which run
    below each node's own Slurm daemon are believed.
    """
    if place.launcher in (Launcher.SLURM, Launcher.TORCHRUN) and is_slurm_step(environ):
        return short_name(environ.get("SLURMD_NODENAME") or name)
    if "KUBERNETES_SERVICE_HOST" in environ:
        for variable in _NODE_NAME_VARIABLES:
            if environ.get(variable):
                return short_name(environ[variable])
    return name


def _pod_name(environ: Environ, hostname: str | None) -> str | None:
    if "KUBERNETES_SERVICE_HOST" not in environ:
        return None
    return environ.get("POD_NAME") or environ.get("HOSTNAME") or hostname or socket.gethostname()


def _node_list(
    environ: Environ, place: Place, read_file: Callable[[str], str], notes: list[str]
) -> tuple[str, ...]:
    try:
        return _scheduler_hosts(environ, place, read_file)
    except (ValueError, OSError) as error:
        notes.append(f"the scheduler's node list cannot be used: {error}")
        return ()


def _scheduler_hosts(environ: Environ, place: Place, read_file: Callable[[str], str]) -> tuple[str, ...]:
    in_step = is_slurm_step(environ) and place.launcher in (
        Launcher.SLURM,
        Launcher.TORCHRUN,
        Launcher.MANUAL,
    )
    slurm = ("SLURM_STEP_NODELIST",) if in_step else ()
    for variable in (*slurm, "SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        if environ.get(variable):
            return expand_node_list(environ[variable])
    if environ.get("LSB_MCPU_HOSTS") or environ.get("LSB_HOSTS"):
        return hosts_of_lsf(environ.get("LSB_HOSTS"), environ.get("LSB_MCPU_HOSTS") or None)
    for variable in ("LSB_DJOB_HOSTFILE", "PBS_NODEFILE"):
        if environ.get(variable):
            return hosts_of_node_file(read_file(environ[variable]))
    return ()


def _read_node_file(path: str) -> str:
    with Path(path).open(encoding="utf-8", errors="replace") as stream:
        return stream.read(MAX_TEXT_CHARS)


def rank_in(
    environ: Mapping[str, str],
    entered_from_outside: Callable[[str], bool] = entered_container_from_outside,
) -> int | None:
    """The rank by the environment, or None when the variables make no sense. Never raises."""
    try:
        return _place(environ, [], entered_from_outside).rank
    except UsageError:
        return None

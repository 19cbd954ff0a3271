"""Where the ranks of a launch meet, by whatever launcher started them. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distdoctor.errors import DistdoctorError
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.launchers import Launcher

JOIN_TIMEOUT_S = 90.0
"""How long ranks wait for one another at first: imports of torch on a cold file system. Our own choice."""

# Jobs that share a host must not meet on one port; below Linux's ephemeral range (32768). Our own choice.
_FIRST_PORT, _NUM_PORTS = 20_000, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Address of the store, and whether this rank's process serves it."""

    address: str
    port: int
    """0: any, for a rank that stands alone."""
    serves: bool


def meeting_of(identity: RankIdentity, environ: Mapping[str, str]) -> Meeting:
    """The meeting point. Under torchrun its agent serves the store; elsewhere rank 0 does.

    Raises DistdoctorError, with the command that mends it, when nothing tells where rank 0 is.
    """
    first = identity.rank == 0
    agent_serves = environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"
    if identity.world_size == 1 and not agent_serves:
        return Meeting(address="127.0.0.1", port=0, serves=True)
    if identity.master_addr and identity.master_port:
        return Meeting(
            address=identity.master_addr, port=identity.master_port, serves=first and not agent_serves
        )
    if identity.launcher is Launcher.SLURM and identity.node_list:
        job = dict(identity.job_variables).get("SLURM_JOB_ID", "0")
        number = int(job) if job.isdecimal() and len(job) < 12 else 0
        return Meeting(
            address=identity.master_addr or identity.node_list[0],
            port=identity.master_port or _FIRST_PORT + number % _NUM_PORTS,
            serves=first,
        )
    raise DistdoctorError(
        "nothing tells the ranks where to meet: MASTER_ADDR and MASTER_PORT are not set",
        hint=f"{_how(identity)}, with the host of rank 0 and a free port",
    )


def _how(identity: RankIdentity) -> str:
    if identity.launcher is Launcher.OPEN_MPI:
        return "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 …"
    return "export MASTER_ADDR=HOST MASTER_PORT=29500"

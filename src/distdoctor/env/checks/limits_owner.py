"""Whose limits are these, and where are they raised? Shared by the checks of limits."""

from __future__ import annotations

from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Team


def stands_for_job(facts: EnvFacts) -> bool:
    """True when the process' limits are the job's: it is a rank, or in the job's container.

    A login shell has other limits than what slurmd or a service manager starts.
    """
    container = facts.container
    return is_rank(facts) or (container is not None and container.kind not in (None, "none"))


def limit_action(facts: EnvFacts, name: str, value: str, docker_value: str) -> Action:
    """How to raise a limit where this process was started: container runtime, Slurm or login."""
    kind = facts.container.kind if facts.container is not None else None
    scheduler = facts.scheduler.scheduler if facts.scheduler is not None else None
    upper = name.upper()
    systemd = "infinity" if value == "unlimited" else value
    if kind == "kubernetes":
        lock = (
            " (for locked memory, the capability IPC_LOCK in the pod does as well)"
            if name == "memlock"
            else ""
        )
        return Action(
            team=Team.PLATFORM,
            text=f"Kubernetes: pods inherit the limit of the container runtime's service; raise it there{lock}",
            command=f"sudo systemctl edit containerd   # [Service] Limit{upper}={systemd}",
        )
    if kind in ("docker", "podman"):
        return Action(
            team=Team.JOB_OWNER,
            text="Start the container with the limit raised",
            command=f"{kind} run --ulimit {name}={docker_value} …",
        )
    if scheduler == "slurm":
        return Action(
            team=Team.PLATFORM,
            text=(
                f"Slurm: give slurmd Limit{upper}={systemd}, and keep the submitting shell's limit out of the job "
                f"(slurm.conf: PropagateResourceLimitsExcept={upper})"
            ),
            command=f"systemctl show slurmd -p Limit{upper}; scontrol show config | grep -i propagate",
        )
    return Action(
        team=Team.PLATFORM,
        text="Raise it for all users, then log in again (services need it in their unit file)",
        command=f"echo '* - {name} {value}' | sudo tee /etc/security/limits.d/90-{name}.conf",
    )


def is_rank(facts: EnvFacts) -> bool:
    """True when a launcher started this process as a rank."""
    return facts.scheduler is not None and facts.scheduler.rank is not None


def not_the_job(facts: EnvFacts) -> str:
    """A sentence for the explanation when the limit seen need not be the job's; else empty."""
    if stands_for_job(facts):
        return ""
    return (
        " This is the limit of the shell that distdoctor runs in; the job's may differ (look with `--pid`)."
    )

"""Does systemd remove a job's shared memory when its user logs out?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

SOURCE = "NCCL user guide, troubleshooting: shared memory, systemd"

# These have a /dev/shm of their own, which the host's logind does not touch.
OWN_SHM = ("docker", "podman", "kubernetes", "lxc", "container")

# Launchers and schedulers whose processes run on a host where their user is not logged in.
WITHOUT_LOGIN = ("openmpi", "pmi")


def check_remove_ipc(facts: EnvFacts) -> Sequence[Outcome]:
    """RemoveIPC=yes where Slurm or mpirun start processes: a warning. Root's files are never removed."""
    kind = facts.container.kind if facts.container is not None else None
    if kind in OWN_SHM:
        return [NotApplicable(detail=f"a container ({kind}) has its own /dev/shm")]
    if kind in ("singularity", "enroot"):
        return [
            NotSeen(
                unread=Unread(
                    cause=SkipCause.IN_CONTAINER,
                    reason="the image hides the host's logind.conf",
                    how="on the host: grep -rs RemoveIPC /etc/systemd",
                )
            )
        ]
    host = facts.host
    if host is None or host.remove_ipc is None:
        unread = host.unread.get("remove_ipc") if host is not None else None
        if unread is not None and unread.cause is SkipCause.ABSENT:
            return [NotApplicable(detail="no systemd-logind here")]
        return [missing(facts, "host.remove_ipc")]
    if not host.remove_ipc:
        return [Passed(detail="RemoveIPC is off")]
    scheduler = facts.scheduler
    if scheduler is None:
        return [missing(facts, "scheduler.scheduler")]
    by_slurm = scheduler.scheduler in ("slurm", "pbs", "lsf") or bool(scheduler.on_login_node)
    if not by_slurm and scheduler.launcher not in WITHOUT_LOGIN:
        return [
            Passed(detail="RemoveIPC is on; no scheduler seen that runs jobs of users who are not logged in")
        ]
    return [
        Found(
            title="the system deletes a job's shared memory when its user logs out",
            severity=Severity.WARNING,
            confidence=Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text="RemoveIPC of systemd-logind is on",
                    value=True,
                    expected="no",
                    expected_source=SOURCE,
                    source=host.sources.get("remove_ipc"),
                ),
            ),
            explanation=(
                "When a user's last login session on a host ends, logind removes that user's files in /dev/shm, "
                "those of a running job too. NCCL then fails at start with `unlink shared memory … No such file`."
            ),
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="Turn it off on compute hosts",
                    command=(
                        "sudo mkdir -p /etc/systemd/logind.conf.d && printf '[Login]\\nRemoveIPC=no\\n' | "
                        "sudo tee /etc/systemd/logind.conf.d/ipc.conf && sudo systemctl restart systemd-logind"
                    ),
                ),
            ),
            cause_class="host:shm_removed",
            fault=Fault.CONFIG,
        )
    ]


CHECK = Check(id="remove-ipc", title="shared memory after logout", run=check_remove_ipc, preflight=True)

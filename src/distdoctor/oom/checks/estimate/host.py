"""What offloading and loading ask of the hosts' memory."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.estimate.base import SOURCE, EstimateCheck, gib
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.report.checking import Found, NotApplicable, Outcome
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# GPUs of a host where nothing is said: the usual server.
USUAL_GPUS = 8


def _run(facts: EstimateFacts) -> Sequence[Outcome]:
    worst = facts.estimate.worst
    if not worst.host_bytes:
        return [NotApplicable(detail="nothing is offloaded to host memory")]
    said = facts.job.said.gpus_per_node or (facts.cluster.gpus_per_node if facts.cluster else None)
    gpus = min(said or USUAL_GPUS, facts.job.mesh.num_ranks)
    total = gpus * worst.host_bytes
    assumed = "" if said else f" ({gpus} GPUs a host assumed)"
    return [
        Found(
            title=f"offloading needs {gib(total)} of memory on each host",
            evidence=(
                Evidence(
                    text=f"{gib(worst.host_bytes)} for each rank: {worst.host_how}; {gpus} ranks on a host{assumed}",
                    value=round(total),
                    unit="B",
                    source=SOURCE,
                ),
            ),
            explanation="Pinned memory cannot be swapped; when it runs out the kernel kills a rank with signal 9.",
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="compare with the memory that the job may use on a host (and its cgroup or container limit)",
                    command="grep MemAvailable /proc/meminfo; cat /sys/fs/cgroup/memory.max",
                ),
            ),
            severity=Severity.INFO,
            confidence=Confidence.MEDIUM,
            cause_class="host-ram",
            fault=Fault.HOST,
        )
    ]


CHECK = EstimateCheck(id="oom-estimate-host", title="host memory for what is offloaded", run=_run)

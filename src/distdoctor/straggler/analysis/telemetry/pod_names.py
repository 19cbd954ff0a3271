"""Which pods are one job, by their names? Only where the evidence tells no job.

Names of Kubernetes' controllers: `NAME-worker-3` and `NAME-master-0` (Kubeflow, Volcano), `NAME-ROLE-0-3-x7k2p` (JobSet),
`NAME-3-x7k2p` (indexed Job), `NAME-12` (StatefulSet), `NAME-6d4cf56db6-x7k2p` (Deployment), `NAME-worker-GROUP-x7k2p`
(KubeRay). Suffixes that are drawn at random have no vowels and none of 0, 1 and 3
(k8s.io/apimachinery/pkg/util/rand: "bcdfghjklmnpqrstvwxz2456789").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from distdoctor.straggler.analysis.telemetry.job_time import MIN_GPUS

_RANDOM = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}")
_HASH = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{8,10}")
_ORDINAL = re.compile(r"[0-9]{1,5}")

# Roles of pods in one job.
_ROLES = frozenset(
    [
        "worker",
        "workers",
        "master",
        "launcher",
        "chief",
        "leader",
        "head",
        "ps",
        "server",
        "node",
        "nodes",
        "trainer",
        "rank",
        "replica",
        "task",
        "pod",
    ]
)
# Those after which names of groups may follow.
_ROLES_WITHIN = frozenset(("worker", "workers", "master", "launcher", "head"))

# The groups are taken for jobs when so many of the GPUs are in one of `MIN_GPUS` at least; else the names tell something
# else than jobs. Our own threshold.
GROUPED_SHARE = 0.5


def job_of_pod(pod: str) -> str:
    """The pod's name without what tells it from the others of its job: ordinals, role and random letters."""
    parts = pod.split("-")
    ordinals = 1
    if len(parts) > 1 and _RANDOM.fullmatch(parts[-1]):
        parts.pop()
        if len(parts) > 1 and _HASH.fullmatch(parts[-1]):
            parts.pop()
        else:
            ordinals = 2
    while ordinals and len(parts) > 1 and _ORDINAL.fullmatch(parts[-1]):
        parts.pop()
        ordinals -= 1
    if len(parts) > 1 and parts[-1] in _ROLES:
        parts.pop()
    else:
        within = [at for at, part in enumerate(parts) if at and part in _ROLES_WITHIN]
        parts = parts[: within[-1]] if within else parts
    return "-".join(parts)


def jobs_of_pods(pods: Sequence[str | None]) -> list[str | None]:
    """The job of each GPU by its pod; all None when names do not make groups of pods that can be compared."""
    job_of = {pod: job_of_pod(pod) for pod in pods if pod is not None}
    sizes = Counter(job_of[pod] for pod in pods if pod is not None)
    grouped = sum(size for size in sizes.values() if size >= MIN_GPUS)
    joins_pods = len(set(job_of.values())) < len(job_of)
    if not joins_pods or grouped < GROUPED_SHARE * sum(sizes.values()):
        return [None] * len(pods)
    return [None if pod is None else job_of[pod] for pod in pods]

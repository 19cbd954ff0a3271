"""Did the shared memory of the host or container run full?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import Family
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_host_shm(facts: Explained) -> Sequence[Outcome]:
    """Critical for bus errors of data workers and for segments that could not be made."""
    return outcomes(_TOPIC, facts)


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del judged, facts
    return (
        Action(
            team=Team.PLATFORM,
            text="size and use of /dev/shm inside the container",
            command="df -h /dev/shm; ls -lhS /dev/shm | head",
        ),
        Action(
            team=Team.PLATFORM,
            text="more of it: `--shm-size=16g` or `--ipc=host`; in Kubernetes an emptyDir with `medium: Memory` at /dev/shm",
        ),
    )


_TOPIC = Topic(
    causes=(Cause.HOST_SHM,),
    applies=lambda judged: judged.event.family is Family.SHARED_MEMORY,
    decides=lambda _judged: True,
    passed=lambda _told: "",
    not_applicable="no message is about shared memory",
    unread="",
    how="",
    explanation=lambda _judged: (
        "Data workers hand over batches in /dev/shm, and NCCL moves data between GPUs of a host through it. Docker gives 64 MiB by default."
    ),
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-host-shm", title="shared memory of the host", run=check_host_shm)

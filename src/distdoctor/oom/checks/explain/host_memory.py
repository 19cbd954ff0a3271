"""Did the host's memory run out rather than the GPU's?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import Family, Phase
from distdoctor.report.checking import Outcome, Passed
from distdoctor.report.model import Action, Team

_FAMILIES = frozenset((Family.HOST_ALLOCATOR, Family.HOST_KILL))


def check_host_memory(facts: Explained) -> Sequence[Outcome]:
    """Critical for kills by kernel, cgroup, scheduler or Ray and for refused allocations; medium for a bare SIGKILL."""
    killed = [each for each in facts.judged if each.event.family is Family.HOST_KILL]
    if killed and facts.facts.on_gpu and not any(each.event.is_certain_kill for each in killed):
        others = [each for each in facts.judged if each.event.family is Family.HOST_ALLOCATOR]
        if not others:
            return [
                Passed(
                    detail=f"{len(killed)} killed after GPU memory ran out elsewhere; launchers end the others"
                )
            ]
    return outcomes(_TOPIC, facts)


def _explanation(judged: Judged) -> str:
    if judged.event.family is Family.HOST_ALLOCATOR:
        return "The host refused memory to the process. GPU settings do not change that."
    if judged.event.is_certain_kill:
        return (
            "The kernel, a container's limit or the scheduler ended the process for its host memory; it left no traceback. "
            "GPU settings do not change that."
        )
    return (
        "SIGKILL leaves no word. The kernel's or container's out-of-memory killer is the usual sender; a person, a scheduler's "
        "time limit or a health check are others. The kernel's log or the pod's state decides."
    )


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    pid = judged.event.pid
    look = Action(
        team=Team.PLATFORM,
        text="what ended it, and how much it held: kernel log, the container's state, the scheduler's record",
        command="dmesg -T | grep -iE 'out of memory|oom-kill|killed process' | tail"
        + (f" | grep -E '{pid}|oom'" if pid else "")
        + "; kubectl describe pod POD | grep -A4 'Last State'; sacct -j JOB -o JobID,State,ReqMem,MaxRSS",
    )
    limit = Action(
        team=Team.PLATFORM,
        text="the limit that counted, and what counts against it (/dev/shm and page-locked memory do)",
        command="cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.peak /sys/fs/cgroup/memory.events; free -g",
    )
    loading = judged.event.phase in (Phase.INITIALISATION, Phase.UNKNOWN)
    need = Action(
        team=Team.JOB_OWNER,
        text=(
            "ranks of a host that each load the whole checkpoint need its size once for each rank: load on one rank or on the meta device, "
            "memory-map, fewer data workers, less offloading"
            if loading
            else "fewer data workers, less prefetching, less offloading to the host"
        ),
        command="distdoctor oom config LAUNCH_CONFIG",
    )
    return look, limit, need


_TOPIC = Topic(
    causes=(Cause.HOST_RAM,),
    applies=lambda judged: judged.event.family in _FAMILIES,
    decides=lambda _judged: True,
    passed=lambda _told: "what failed on the host was no lack of memory",
    not_applicable="no message is about the host's memory",
    unread="the host's own log was not given",
    how="dmesg -T | grep -iE 'out of memory|oom-kill'",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-host-memory", title="memory of the host", run=check_host_memory)

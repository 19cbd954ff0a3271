"""Was it page-locked memory of the host that ran out, reported as the GPU's?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import Family
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_host_pinned(facts: Explained) -> Sequence[Outcome]:
    """Critical when a bare `CUDA error: out of memory` comes from pinning memory."""
    return outcomes(_TOPIC, facts)


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del judged
    deepspeed = "DeepSpeed" in facts.facts.hints.strategies
    switch = (
        'set "pin_memory": false in offload_optimizer and offload_param'
        if deepspeed
        else "pin less: `pin_memory=False` for what is large (offloaded states), fewer workers and less prefetching"
    )
    return (
        Action(team=Team.JOB_OWNER, text=switch),
        Action(
            team=Team.PLATFORM,
            text="limits on locked memory, and what is free on the host",
            command="ulimit -l; grep -iE 'locked' /proc/self/limits; free -g; cat /sys/fs/cgroup/memory.max",
        ),
    )


_TOPIC = Topic(
    causes=(Cause.HOST_PINNED,),
    applies=lambda judged: judged.event.family is Family.DRIVER,
    decides=lambda judged: bool(judged.event.frames),
    passed=lambda _told: "no traceback pins memory",
    not_applicable="no message is of the GPU driver or runtime",
    unread="no traceback shows which call failed",
    how="give the log with the traceback above the message",
    explanation=lambda _judged: (
        "cudaHostAlloc and cudaHostRegister report a lack of host memory as `out of memory`, in the same words as the GPU's. Memory of the GPU "
        "is not what is missing."
    ),
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-host-pinned", title="page-locked memory of the host", run=check_host_pinned)

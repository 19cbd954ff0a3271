"""Was memory refused although more was free than was asked for?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, Family
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team
from distdoctor.units import format_bytes


def check_driver_limit(facts: Explained) -> Sequence[Outcome]:
    """Critical when a request fails that is smaller than what is free, and no limit of the job explains it."""
    return outcomes(_TOPIC, facts)


def _explanation(judged: Judged) -> str:
    event = judged.event
    if event.is_block_limit:
        return (
            f"{format_bytes(event.requested_bytes or 0)} were asked for in one block, and this device admits none of that size: it is "
            "not the amount of memory. Smaller tensors fit, as far as memory goes."
        )
    free, asked = format_bytes(event.free_bytes or 0), format_bytes(event.requested_bytes or 0)
    text = f"{free} were free and {asked} were asked for: it is not the amount of memory. "
    if event.family is Family.XPU:
        return (
            text
            + "Intel GPUs refuse a single allocation above about 4 GiB unless the runtime is told otherwise."
        )
    return text + (
        "What else refuses: the number of mappings that driver or kernel allow (many small segments), the page file of Windows, "
        "memory that was freed between the refusal and the count, or a limit on the process that the message does not show."
    )


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    if judged.event.is_block_limit:
        text = "smaller tensors: split this one along batch or sequence; the runtime's own limit for one block, where it can be raised"
        return (Action(team=Team.JOB_OWNER, text=text),)
    actions = []
    if facts.facts.hints.is_windows or (
        judged.event.family is Family.CUDA and not judged.event.others and judged.event.process_bytes is None
    ):
        actions.append(
            Action(
                team=Team.PLATFORM,
                text="on Windows: every allocation on the GPU needs as much page file or memory of the host; look at what is committed",
                command="powershell \"Get-Counter '\\Memory\\Committed Bytes','\\Memory\\Commit Limit'\"",
            )
        )
    actions += [
        Action(
            team=Team.PLATFORM,
            text="mappings of the process against the kernel's limit, and what the driver says",
            command="cat /proc/sys/vm/max_map_count; wc -l /proc/PID/maps; dmesg -T | grep -iE 'nvrm|amdgpu|kfd' | tail",
        ),
        Action(
            team=Team.JOB_OWNER,
            text="whether a limit is set on the process",
            command="python -c 'import torch; print(torch.cuda.get_per_process_memory_fraction(0))'; env | grep ALLOC_CONF",
        ),
    ]
    return tuple(actions)


_TOPIC = Topic(
    causes=(Cause.DRIVER_LIMIT,),
    applies=lambda judged: judged.event.family in CACHING_ALLOCATORS | {Family.CUDA_ASYNC},
    decides=lambda judged: judged.event.free_bytes is not None and judged.event.requested_bytes is not None,
    passed=lambda told: f"less was free than was asked for, or a limit explains it ({len(told)} messages)",
    not_applicable="no message is of an allocator that tells what was free",
    unread="the messages do not tell how much was free on the GPU",
    how="give the whole message, from `Tried to allocate` to `reserved by PyTorch`",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(
    id="oom-driver-limit", title="requests smaller than what was free", run=check_driver_limit
)

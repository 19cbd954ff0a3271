"""Does PyTorch's pool hold enough idle memory, in pieces that are too small?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.fixes import smaller_job
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, Family
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team
from distdoctor.units import format_bytes


def check_fragmentation(facts: Explained) -> Sequence[Outcome]:
    """Critical when idle memory of the pool is at least the request and more than a tenth of the card."""
    return outcomes(_TOPIC, facts)


def _explanation(judged: Judged) -> str:
    idle, asked = judged.event.unallocated_bytes or 0, judged.event.requested_bytes or 0
    return (
        f"{format_bytes(idle)} are reserved and idle, {format_bytes(asked)} were asked for in one piece. Before it gives up the "
        "allocator returns every block that is idle as a whole; what is left idle lies between tensors that live."
    )


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    if facts.facts.hints.expandable_segments:
        return (
            Action(
                team=Team.JOB_OWNER,
                text="expandable segments are on already: look at what is left idle, and why, in a memory snapshot",
                command="distdoctor oom explain snapshot.pickle",
            ),
            *smaller_job(judged),
        )
    return (_segments(judged),)


def _segments(judged: Judged) -> Action:
    if judged.event.family is Family.NPU:
        return Action(
            team=Team.JOB_OWNER,
            text="let segments grow instead of adding new ones",
            command="export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True",
        )
    old = judged.event.family is Family.CUDA and "reserved in total" in judged.event.sentence
    if old or "capacty" in judged.event.sentence:
        return Action(
            team=Team.JOB_OWNER,
            text="let segments grow instead of adding new ones (PyTorch 2.1 and later); on older ones limit splitting",
            command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True   # before 2.1: max_split_size_mb:512",
        )
    return Action(
        team=Team.JOB_OWNER,
        text="let segments grow instead of adding new ones",
        command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    )


def _passed(told: Sequence[Judged]) -> str:
    most = max(told, key=lambda each: each.event.unallocated_bytes or 0)
    idle, asked = most.event.unallocated_bytes or 0, most.event.requested_bytes or 0
    return f"at most {format_bytes(idle)} idle in the pool, with {format_bytes(asked)} asked for"


_TOPIC = Topic(
    causes=(Cause.FRAGMENTATION,),
    applies=lambda judged: judged.event.family in CACHING_ALLOCATORS,
    decides=lambda judged: (
        judged.event.unallocated_bytes is not None and judged.event.requested_bytes is not None
    ),
    passed=_passed,
    not_applicable="no message is of PyTorch's caching allocator",
    unread="the messages do not tell what is reserved and idle",
    how="give the whole message, or the output of torch.cuda.memory_summary()",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-fragmentation", title="idle memory in PyTorch's pool", run=check_fragmentation)

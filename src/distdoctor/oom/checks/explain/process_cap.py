"""Did the job run into a limit that was set on itself, while the GPU had memory free?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, Family
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_process_cap(facts: Explained) -> Sequence[Outcome]:
    """Critical when a limit is shown and reached, or a round share of the card explains the refusal."""
    return outcomes(_TOPIC, facts)


def _explanation(judged: Judged) -> str:
    known = (
        "The message shows the limit."
        if judged.event.allowed_bytes
        else "Until PyTorch 2.2 the message does not show a limit; that one is set follows from memory that was free."
    )
    return (
        "PyTorch counts its own pool against a share of the card that the program, or a platform's wrapper, has set. "
        f"{known} A smaller model is not what is needed first: the card had room."
    )


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del judged, facts
    return (
        Action(
            team=Team.PLATFORM,
            text="who sets the limit, and whether it should be as low",
            command="grep -RnE 'per_process_memory_fraction|gpu_memory_utilization|mem_fraction' TRAINING_SCRIPTS; env | grep ALLOC_CONF",
        ),
        Action(
            team=Team.JOB_OWNER,
            text="the limit as PyTorch sees it, from inside the job",
            command="python -c 'import torch; print(torch.cuda.get_per_process_memory_fraction(0))'",
        ),
    )


_TOPIC = Topic(
    causes=(Cause.PROCESS_CAP,),
    applies=lambda judged: judged.event.family in CACHING_ALLOCATORS | {Family.CUDA_ASYNC},
    decides=lambda judged: judged.event.free_bytes is not None and judged.event.requested_bytes is not None,
    passed=lambda told: f"no limit is shown, and the GPU itself was full ({len(told)} messages)",
    not_applicable="no message is of an allocator that knows a limit",
    unread="the messages do not tell how much was free on the GPU",
    how="give the whole message, from `Tried to allocate` to `reserved by PyTorch`",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-process-cap", title="a memory limit on the process", run=check_process_cap)

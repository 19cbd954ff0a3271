"""Does the runtime show less memory than the card should have?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import ON_HOST, Family
from distdoctor.report.checking import NotSeen, Outcome, Passed, Unread
from distdoctor.report.model import Action, SkipCause, Team
from distdoctor.units import format_bytes


def check_wrong_capacity(facts: Explained) -> Sequence[Outcome]:
    """Critical when the log names a larger card than the runtime shows, or an APU shows only a part of its memory."""
    found = outcomes(_TOPIC, facts)
    if isinstance(found[0], Passed) and not facts.facts.hints.gpu_names:
        return [NotSeen(unread=_NO_NAME)]
    return found


def _explanation(judged: Judged) -> str:
    if judged.event.family is Family.HIP and not judged.event.allocated_bytes:
        return (
            "The first request of the process fails, on a card whose size is that of no discrete one: of an APU the runtime sees "
            "only what firmware or driver gives to the GPU. The job's own settings do not change that."
        )
    return (
        "The card that the log names has more memory than the runtime shows: a MIG slice, a virtual GPU, a part that firmware "
        "holds back, or another card than the one that was meant."
    )


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    if judged.event.family is Family.HIP:
        return (
            Action(
                team=Team.PLATFORM,
                text="what firmware and driver give to the GPU (UMA or VRAM size in the BIOS, `amdgpu.gttsize`, `ttm.pages_limit`)",
                command="rocm-smi --showmeminfo vram gtt; cat /sys/module/ttm/parameters/pages_limit",
            ),
        )
    return (
        Action(
            team=Team.PLATFORM,
            text="which card or slice the job was given",
            command="nvidia-smi -L; nvidia-smi --query-gpu=index,name,memory.total,mig.mode.current --format=csv; echo $CUDA_VISIBLE_DEVICES",
        ),
    )


_NO_NAME = Unread(
    cause=SkipCause.NOT_IN_EVIDENCE,
    reason="the log does not say which card it should be",
    how="nvidia-smi --query-gpu=index,name,memory.total --format=csv",
)

_TOPIC = Topic(
    causes=(Cause.WRONG_CAPACITY,),
    applies=lambda judged: judged.event.family not in ON_HOST,
    decides=lambda judged: judged.event.total_bytes is not None,
    passed=lambda told: (
        "the runtime shows "
        + ", ".join(sorted({format_bytes(each.event.total_bytes or 0) for each in told})[:4])
        + "; nothing in the log names a larger card"
    ),
    not_applicable="no message is about a GPU",
    unread="the messages do not tell the size of the GPU",
    how="nvidia-smi --query-gpu=index,name,memory.total --format=csv",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(
    id="oom-wrong-capacity", title="size of the GPU as the runtime shows it", run=check_wrong_capacity
)

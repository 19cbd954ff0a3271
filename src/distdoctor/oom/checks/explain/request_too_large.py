"""Was a single tensor asked for that is larger than the whole GPU?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import ON_HOST
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_request_too_large(facts: Explained) -> Sequence[Outcome]:
    """Critical when the request alone exceeds the card."""
    return outcomes(_TOPIC, facts)


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    where = judged.event.frames[-1] if judged.event.frames else None
    at = f" (`{where.code[:60] or where.function}`)" if where is not None else ""
    return (
        Action(
            team=Team.JOB_OWNER,
            text=f"which tensor it is{at}: an attention matrix written out (use flash or memory-efficient attention), logits of a whole "
            "batch (compute the loss in chunks), or a sequence that is far longer than meant",
            command="CUDA_LAUNCH_BLOCKING=1 python TRAINING_SCRIPT  # the traceback then names the operation",
        ),
    )


_TOPIC = Topic(
    causes=(Cause.REQUEST_TOO_LARGE,),
    applies=lambda judged: judged.event.family not in ON_HOST,
    decides=lambda judged: (
        judged.event.requested_bytes is not None
        and (judged.event.total_bytes or judged.event.allowed_bytes) is not None
    ),
    passed=lambda told: f"every request is smaller than the GPU ({len(told)} messages)",
    not_applicable="no message is about a GPU",
    unread="the messages do not tell the request and the GPU's size",
    how="give the whole message, from `Tried to allocate` to `reserved by PyTorch`",
    explanation=lambda _judged: (
        "One tensor alone is larger than the card. No freeing, sharding of states or allocator setting makes it "
        "fit: the operation has to be done in parts."
    ),
    actions=_actions,
)

CHECK = ExplainCheck(
    id="oom-request-too-large", title="requests against the size of the GPU", run=check_request_too_large
)

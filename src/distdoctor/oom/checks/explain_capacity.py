"""Do the job's own live tensors fill the GPU: logits, activations, or all of it?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain_base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain_cause import Cause, Judged
from distdoctor.oom.explain_fixes import ESTIMATE, smaller_job
from distdoctor.oom.explained import Explained
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, ON_HOST, Phase
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_capacity(facts: Explained) -> Sequence[Outcome]:
    """Critical when neither others, a limit nor idle memory explain the refusal: the job needs more than there is."""
    return outcomes(_TOPIC, facts)


def _explanation(judged: Judged) -> str:
    match judged.cause:
        case Cause.LOGITS:
            return (
                "Logits take tokens x vocabulary x 2 to 4 bytes, and the loss holds several copies of them (fp32, softmax, gradient): "
                "14 to 16 bytes for each token and entry at the peak."
            )
        case Cause.ACTIVATIONS:
            return (
                "Refused inside a layer, with live tensors filling the card: what the forward pass keeps for the backward pass grows with "
                "tokens and layers."
            )
        case _:
            if judged.event.phase is Phase.INITIALISATION:
                return "The model, or what is loaded with it, fills the card before the first step."
            if judged.event.total_bytes is None:
                return "The message was cut, or never held sizes: that the job itself is too large is the usual case, not a measured one."
            if judged.alternative is Cause.OTHER_PROCESS:
                return (
                    "Live tensors of the job fill the card. Another process holds a little of it: without that, this one request would have "
                    "fitted, and the next one perhaps not."
                )
            return "Live tensors of the job fill the card; little is idle in PyTorch's pool, and nobody else holds what is missing."


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    if judged.cause is Cause.LOGITS and judged.event.phase is not Phase.EVALUATION:
        return (
            Action(
                team=Team.JOB_OWNER,
                text="compute the loss without holding all logits: fused linear cross entropy (Liger, cut-cross-entropy), chunks of tokens, "
                "or loss-parallel logits under tensor parallelism; fewer tokens in a micro-batch",
                command=ESTIMATE.replace("--compare", "--fused-loss"),
            ),
        )
    if judged.cause is Cause.ACTIVATIONS and judged.event.phase not in (Phase.EVALUATION, Phase.GENERATION):
        return (
            Action(
                team=Team.JOB_OWNER,
                text="activation checkpointing, a smaller micro-batch with more accumulation steps, or shorter sequences (context "
                "parallelism); fused attention where the matrix of scores is written out",
                command=ESTIMATE.replace("--compare", "--checkpointing full"),
            ),
        )
    return smaller_job(judged)


_TOPIC = Topic(
    causes=(Cause.CAPACITY, Cause.LOGITS, Cause.ACTIVATIONS),
    applies=lambda judged: judged.event.family not in ON_HOST,
    decides=lambda judged: judged.cause is not Cause.UNKNOWN and judged.event.family in CACHING_ALLOCATORS,
    passed=lambda told: f"another cause than the job's size explains it ({told[0].cause.value})",
    not_applicable="no message is about a GPU",
    unread="the messages do not tell what the GPU holds",
    how="give the whole message, from `Tried to allocate` to `reserved by PyTorch`",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-capacity", title="the job's own tensors against the GPU", run=check_capacity)

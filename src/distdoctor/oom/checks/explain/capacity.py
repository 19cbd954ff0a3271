"""Do the job's own live tensors fill the GPU: logits, activations, or all of it?"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.fixes import ESTIMATE, smaller_job
from distdoctor.oom.explain.imbalance import in_experts, uneven_actions
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, ON_HOST, Family, Phase
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
        case Cause.KV_CACHE:
            return (
                "The cache of keys and values takes 2 x layers x kv heads x head size x 2 bytes for each token of each sequence, and stays "
                "until the sequence is done."
            )
        case Cause.STATES:
            return "States of AdamW take 8 bytes a parameter of this rank in fp32; loading holds them beside what is there already."
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
    balance = uneven_actions(judged, facts.facts)
    if not balance:
        return _smaller(judged)
    if in_experts(judged.event):
        return balance
    equal = (
        replace(each, text=f"only where all ranks hold the same: {each.text}") for each in _smaller(judged)
    )
    return (*balance, *equal)


def _smaller(judged: Judged) -> tuple[Action, ...]:
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
    if judged.cause is Cause.STATES:
        text = (
            'load the states to the host first (`map_location="cpu"`) or sharded (torch.distributed.checkpoint), shard them over more '
            "ranks (ZeRO-1, FSDP), or keep them in 8 bit"
        )
        return (Action(team=Team.JOB_OWNER, text=text, command=ESTIMATE),)
    if judged.cause is Cause.KV_CACHE and judged.event.family is Family.SERVER:
        text = "a larger share of the GPU for the server, a shorter longest sequence, more tensor parallelism, or a smaller model"
        command = (
            "vllm serve MODEL --gpu-memory-utilization 0.95 --max-model-len 8192 --tensor-parallel-size 2"
        )
        return (Action(team=Team.JOB_OWNER, text=text, command=command),)
    return smaller_job(judged)


_TOPIC = Topic(
    causes=(
        Cause.CAPACITY,
        Cause.LOGITS,
        Cause.ACTIVATIONS,
        Cause.PARAMETERS,
        Cause.STATES,
        Cause.KV_CACHE,
    ),
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

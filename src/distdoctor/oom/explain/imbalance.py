"""One rank of many ran out of its own memory: what makes ranks of one job differ."""

from __future__ import annotations

import re
from dataclasses import replace

from distdoctor.oom.explain.causes.kinds import Cause, Judged
from distdoctor.oom.facts.events import ON_HOST, ExplainFacts, OomEvent, Phase
from distdoctor.report.model import Action, Confidence, Team

# Causes that are of a batch and of what a rank holds of the model.
_UNEVEN = frozenset((Cause.CAPACITY, Cause.LOGITS, Cause.ACTIVATIONS))
# Where every rank does the same, one that fails first stands for all.
_SAME_FOR_ALL = frozenset(
    (Phase.INITIALISATION, Phase.SAVING, Phase.OPTIMIZER_STEP, Phase.FIRST_OPTIMIZER_STEP)
)

_EXPERTS = re.compile(
    r"(?:^|[\W_])(?:moe|experts?|router|token_dispatch\w*|dispatcher|grouped_(?:mm|gemm|mlp)|gmm|token_permut\w*|(?:un)?permute|megablocks"
    r"|deep_?ep|expert_parallel)(?=$|[\W_])|MoE|Experts?(?=$|[\W_A-Z])|GroupedMLP|SequentialMLP|GroupedLinear|TokenDispatcher|SparseMoe|Router"
)


def in_experts(event: OomEvent) -> bool:
    """Whether the traceback stands in an expert layer, its router, or the exchange of tokens."""
    told = (f"{frame.file} {frame.function} {frame.code}" for frame in event.frames[-12:])
    return any(_EXPERTS.search(each) for each in told)


def is_alone(event: OomEvent, facts: ExplainFacts) -> bool:
    """Whether one rank of several reported that GPU memory ran out."""
    on_gpu = facts.on_gpu
    who = {(each.host, each.rank, each.local_rank, each.pid) for each in on_gpu}
    is_named = event.rank is not None or event.local_rank is not None
    return is_named and len(who) == 1 and (facts.hints.num_ranks or 0) > 1 and event.family not in ON_HOST


def may_be_uneven(judged: Judged, facts: ExplainFacts) -> bool:
    """Whether one rank of many ran out of what a batch takes, so that ranks may be loaded unevenly."""
    event = judged.event
    if judged.cause not in _UNEVEN or event.phase in _SAME_FOR_ALL:
        return False
    return is_alone(event, facts) or (in_experts(event) and _is_one_of_some(event, facts))


def _is_one_of_some(event: OomEvent, facts: ExplainFacts) -> bool:
    """Expert layers of a job whose number of ranks is not told: fewer than all known ranks ran out."""
    failed = {(each.host, each.rank, each.local_rank, each.pid) for each in facts.on_gpu}
    num_ranks = facts.hints.num_ranks
    return event.family not in ON_HOST and (len(failed) < num_ranks if num_ranks else len(failed) == 1)


def less_sure(judged: Judged, facts: ExplainFacts) -> Judged:
    """The same at medium where one rank of many speaks: why it needs more than the others, its message does not hold."""
    if (
        judged.confidence is Confidence.HIGH
        and judged.cause is Cause.CAPACITY
        and may_be_uneven(judged, facts)
    ):
        return replace(judged, confidence=Confidence.MEDIUM)
    return judged


def uneven_words(judged: Judged, facts: ExplainFacts) -> str:
    """What one rank of many may mean; empty where it means nothing."""
    if not may_be_uneven(judged, facts):
        return ""
    if in_experts(judged.event):
        return (
            "Fewer than all ranks ran out, in an expert layer: a router that sends more tokens to the experts of one rank fills that one "
            "first, whatever the batch is on average."
        )
    return (
        "One rank of many reported it. Either it holds more than the others (a longest sequence or an uneven batch, experts with more "
        "tokens, a pipeline stage with the embedding or the loss), or it was the first of equals."
    )


def uneven_actions(judged: Judged, facts: ExplainFacts) -> tuple[Action, ...]:
    """What to look at before the whole job is made smaller; empty where ranks are alike."""
    if not may_be_uneven(judged, facts):
        return ()
    routing = "expert routing: tokens of each expert and rank in that step, a capacity factor or auxiliary loss that bounds them"
    batch = "the batch: the longest sequence in it, padding, packing to equal tokens on all ranks"
    stage = "the pipeline: a stage that holds more layers, the embedding, the loss, or more micro-batches in flight"
    causes = (routing, batch, stage) if in_experts(judged.event) else (batch, routing, stage)
    balance = Action(
        team=Team.JOB_OWNER,
        text=f"imbalance between ranks first; {'; '.join(causes)}",
        command="distdoctor oom estimate --config LAUNCH_CONFIG --on 8xGPU_TYPE   # names the stage that holds most",
    )
    compare = Action(
        team=Team.JOB_OWNER,
        text="memory of all ranks at one moment: one larger, it is that rank; all equal, the job as a whole is too large",
        command="nvidia-smi --query-gpu=index,memory.used --format=csv   # on each host, in the last step before",
    )
    return balance, compare

"""Does sharding bring what it should: is the whole model on each GPU, or are gathered parameters kept?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import CACHING_ALLOCATORS
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_sharding(facts: Explained) -> Sequence[Outcome]:
    """Critical when a job that shards moves its whole model, or is full while it gathers parameters."""
    return outcomes(_TOPIC, facts)


def _explanation(judged: Judged) -> str:
    if judged.cause is Cause.NOT_SHARDED:
        return (
            "The log speaks of sharded parameters, and the traceback moves the whole model to the GPU: it was built outside the context that "
            "shards it (`deepspeed.zero.Init`, meta device and `fully_shard`). Each rank then needs room for all of it."
        )
    return (
        "Refused while parameters are gathered, with nearly all of the card in live tensors. Gathered parameters may stay: too few units are "
        "wrapped, `reshard_after_forward` is off, or ZeRO-3 keeps `stage3_max_live_parameters` (1e9 by default). The message alone does not "
        "tell that from a job that is too large."
    )


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    deepspeed = "DeepSpeed" in facts.facts.hints.strategies
    if judged.cause is Cause.NOT_SHARDED:
        text = (
            "build the model inside `deepspeed.zero.Init()`; with Transformers create TrainingArguments(deepspeed=...) before "
            "`from_pretrained`"
            if deepspeed
            else "build it on the meta device, apply `fully_shard`, then `to_empty` and load sharded weights (FSDP1: "
            "`sync_module_states`, `param_init_fn`, an auto-wrap policy)"
        )
        return (
            Action(team=Team.JOB_OWNER, text=text),
            Action(
                team=Team.JOB_OWNER,
                text="what one rank should hold of it",
                command="distdoctor oom estimate --config LAUNCH_CONFIG --on 8xGPU_TYPE",
            ),
        )
    text = (
        "lower `stage3_max_reuse_distance` and `stage3_prefetch_bucket_size` (`stage3_max_live_parameters` only limits "
        "prefetching); very wide layers need tiling"
        if deepspeed
        else "wrap each transformer block, keep `reshard_after_forward=True`, and see that no unit is much larger than the others "
        "(embedding and head at the root)"
    )
    return (
        Action(team=Team.JOB_OWNER, text=text),
        Action(
            team=Team.JOB_OWNER,
            text="what one rank should hold, to compare with the tensors that the message counts",
            command="distdoctor oom estimate --config LAUNCH_CONFIG --on 8xGPU_TYPE",
        ),
    )


_TOPIC = Topic(
    causes=(Cause.NOT_SHARDED, Cause.SHARDING_INEFFECTIVE),
    applies=lambda judged: judged.event.family in CACHING_ALLOCATORS,
    decides=lambda judged: bool(judged.event.frames),
    passed=lambda _told: "no traceback ends where parameters are gathered, or the whole model is moved",
    not_applicable="no message is of PyTorch's caching allocator",
    unread="no traceback shows where memory was refused",
    how="give the log with the traceback above the message, and compare with `distdoctor oom estimate`",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-sharding", title="effect of sharding", run=check_sharding)

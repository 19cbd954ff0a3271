"""Was memory refused in the optimizer step: its states, or temporaries as large as the parameters?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.causes.job import is_clipping
from distdoctor.oom.explain.fixes import ESTIMATE
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import ON_HOST, Phase
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_optimizer_step(facts: Explained) -> Sequence[Outcome]:
    """Critical when the traceback ends in the optimizer."""
    return outcomes(_TOPIC, facts)


def _explanation(judged: Judged) -> str:
    if judged.cause is Cause.OPTIMIZER_FOREACH:
        return (
            "torch.optim steps lists of tensors at once by default (`foreach`); Adam then holds temporaries as large as the parameters "
            "of this rank, on top of states and gradients. A smaller batch changes nothing in this phase."
        )
    if is_clipping(judged.event):
        return (
            "Clipping and unscaling hold temporaries as large as gradients: norms of many tensors at once, or gradients that are gathered "
            "from all ranks before their norm is taken. Neither the batch nor the optimizer's states change that."
        )
    return (
        "The optimizer makes its states in the first step (Adam: 8 bytes a parameter of this rank in fp32) and keeps them; clipping "
        "and unscaling hold temporaries as large as gradients."
    )


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    if judged.cause is Cause.OPTIMIZER_FOREACH:
        return (
            Action(
                team=Team.JOB_OWNER,
                text="an update without those temporaries: `fused=True` (CUDA), or `foreach=False`",
                command="grep -RnE 'AdamW?\\(' TRAINING_SCRIPTS   # add fused=True; Trainer: --optim adamw_torch_fused",
            ),
        )
    if is_clipping(judged.event):
        return (
            Action(
                team=Team.JOB_OWNER,
                text="clip without those temporaries: `clip_grad_norm_(..., foreach=False)`, the norm of local shards that is then summed "
                "over ranks (FSDP1: the module's own `clip_grad_norm_`), gradients in 16 bit, or no clipping in a trial run",
                command="grep -RnE 'clip_grad_norm|unscale_' TRAINING_SCRIPTS",
            ),
        )
    return (
        Action(
            team=Team.JOB_OWNER,
            text="shard the optimizer's states over more ranks (ZeRO-1, FSDP), keep them in 8 bit, or offload them to the host",
            command=ESTIMATE,
        ),
    )


_TOPIC = Topic(
    causes=(Cause.OPTIMIZER_FOREACH, Cause.OPTIMIZER),
    applies=lambda judged: judged.event.family not in ON_HOST,
    decides=lambda judged: judged.event.phase is not Phase.UNKNOWN,
    passed=lambda told: f"refused elsewhere: {told[0].event.phase.value}",
    not_applicable="no message is about a GPU",
    unread="no traceback shows where memory was refused",
    how="give the log with the traceback above the message",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-optimizer-step", title="memory of the optimizer step", run=check_optimizer_step)

"""Did NCCL find no GPU memory for its buffers?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import Family
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team


def check_nccl_buffers(facts: Explained) -> Sequence[Outcome]:
    """Critical when NCCL's own allocation failed on the GPU."""
    return outcomes(_TOPIC, facts)


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del judged, facts
    return (
        Action(
            team=Team.JOB_OWNER,
            text='make communicators before the GPU is full: `init_process_group(..., device_id=torch.device("cuda", local_rank))`, or one '
            "small collective on each group at the start",
        ),
        Action(
            team=Team.JOB_OWNER,
            text="leave room beside PyTorch's pool (1 to 2 GiB for a large job)",
            command="python -c 'import torch; torch.cuda.set_per_process_memory_fraction(0.95)'   # at the start of each rank",
        ),
        Action(
            team=Team.JOB_OWNER,
            text="smaller buffers, where communicators are many",
            command="export NCCL_BUFFSIZE=1048576 NCCL_MAX_NCHANNELS=8   # the default of NCCL_BUFFSIZE is 4194304",
        ),
    )


_TOPIC = Topic(
    causes=(Cause.NCCL,),
    applies=lambda judged: judged.event.family is Family.NCCL,
    decides=lambda _judged: False,
    passed=lambda _told: "",
    not_applicable="no message is of NCCL or its like",
    unread="",
    how="",
    explanation=lambda _judged: (
        "NCCL allocates buffers for each communicator when it is first used, outside PyTorch's pool. The pool had taken what was left of "
        "the card; the buffers themselves are small."
    ),
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-nccl-buffers", title="GPU memory for NCCL's buffers", run=check_nccl_buffers)

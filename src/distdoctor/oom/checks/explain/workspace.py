"""Could cuBLAS not make its handle or workspace, because the GPU was full?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.fixes import smaller_job
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import Family
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team

_FAMILIES = frozenset((Family.BLAS, Family.DNN))


def check_workspace(facts: Explained) -> Sequence[Outcome]:
    """Critical for CUBLAS_STATUS_ALLOC_FAILED and its like; a lead for a handle that could not be made."""
    return outcomes(_TOPIC, facts)


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    early = Action(
        team=Team.JOB_OWNER,
        text="leave PyTorch's pool some hundred MiB less than the card, so that libraries find room",
        command="export PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.9   # or torch.cuda.set_per_process_memory_fraction(0.95)",
    )
    if "NOT_INITIALIZED" in judged.event.sentence:
        check = Action(
            team=Team.JOB_OWNER,
            text="whether the GPU was full at that moment; an index out of range before it breaks the context too",
            command="CUDA_LAUNCH_BLOCKING=1 python TRAINING_SCRIPT",
        )
        return check, early
    return early, *smaller_job(judged)


_TOPIC = Topic(
    causes=(Cause.WORKSPACE,),
    applies=lambda judged: judged.event.family in _FAMILIES,
    decides=lambda judged: judged.event.family is Family.DNN,
    passed=lambda _told: "the message is of another library",
    not_applicable="no message is of cuBLAS or its like",
    unread="the message of cuBLAS holds no sizes",
    how="nvidia-smi --query-gpu=memory.used,memory.total --format=csv while the job runs",
    explanation=lambda _judged: (
        "cuBLAS makes a handle for each thread and stream, with a workspace of 8 to 32 MiB; the backward pass runs in a thread of its own, "
        "so its handle comes when activations already fill the card. PyTorch's pool had taken what was left."
    ),
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-workspace", title="handles and workspaces of cuBLAS", run=check_workspace)

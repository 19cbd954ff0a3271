"""Does this process hold much beside the memory that PyTorch counts?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, Family
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team
from distdoctor.units import format_bytes

_FAMILIES = CACHING_ALLOCATORS | {Family.CUDA_ASYNC, Family.MPS}


def check_outside_pool(facts: Explained) -> Sequence[Outcome]:
    """Critical when memory beside the pool is large, and more than what is missing."""
    return outcomes(_TOPIC, facts)


def _decides(judged: Judged) -> bool:
    account = judged.account
    known = account.non_torch if account.non_torch is not None else account.outside
    return known is not None or judged.event.other_allocations_bytes is not None


def _passed(told: Sequence[Judged]) -> str:
    shown = [
        each.account.non_torch if each.account.non_torch is not None else each.account.outside or 0
        for each in told
    ]
    return f"at most {format_bytes(max(shown, default=0))} beside PyTorch's pool"


def _explanation(judged: Judged) -> str:
    if judged.cause is Cause.OTHER_ALLOCATIONS:
        return (
            "Metal holds memory of this process beside PyTorch's heaps: cached graphs and kernels, buffers of other libraries. "
            "The limit counts both."
        )
    if judged.event.family is Family.CUDA_ASYNC:
        return (
            "PyTorch counts much less than the card holds. With cudaMallocAsync the driver's own pool keeps freed memory, and "
            "other libraries or processes on the card are counted nowhere in this message."
        )
    return (
        "This process holds far more than PyTorch's pool: communicators (each process group has buffers of its own), libraries with "
        "allocators of their own (an inference engine in the same process, DeepEP, CuPy), CUDA graphs, or the CUDA context."
    )


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    if judged.cause is Cause.OTHER_ALLOCATIONS:
        return (
            Action(
                team=Team.JOB_OWNER,
                text="how both parts grow over steps; `torch.mps.empty_cache()` gives back what heaps keep",
                command="python -c 'import torch; print(torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory())'",
            ),
        )
    gpu = f" -i {judged.event.gpu}" if judged.event.gpu is not None else ""
    return (
        Action(
            team=Team.JOB_OWNER,
            text="who holds it: compare the process's memory with PyTorch's own count at the same moment",
            command="python -c 'import torch; print(torch.cuda.mem_get_info(), torch.cuda.memory_reserved())'"
            f"; nvidia-smi --query-compute-apps=pid,used_memory --format=csv{gpu}",
        ),
        Action(
            team=Team.JOB_OWNER,
            text="how many communicators there are; fewer process groups, or smaller buffers, hold less",
            command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ALLOC LAUNCH_COMMAND 2>&1 | grep -cE 'Init COMPLETE'",
        ),
    )


_TOPIC = Topic(
    causes=(Cause.NON_TORCH, Cause.OTHER_ALLOCATIONS),
    applies=lambda judged: judged.event.family in _FAMILIES,
    decides=_decides,
    passed=_passed,
    not_applicable="no message is of an allocator of PyTorch",
    unread="the messages do not tell what the process holds in all",
    how="nvidia-smi --query-compute-apps=pid,used_memory --format=csv beside torch.cuda.memory_reserved()",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-outside-pool", title="memory beside PyTorch's pool", run=check_outside_pool)

"""Is the GPU filled by somebody else: another process, or the job's own other ranks?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from distdoctor.oom.checks.explain.base import ExplainCheck, Topic, outcomes
from distdoctor.oom.explain.cause import Cause, Judged
from distdoctor.oom.explain.judged import Explained
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, Family, OomEvent
from distdoctor.report.checking import Outcome
from distdoctor.report.model import Action, Team
from distdoctor.units import format_bytes

_FAMILIES = CACHING_ALLOCATORS | {Family.DRIVER, Family.SERVER}


def check_other_process(facts: Explained) -> Sequence[Outcome]:
    """Critical when what others hold is more than what is missing."""
    return outcomes(_TOPIC, facts)


def _decides(judged: Judged) -> bool:
    return judged.account.others_bytes is not None or judged.account.outside is not None


def _passed(told: Sequence[Judged]) -> str:
    most = max((each.account.others_bytes or 0 for each in told), default=0)
    if most:
        return f"other processes hold {format_bytes(most)}, too little to decide"
    outside = max((each.account.outside or 0 for each in told), default=0)
    return (
        f"at most {format_bytes(outside)} outside PyTorch's pool, which this process's own context explains"
    )


def _explanation(judged: Judged) -> str:
    if judged.cause is Cause.PEER_RANKS and not judged.account.others:
        return (
            "Several ranks ran out on the same GPU, and together they hold what is used of it: each opened it, or loads to it. Settings "
            "of the model do not change that."
        )
    if judged.cause is Cause.PEER_RANKS:
        return (
            "Other processes hold equal, small amounts on this GPU: each has opened a CUDA context here. Ranks that touch a GPU "
            "before they choose their own open one on GPU 0. Settings of the model do not change that."
        )
    if judged.event.family is Family.DRIVER:
        return (
            "The driver refused memory outside PyTorch's pool, as far as is seen before this process held any: another process fills the "
            "GPU, or all ranks of the host use one GPU. The message does not say which; the commands below do."
        )
    if not judged.account.others and judged.event.family is not Family.SERVER:
        return (
            "More of the GPU lies outside PyTorch's pool than this process's own context explains. The message does not list "
            "processes, so it cannot say whose it is."
        )
    return "Without the other processes the request would fit. Settings of this job do not change what they hold."


def _look(event: OomEvent) -> str:
    """The vendor's list of processes on the GPU."""
    gpu = f" -i {event.gpu}" if event.gpu is not None else ""
    match event.family:
        case Family.HIP:
            return "rocm-smi --showpids --showmeminfo vram"
        case Family.NPU:
            return f"npu-smi info -t proc-mem{gpu}" if gpu else "npu-smi info"
        case Family.XPU:
            return "xpu-smi ps"
        case _:
            return f"nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv{gpu}"


def _actions(judged: Judged, facts: Explained) -> tuple[Action, ...]:
    del facts
    look = Action(
        team=Team.PLATFORM,
        text="on the host, outside the container: which processes hold this GPU, and whose they are",
        command=_look(judged.event),
    )
    if judged.cause is Cause.PEER_RANKS:
        mine = Action(
            team=Team.JOB_OWNER,
            text='choose the GPU before anything touches one: `torch.cuda.set_device(local_rank)` first, `map_location="cpu"` in '
            "`torch.load`, `device_ids=[local_rank]` in barrier and init_process_group",
            command="python -c 'import os, torch; torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))'",
        )
        return mine, look
    actions = [look]
    pids = [str(each.pid) for each in judged.account.others[:8]]
    if pids:
        actions.append(
            Action(
                team=Team.PLATFORM,
                text="whose these processes are; a left-over of an earlier job has no scheduler's job any more",
                command=f"ps -o pid,user,etime,args -p {shlex.quote(','.join(pids))}",
            )
        )
    if judged.event.family is Family.DRIVER:
        actions.append(
            Action(
                team=Team.JOB_OWNER,
                text="that each rank uses its own GPU",
                command="grep -RnE 'set_device|LOCAL_RANK|CUDA_VISIBLE_DEVICES' TRAINING_SCRIPTS",
            )
        )
    return tuple(actions)


_TOPIC = Topic(
    causes=(Cause.PEER_RANKS, Cause.OTHER_PROCESS),
    applies=lambda judged: judged.event.family in _FAMILIES,
    decides=_decides,
    passed=_passed,
    not_applicable="no message is about a GPU that others may use",
    unread="the messages do not tell what others hold",
    how="nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv while the job runs",
    explanation=_explanation,
    actions=_actions,
)

CHECK = ExplainCheck(id="oom-other-process", title="other processes on the GPU", run=check_other_process)

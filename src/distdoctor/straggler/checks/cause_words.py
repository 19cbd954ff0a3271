"""What to say and what to do about a cause: whose it is, why, and the next command for each owner."""

from __future__ import annotations

import shlex

from distdoctor.report.model import Action, Fault, Team
from distdoctor.straggler.analysis.ranks.causes import Cause
from distdoctor.straggler.facts.places import Place

FAULTS = {
    Cause.COMPUTE: Fault.GPU,
    Cause.DATA: Fault.DATA,
    Cause.GC: Fault.USER_CODE,
    Cause.H2D: Fault.HOST,
    Cause.CHECKPOINT: Fault.USER_CODE,
    Cause.HOST: Fault.HOST,
    Cause.OUTSIDE: Fault.USER_CODE,
    Cause.MIXED: Fault.UNKNOWN,
    Cause.UNKNOWN: Fault.UNKNOWN,
}

VERBS = {
    Cause.COMPUTE: "computes {much} longer than its peers",
    Cause.DATA: "waits for its data loader: {much} longer than its peers",
    Cause.GC: "is held up by Python's garbage collector, {much} longer than its peers",
    Cause.H2D: "copies to its device {much} longer than its peers",
    Cause.CHECKPOINT: "spends {much} more than its peers on checkpoints",
    Cause.HOST: "leaves its GPU idle: {much} longer than its peers",
    Cause.OUTSIDE: "loses time outside of all timed parts: {much} longer than its peers",
    Cause.MIXED: "works {much} longer than its peers",
    Cause.UNKNOWN: "works {much} longer than its peers",
}
"""Of a rank; `much` is a share with a per cent sign."""

_WHY = {
    Cause.COMPUTE: "Computing takes longer: a lower clock, a slower device, another process, or more work.",
    Cause.DATA: "The excess lies in waiting for input: storage, decoding, too few loader workers or a busy CPU on "
    "that host.",
    Cause.GC: "Python's garbage collector stops the rank while all others wait. Collecting on all ranks in the same "
    "steps costs once what it costs now on each.",
    Cause.H2D: "The excess lies in copies to the device: a slower PCIe link, memory of the wrong NUMA node, or "
    "memory that is not pinned.",
    Cause.CHECKPOINT: "The excess lies in writing checkpoints.",
    Cause.HOST: "The device has nothing to do: the host launches kernels too slowly (CPU clock, other processes, a "
    "cgroup limit, NUMA).",
    Cause.OUTSIDE: "The excess lies between the timed parts: logging, evaluation, Python code, or a stall of the host.",
    Cause.MIXED: "Several parts are longer, which points to what they share: the host's CPU, its memory, or the GPU's "
    "clock.",
    Cause.UNKNOWN: "The evidence holds one time for all of its own work, so it does not tell which part is longer.",
}


def why(cause: Cause) -> str:
    """What the cause means, for somebody who has never seen it."""
    return _WHY[cause]


_MOVE = Action(
    team=Team.JOB_OWNER,
    text="move the rank to another host; if the slowness stays with the rank it is its work, if it stays with the host "
    "it is the host",
)


def _look_at_host(where: str) -> Action:
    return Action(
        team=Team.PLATFORM,
        text=f"see whether the host differs from its peers{where}: run this there and on a peer, then "
        "`distdoctor compare a.json b.json`",
        command="distdoctor env -o a.json",
    )


def actions_for(cause: Cause, place: Place | None) -> tuple[Action, ...]:
    """The next thing to do. `place`: of the one rank; None for a host with several."""
    host = place.host if place is not None else None
    where = f" on {host}" if host else " on its host"
    index = place.gpu.index if place is not None and place.gpu is not None else None
    gpu = f" -i {shlex.quote(str(index))}" if index is not None else ""
    match cause:
        case Cause.UNKNOWN if place is not None and place.gpu is None:
            return (_look_at_host(where), _MOVE)
        case Cause.COMPUTE | Cause.MIXED | Cause.UNKNOWN:
            return (
                Action(
                    team=Team.HARDWARE,
                    text=f"look at clocks, throttle reasons and temperature{where} while the job runs",
                    command=f"nvidia-smi{gpu} -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE",
                ),
                _look_at_host(where),
                _MOVE,
            )
        case Cause.DATA:
            return (
                Action(
                    team=Team.JOB_OWNER,
                    text="raise num_workers or prefetch_factor, or move decoding out of the loader; compare the "
                    "storage path of this rank with its peers'",
                ),
                Action(
                    team=Team.PLATFORM,
                    text=f"look at CPU pressure and storage{where}",
                    command="cat /proc/pressure/cpu /proc/pressure/io",
                ),
            )
        case Cause.GC:
            return (
                Action(
                    team=Team.JOB_OWNER,
                    text="collect on all ranks in the same steps: `gc.disable()` at the start and `gc.collect(1)` "
                    "every some hundred steps (TorchTitan: `training.gc_freq`)",
                ),
            )
        case Cause.H2D:
            return (
                Action(
                    team=Team.HARDWARE,
                    text=f"compare the PCIe link of the GPU with its peers'{where}",
                    command=f"nvidia-smi{gpu} --query-gpu=index,pci.bus_id,pcie.link.gen.current,pcie.link.width.current --format=csv",
                ),
                Action(
                    team=Team.JOB_OWNER, text="pin the memory of batches, and bind the rank to its NUMA node"
                ),
            )
        case Cause.CHECKPOINT:
            return (
                Action(team=Team.JOB_OWNER, text="save asynchronously, or on all ranks in the same steps"),
            )
        case Cause.HOST | Cause.OUTSIDE:
            return (
                Action(
                    team=Team.PLATFORM,
                    text=f"look at CPU pressure, other processes and cgroup limits{where}",
                    command="cat /proc/pressure/cpu /sys/fs/cgroup/cpu.stat",
                ),
                Action(
                    team=Team.JOB_OWNER,
                    text="look for what this rank does alone in these steps: logging, evaluation, saving",
                ),
            )

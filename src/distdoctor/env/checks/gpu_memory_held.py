"""Is GPU memory held although no process is to be seen? A lead at most: containers hide processes."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome, Passed
from distdoctor.env.checks.gpus import (
    gpu_key,
    gpu_numbers,
    gpu_title,
    in_container,
    nvidia_gpus,
    scope_of,
    seen_and_unseen,
    smi,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team
from distdoctor.units import GIB, format_bytes

# What driver and firmware reserve stays below this on every board (about 0.6 GiB on H100, 1.5 GiB by the older
# call that counts reserved memory as used). Our own threshold.
HELD_BYTES = 4 * GIB

_HOW = "on the host: nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv"

_HIDDEN = Unread(
    cause=SkipCause.IN_CONTAINER,
    reason="a container hides the processes that hold it, so nothing follows from memory in use",
    how=_HOW,
)

_NOT_SHOWN = Unread(
    cause=SkipCause.NOT_IN_EVIDENCE,
    reason="no process is listed, which a table printed inside a container never does",
    how=_HOW,
)


def check_memory_held(facts: EnvFacts) -> Sequence[Outcome]:
    """Memory in use without a process, judged only where processes would be seen: live and on the host."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "memory_used_bytes", what="memory in use")
    if not seen:
        return unseen
    silent = [
        device for device in seen if (device.memory_used_bytes or 0) >= HELD_BYTES and not device.processes
    ]
    if not silent:
        return [Passed(detail=_users(seen)), *unseen]
    if in_container(facts) is not False or not facts.is_live:
        what = f"who holds the memory of {gpu_numbers([device.index for device in silent])}"
        return [NotSeen(unread=_HIDDEN if facts.is_live else _NOT_SHOWN, what=what), *unseen]
    readable, unread_processes = seen_and_unseen(facts, silent, "processes", what="processes")
    found: list[Outcome] = [_held(device) for device in readable]
    return [*found, *unread_processes, *unseen]


def _users(devices: Sequence[GpuDevice]) -> str:
    used = [device for device in devices if device.processes]
    if not used:
        return f"no memory held without a process on {len(devices)} GPUs"
    names = sorted(
        {process.name or f"PID {process.pid}" for device in used for process in device.processes or ()}
    )
    return f"{gpu_numbers([device.index for device in used])} in use by {', '.join(names[:3])}"


def _held(device: GpuDevice) -> Found:
    used = device.memory_used_bytes or 0
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)}: {format_bytes(used)} in use, but no process is listed",
        severity=Severity.WARNING,
        confidence=Confidence.LOW,
        evidence=(
            Evidence(
                text=f"{format_bytes(used)} in use, 0 processes",
                value=used,
                unit="bytes",
                expected=f"below {format_bytes(HELD_BYTES)} without a process",
                expected_source="our own threshold",
                source=device.sources.get("memory_used_bytes"),
            ),
        ),
        explanation=(
            "A process that died in the driver, or graphics and virtual GPUs, hold memory without being listed. The "
            "next job has less."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See who has the device open; with nobody there, reset the GPU on a drained host",
                command=f"sudo fuser -v /dev/nvidia{device.index}; {smi(device, '-q -d PIDS,MEMORY')}",
            ),
        ),
        scope=scope_of(device),
        fault=Fault.HOST,
    )


CHECK = Check(
    id="gpu-memory-held", title="GPU memory held without a process", run=check_memory_held, preflight=True
)

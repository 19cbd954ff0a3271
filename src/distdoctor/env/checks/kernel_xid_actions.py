"""Words and next steps for an Xid: whose it is, what it means for the job, what to do."""

from __future__ import annotations

import shlex

from distdoctor.env.catalog.xid import Xid
from distdoctor.report.model import Action, Fault, GpuRef, Team

_UNCORRECTABLE = frozenset((48, 64, 94, 95, 140, 171, 172))

_WHY = {
    "application": (
        "The program that ran on the GPU did something illegal, such as reading beyond an array. Look at the "
        "program first; the GPU is suspect only when the error follows it over different programs."
    ),
    "victim": "This line is written after another error or when a program is killed; by itself it accuses nobody.",
    "memory": (
        "The GPU's memory gave wrong data that it could not correct, or its spare rows are in use. The program "
        "that used it is ended; others may be hit until the GPU is reset."
    ),
    "link": "GPUs exchange data over NVLink; when a link fails, collectives hang, fail or slow down.",
    "bus": "The host cannot reach the GPU any more. Everything that used it fails, and later queries fail too.",
    "firmware": "The GPU's own firmware stopped; commands to it, `nvidia-smi` included, may hang.",
    "driver": "The driver reports an error of the GPU; the program that used it is usually ended.",
    "recovery": "The driver says what it needs to use this GPU again.",
}


def explanation_of(row: Xid, code: int | None) -> str:
    """Two sentences for somebody who has never seen an Xid."""
    if code is None:
        return "The driver found the GPU and could not start it: no program can use it until this is mended."
    # For these kinds the title already says what the catalogue says.
    is_told = row.kind in ("bus", "memory", "recovery") or row.meaning == "unknown"
    meaning = "" if is_told else f" NVIDIA's catalogue: {row.meaning}."
    return _WHY[row.kind] + meaning


def cause_class_of(row: Xid, code: int | None) -> str | None:
    """The documented cause class, where there is one."""
    if row.kind == "bus" and code != 54:
        return "gpu:fell_off_bus"
    if code in _UNCORRECTABLE:
        return "gpu:ecc_uncorrectable"
    return "gpu:nvlink" if row.kind == "link" else None


def fault_of(row: Xid) -> Fault:
    """Whose it is by the kind of error; nothing is said for victims."""
    if row.kind == "application":
        return Fault.USER_CODE
    return Fault.UNKNOWN if row.kind == "victim" else Fault.GPU


def actions_for(row: Xid, code: int | None, recovery: str | None, gpu: GpuRef) -> tuple[Action, ...]:
    """What to do, the driver's own wish first."""
    # nvidia-smi wants the function, which a line of the kernel leaves out.
    which = gpu.uuid or (gpu.pci if gpu.pci is None or "." in gpu.pci else f"{gpu.pci}.0")
    target = f" -i {shlex.quote(which)}" if which else ""
    actions: list[Action] = []
    if recovery is not None:
        actions.append(_recover(recovery, target))
    if code is None:
        actions.append(
            Action(
                team=Team.HARDWARE,
                text="Cold boot the host; when it comes back, reseat or replace the GPU",
                command="dmesg -T | grep -E 'NVRM|Xid'",
            )
        )
    elif row.kind == "application":
        actions.append(
            Action(
                team=Team.JOB_OWNER,
                text="Find the faulting kernel in the program; compare with another host",
                command="compute-sanitizer --tool memcheck python …",
            )
        )
    elif row.kind == "victim":
        actions.append(
            Action(
                team=Team.JOB_OWNER,
                text="Look for the first error of the job, and for an earlier Xid on another GPU or host",
                command="dmesg -T | grep -i xid | head",
            )
        )
    else:
        actions.append(_catalogue(row, code, target))
    return tuple(actions)


def _catalogue(row: Xid, code: int, target: str) -> Action:
    team = Team.HARDWARE if row.kind in ("memory", "link", "bus") else Team.PLATFORM
    command = f"nvidia-smi -q{target}"
    if row.kind == "link":
        command = f"nvidia-smi nvlink -e{target}"
    elif row.kind == "memory":
        command = f"nvidia-smi -q -d ECC,ROW_REMAPPER{target}"
    elif row.kind == "bus":
        command = "nvidia-bug-report.sh   # before the reboot"
    text = row.action[:1].upper() + row.action[1:]
    return Action(team=team, text=f"Xid {code}: {text}", command=command)


def _recover(wanted: str, target: str) -> Action:
    word = wanted.lower()
    if "reboot" in word:
        return Action(team=Team.PLATFORM, text=f"The driver asks for: {wanted}; drain the host and reboot it")
    if "reset" in word:
        return Action(
            team=Team.PLATFORM,
            text=f"The driver asks for: {wanted}; stop what uses the GPU, then reset it",
            command=f"nvidia-smi --gpu-reset{target}",
        )
    return Action(team=Team.PLATFORM, text=f"The driver asks for: {wanted}")

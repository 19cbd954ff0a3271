"""What the checks of GPUs share: which to judge, how to name one, and who its siblings are."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from distdoctor.env.checks.base import NotApplicable, NotSeen, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import UNKNOWN_INDEX, GpuDevice, GpuFacts, NvmlState
from distdoctor.report.model import Action, GpuRef, Scope, SkipCause, Team
from distdoctor.units import GIB, fold_ints

NO_GPU = NotApplicable(detail="no NVIDIA GPU here")

# Boards made for servers: A100, H100, B200, GB200, L4, L40S, T4, V100, P100 … but no RTX, Quadro, GeForce, TITAN.
_DATA_CENTRE = re.compile(r"(?:GH|GB|[ABHLTVPKM])\d{1,3}[A-Z]?\b")
_WORKSTATION = re.compile(r"RTX|GeForce|Quadro|TITAN|GTX|NVS", re.IGNORECASE)

# Boards whose NVLinks are on the baseboard, not on a bridge that may or may not be plugged in.
_BASEBOARD = re.compile(r"SXM|HBM3|\bH(?:20|200|800)\b|\b[BG]B?[23]00\b")

T = TypeVar("T", bound=Hashable)


def nvidia_gpus(facts: EnvFacts) -> tuple[GpuDevice, ...] | NotApplicable | NotSeen:
    """The NVIDIA GPUs that answer, or the outcome of a check that has none to judge.

    GPUs that are lost are left out: `gpu-lost` tells of them once.
    """
    gpus = facts.gpus
    if gpus is None:
        return missing(facts, "gpus.devices")
    if gpus.devices is None:
        return NO_GPU if no_nvidia_hardware(gpus) else missing(facts, "gpus.devices")
    nvidia = [device for device in gpus.devices if device.vendor == "nvidia"]
    if not nvidia:
        return NO_GPU
    answering = tuple(device for device in nvidia if not device.lost)
    if not answering:
        return NotSeen(unread=Unread(cause=SkipCause.FAILED, reason="no GPU answers, see gpu-lost"))
    return answering


def no_nvidia_hardware(gpus: GpuFacts) -> bool:
    """True when the PCI bus was read and shows no NVIDIA GPU, and nothing else tells of one."""
    return (
        gpus.num_pci_gpus == 0
        and not gpus.num_device_nodes
        and not gpus.num_proc_gpus
        and gpus.nvml_state in (None, NvmlState.NO_LIBRARY, NvmlState.DRIVER_NOT_LOADED, NvmlState.NOT_ASKED)
    )


def seen_and_unseen(
    facts: EnvFacts, devices: Sequence[GpuDevice], *fields: str, what: str
) -> tuple[list[GpuDevice], list[NotSeen]]:
    """GPUs that have all `fields`, and one NotSeen for each reason why others lack one."""
    seen: list[GpuDevice] = []
    lacking: dict[Unread, list[int]] = {}
    for device in devices:
        absent = next((field for field in fields if getattr(device, field) is None), None)
        if absent is None:
            seen.append(device)
        else:
            lacking.setdefault(why_unread(facts, device, absent), []).append(device.index)
    return seen, [
        NotSeen(unread=unread, what=f"{what} of {gpu_numbers(indexes)}")
        for unread, indexes in lacking.items()
    ]


def why_unread(facts: EnvFacts, device: GpuDevice, field: str) -> Unread:
    """The reason beside a GPU's fact, or that the evidence does not show it."""
    if field in device.unread:
        return device.unread[field]
    if facts.is_live:
        return Unread(cause=SkipCause.NOT_ASKED, reason=f"{field} was not collected")
    return Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason=f"{facts.origin} does not show {field}")


def gpu_numbers(indexes: Sequence[int]) -> str:
    """ "GPU 3", "GPUs 0-3,7". An index that the text did not show is left out."""
    known = [index for index in indexes if index != UNKNOWN_INDEX]
    if not known:
        return "a GPU" if len(indexes) == 1 else f"{len(indexes)} GPUs"
    return f"GPU{'s' if len(set(known)) > 1 else ''} {fold_ints(known)}"


def gpu_title(device: GpuDevice) -> str:
    """ "GPU 3 (00000000:3B:00.0)", short enough for a title."""
    if device.index == UNKNOWN_INDEX:
        return f"GPU {device.pci or device.uuid or 'of unknown number'}"
    return f"GPU {device.index} ({device.pci})" if device.pci else f"GPU {device.index}"


def gpu_names(devices: Sequence[GpuDevice]) -> str:
    """One GPU by its PCI address, several by their numbers."""
    return gpu_title(devices[0]) if len(devices) == 1 else gpu_numbers([each.index for each in devices])


def scope_of(*devices: GpuDevice) -> Scope:
    """The scope of a finding about these GPUs."""
    return Scope(gpus=tuple(gpu_ref(device) for device in devices))


def gpu_ref(device: GpuDevice) -> GpuRef:
    """How reports name a GPU."""
    index = None if device.index == UNKNOWN_INDEX else device.index
    return GpuRef(index=index, pci=device.pci, uuid=device.uuid, model=device.name)


def gpu_key(device: GpuDevice) -> str:
    """What tells a GPU's finding from its siblings': the PCI address, else the index."""
    return device.pci or (device.uuid or "gpu" if device.index == UNKNOWN_INDEX else f"gpu{device.index}")


def model_groups(devices: Sequence[GpuDevice]) -> list[list[GpuDevice]]:
    """GPUs of the same model and memory size together. A GPU of unknown model is alone."""
    groups: dict[Hashable, list[GpuDevice]] = {}
    for device in devices:
        total = device.memory_total_bytes
        key: Hashable = (device.name, round(total / GIB) if total else None)
        groups.setdefault(key if device.name else device.index, []).append(device)
    return list(groups.values())


def majority(devices: Sequence[GpuDevice], value_of: Callable[[GpuDevice], T]) -> T | None:
    """The value that more than half of the GPUs share; None when there is none, or one GPU alone."""
    if len(devices) < 2:
        return None
    value, count = Counter(value_of(device) for device in devices).most_common(1)[0]
    return value if 2 * count > len(devices) else None


def is_data_centre(device: GpuDevice) -> bool:
    """True for boards made for servers, by the model's name."""
    name = device.name or ""
    return bool(_DATA_CENTRE.search(name)) and not _WORKSTATION.search(name)


def has_baseboard_nvlink(device: GpuDevice) -> bool:
    """True for SXM-like boards, whose NVLinks do not depend on a plugged bridge. Not for NVL and PCIe boards."""
    name = device.name or ""
    return bool(_BASEBOARD.search(name)) and not re.search(r"NVL|PCIe", name, re.IGNORECASE)


def in_container(facts: EnvFacts) -> bool | None:
    """None when it is not known where we look from."""
    kind = facts.container.kind if facts.container is not None else None
    return None if kind is None else kind != "none"


def smi(device: GpuDevice, arguments: str) -> str:
    """An nvidia-smi command about one GPU, ready to paste."""
    which = device.pci or device.uuid
    if which is None and device.index == UNKNOWN_INDEX:
        return f"nvidia-smi {arguments}"
    return f"nvidia-smi -i {shlex.quote(which or str(device.index))} {arguments}"


def reset_action(device: GpuDevice) -> Action:
    """Drain and reset one GPU."""
    return Action(
        team=Team.PLATFORM,
        text="Drain the host, stop everything that uses the GPU, then reset it (or reboot the host)",
        command=smi(device, "--gpu-reset"),
    )

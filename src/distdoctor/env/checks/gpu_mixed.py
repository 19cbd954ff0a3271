"""Are the GPUs of this host of one kind?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed
from distdoctor.env.checks.gpus import gpu_numbers, nvidia_gpus, scope_of, seen_and_unseen
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import GIB, format_bytes

# A card with less is there for a screen beside the GPUs that compute. Our own threshold.
SCREEN_BYTES = 9 * GIB


def check_mixed(facts: EnvFacts) -> Sequence[Outcome]:
    """Several models are a warning, unless the odd ones drive a screen; several VBIOS of one model, to know."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "name", what="model")
    if not seen:
        return unseen
    working = [device for device in seen if not _is_for_a_screen(device, seen)]
    kinds = Counter(_kind(device) for device in working)
    if len(kinds) > 1:
        return [_several_kinds(facts, working), *unseen]
    versions = {device.vbios for device in working if device.vbios is not None}
    if len(versions) > 1:
        return [_several_vbios(working), *unseen]
    return [Passed(detail=f"{len(working)} × {working[0].name}"), *unseen]


def _is_for_a_screen(device: GpuDevice, others: Sequence[GpuDevice]) -> bool:
    """A small card beside larger ones, unless it is known to drive no screen; DGX stations have such a board."""
    total = device.memory_total_bytes
    largest = max(each.memory_total_bytes or 0 for each in others)
    if total is None or not total < SCREEN_BYTES <= largest:
        return False
    return device.display_active is not False or "Display" in (device.name or "")


def _kind(device: GpuDevice) -> tuple[str, int | None]:
    total = device.memory_total_bytes
    return device.name or "", round(total / GIB) if total is not None else None


def _several_kinds(facts: EnvFacts, devices: list[GpuDevice]) -> Found:
    groups: dict[tuple[str, int | None], list[int]] = {}
    for device in devices:
        groups.setdefault(_kind(device), []).append(device.index)
    together = facts.scheduler is not None and (facts.scheduler.local_world_size or 0) > 1
    return Found(
        title=f"This host has GPUs of {len(groups)} kinds",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH if together else Confidence.MEDIUM,
        evidence=tuple(
            Evidence(
                text=f"{gpu_numbers(indexes)}: {name}"
                + (f", {format_bytes(memory * GIB)}" if memory is not None else ""),
                value=name,
                source=devices[0].sources.get("name"),
            )
            for (name, memory), indexes in groups.items()
        ),
        explanation=(
            "A job over all of them runs at the pace of the slowest, and runs out of memory on the smallest. CUDA "
            "orders GPUs by speed, NVML by PCI address: the same number may mean two GPUs."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Choose GPUs of one kind by UUID, and let CUDA count in PCI order",
                command="nvidia-smi -L; export CUDA_DEVICE_ORDER=PCI_BUS_ID",
            ),
        ),
        scope=scope_of(*devices),
        fault=Fault.CONFIG,
    )


def _several_vbios(devices: list[GpuDevice]) -> Found:
    versions = Counter(device.vbios for device in devices if device.vbios is not None)
    usual = versions.most_common(1)[0][0]
    odd = [device for device in devices if device.vbios not in (None, usual)]
    return Found(
        key="vbios",
        title=f"{gpu_numbers([device.index for device in odd])}: other firmware (VBIOS) than the siblings",
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=tuple(
            Evidence(
                text=f"GPU {device.index}: VBIOS {device.vbios}",
                value=device.vbios,
                expected=usual,
                expected_source="most GPUs of this host",
                source=device.sources.get("vbios"),
            )
            for device in odd[:8]
        ),
        explanation="A replaced board often comes with another version; clocks and power may differ a little.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Bring all boards to one version at the next maintenance",
                command="nvidia-smi --query-gpu=index,pci.bus_id,vbios_version --format=csv",
            ),
        ),
        scope=scope_of(*odd),
        fault=Fault.GPU,
    )


CHECK = Check(id="gpu-mixed", title="GPUs of one kind", run=check_mixed, preflight=True)

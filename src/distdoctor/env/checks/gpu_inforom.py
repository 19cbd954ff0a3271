"""Is the configuration memory of each board intact?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed
from distdoctor.env.checks.gpus import gpu_key, gpu_title, nvidia_gpus, scope_of, seen_and_unseen, smi
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Evidence, Fault, Severity, Team


def check_inforom(facts: EnvFacts) -> Sequence[Outcome]:
    """A corrupted InfoROM is a warning: the board works, but its error records cannot be trusted."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "inforom_valid", what="InfoROM")
    found: list[Outcome] = [_corrupted(device) for device in seen if device.inforom_valid is False]
    if found or not seen:
        return [*found, *unseen]
    return [Passed(detail=f"checksums hold on {len(seen)} GPUs"), *unseen]


def _corrupted(device: GpuDevice) -> Found:
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)}: its configuration memory (InfoROM) is corrupted",
        severity=Severity.WARNING,
        evidence=(
            Evidence(
                text="the InfoROM's checksums do not hold",
                value=False,
                expected="valid",
                expected_source="nvml.h, nvmlDeviceValidateInforom",
                source=device.sources.get("inforom_valid"),
            ),
        ),
        explanation="ECC mode, error history and power settings of the board are kept there and may be lost or wrong.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Have the board checked; NVIDIA takes it back with this message",
                command=smi(device, "-q | grep -A8 'Inforom Version'"),
            ),
        ),
        scope=scope_of(device),
        fault=Fault.GPU,
    )


CHECK = Check(id="gpu-inforom", title="configuration memory of the boards", run=check_inforom, preflight=True)

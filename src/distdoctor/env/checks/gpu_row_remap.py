"""Could memory rows with errors be replaced by spare ones? (Ampere and newer)"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed
from distdoctor.env.checks.gpus import (
    gpu_key,
    gpu_numbers,
    gpu_title,
    nvidia_gpus,
    reset_action,
    scope_of,
    seen_and_unseen,
    smi,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# Row remapping came with Ampere (NVIDIA, GPU Memory Error Management); older GPUs retire pages.
FIRST_CAPABILITY = (8, 0)

CAUSE = "gpu:ecc_uncorrectable"


def check_row_remap(facts: EnvFacts) -> Sequence[Outcome]:
    """A failed remapping is critical; a pending one, and banks without a spare row, are warnings."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    if all(
        each.compute_capability is not None and each.compute_capability < FIRST_CAPABILITY for each in devices
    ):
        return [NotApplicable(detail="these GPUs retire pages instead of remapping rows")]
    seen, unseen = seen_and_unseen(facts, devices, "remap_pending", "remap_failed", what="row remapping")
    found = [outcome for device in devices if (outcome := _judge(device)) is not None]
    if found:
        return [*found, *unseen]
    if not seen:
        return unseen
    rows = sum((each.remapped_uncorrectable or 0) + (each.remapped_correctable or 0) for each in seen)
    detail = (
        f"{rows} rows remapped on {gpu_numbers([each.index for each in seen])}, none pending, none failed"
    )
    return [Passed(detail=detail), *unseen]


def _judge(device: GpuDevice) -> Found | None:
    if device.remap_failed:
        return _failed(device)
    if device.remap_pending:
        return _pending(device)
    if device.remap_banks_without_spare:
        return _no_spare(device, device.remap_banks_without_spare)
    return None


def _rows(device: GpuDevice) -> str:
    parts = [
        f"{count} after {kind} errors"
        for count, kind in (
            (device.remapped_uncorrectable, "uncorrectable"),
            (device.remapped_correctable, "correctable"),
        )
        if count is not None
    ]
    return f"rows remapped: {', '.join(parts)}" if parts else "number of remapped rows not shown"


def _failed(device: GpuDevice) -> Found:
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)}: memory can no longer be repaired",
        severity=Severity.CRITICAL,
        evidence=(
            Evidence(
                text=f"a row remapping failed; {_rows(device)}",
                value=True,
                expected="no failure",
                expected_source="NVIDIA, GPU Memory Error Management: a failure qualifies for RMA",
                source=device.sources.get("remap_failed"),
            ),
        ),
        explanation="A row with errors found no spare one. Errors will come back and end jobs.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Take the host out of service and have the GPU replaced",
                command=smi(device, "-q -d ROW_REMAPPER,ECC"),
            ),
        ),
        scope=scope_of(device),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


def _pending(device: GpuDevice) -> Found:
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)}: a memory repair waits for a reset",
        severity=Severity.WARNING,
        evidence=(
            Evidence(
                text=f"a row remapping is pending; {_rows(device)}",
                value=True,
                expected="none pending",
                expected_source="NVIDIA, GPU Memory Error Management",
                source=device.sources.get("remap_pending"),
            ),
        ),
        explanation=(
            "Memory with errors is fenced off for now and is replaced by spare rows at the next reset. Until then less "
            "memory is usable, and another error may end a job."
        ),
        actions=(reset_action(device),),
        scope=scope_of(device),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


def _no_spare(device: GpuDevice, banks: int) -> Found:
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)}: {banks} memory bank{'s have' if banks > 1 else ' has'} no spare row left",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{banks} banks without a spare row; {_rows(device)}",
                value=banks,
                unit="banks",
                expected="0 banks",
                source=device.sources.get("remap_banks_without_spare"),
            ),
        ),
        explanation="The next uncorrectable error in such a bank cannot be repaired and needs a new GPU.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Watch this GPU, and plan its replacement",
                command=smi(device, "-q -d ROW_REMAPPER,ECC"),
            ),
        ),
        scope=scope_of(device),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


CHECK = Check(id="gpu-row-remap", title="repair of GPU memory rows", run=check_row_remap, preflight=True)

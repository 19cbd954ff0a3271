"""Did GPU memory lose data, was it contained, and is error correction on?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed
from distdoctor.env.checks.gpus import (
    gpu_key,
    gpu_names,
    gpu_title,
    is_data_centre,
    nvidia_gpus,
    reset_action,
    scope_of,
    seen_and_unseen,
    smi,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

CAUSE = "gpu:ecc_uncorrectable"


def check_ecc(facts: EnvFacts) -> Sequence[Outcome]:
    """Uncorrected errors, NVIDIA's own thresholds, and the ECC mode."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    judged = [outcome for device in devices if (outcome := _judge_errors(device)) is not None]
    found: list[Outcome] = [*judged, *_judge_mode(devices)]
    if not found and all(_has_no_ecc(device) for device in devices):
        return [NotApplicable(detail="these GPUs have no ECC memory, or it is off")]
    seen, unseen = seen_and_unseen(facts, devices, "ecc_uncorrected_volatile", what="ECC errors")
    if not found and seen:
        lifetime = sum(device.ecc_uncorrected_aggregate or 0 for device in seen)
        history = f", {lifetime} in their life" if lifetime else ""
        found = [Passed(detail=f"no uncorrected error since the driver was loaded{history}")]
    return [*found, *unseen]


def _has_no_ecc(device: GpuDevice) -> bool:
    """ECC is off, or the board says that it has none."""
    unread = device.unread.get("ecc_uncorrected_volatile") or device.unread.get("ecc_mode")
    unsupported = unread is not None and unread.cause is SkipCause.UNSUPPORTED
    return device.ecc_uncorrected_volatile is None and (
        device.ecc_mode is False or (unsupported and not is_data_centre(device))
    )


def _judge_errors(device: GpuDevice) -> Found | None:
    if device.unrepairable_memory:
        return _beyond_repair(
            device, "the board says that its memory can no longer be repaired", "unrepairable_memory"
        )
    if device.sram_threshold_exceeded:
        return _beyond_repair(
            device, "NVIDIA's threshold of uncorrectable SRAM errors is passed", "sram_threshold_exceeded"
        )
    if device.ecc_uncorrected_volatile:
        return _contained(device) if _was_contained(device) else _uncontained(device)
    return None


def _was_contained(device: GpuDevice) -> bool:
    """The row with the error was replaced: remapped, nothing pending, nothing failed."""
    return (
        bool(device.remapped_uncorrectable) and device.remap_pending is False and device.remap_failed is False
    )


def _errors(device: GpuDevice) -> Evidence:
    count = device.ecc_uncorrected_volatile
    aggregate = device.ecc_uncorrected_aggregate
    lifetime = f", {aggregate} in its life" if aggregate is not None else ""
    return Evidence(
        text=f"{count} uncorrected ECC errors since the driver was loaded{lifetime}",
        value=count,
        unit="errors",
        expected="0 errors",
        expected_source="NVIDIA, GPU Memory Error Management",
        source=device.sources.get("ecc_uncorrected_volatile"),
    )


def _remap_state(device: GpuDevice) -> Evidence:
    if device.remap_pending is None and device.remap_failed is None:
        text = "whether the row was remapped is not known"
    else:
        words = {True: "yes", False: "no", None: "not known"}
        text = (
            f"rows remapped after uncorrectable errors: {device.remapped_uncorrectable}, "
            f"pending: {words[device.remap_pending]}, failed: {words[device.remap_failed]}"
        )
    return Evidence(text=text, source=device.sources.get("remap_pending"))


def _contained(device: GpuDevice) -> Found:
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)}: memory error contained, the job that met it crashed",
        severity=Severity.WARNING,
        evidence=(_errors(device), _remap_state(device)),
        explanation=(
            "The driver replaced the bad row and ended the program that touched it; the GPU is fit for new jobs. "
            "A GPU where this comes back should be replaced."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Restart the crashed job from its last checkpoint; nothing else is needed",
            ),
            Action(
                team=Team.HARDWARE,
                text="Note it; if it happens again on this GPU, replace it",
                command=smi(device, "-q -d ECC,ROW_REMAPPER"),
            ),
        ),
        scope=scope_of(device),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


def _uncontained(device: GpuDevice) -> Found:
    known = device.remap_pending is not None or device.remap_failed is not None
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)} has uncorrected memory errors",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH if known else Confidence.MEDIUM,
        evidence=(_errors(device), _remap_state(device)),
        explanation=(
            "Data in GPU memory was lost and no completed repair is to be seen. Jobs crash with "
            "`uncorrectable ECC error encountered`, or wait for the rank that did."
        ),
        actions=(
            reset_action(device),
            Action(
                team=Team.HARDWARE,
                text="See whether rows were remapped; replace the GPU if errors come back after the reset",
                command=smi(device, "-q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT"),
            ),
        ),
        scope=scope_of(device),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


def _beyond_repair(device: GpuDevice, what: str, field: str) -> Found:
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)} must be replaced: memory errors beyond repair",
        severity=Severity.CRITICAL,
        evidence=(
            Evidence(
                text=what,
                value=True,
                expected="no",
                expected_source="nvml.h",
                source=device.sources.get(field),
            ),
        ),
        explanation="Errors will come back and end jobs; a reset does not help.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Take the host out of service and have the GPU replaced",
                command=smi(device, "-q -d ECC"),
            ),
        ),
        scope=scope_of(device),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


def _judge_mode(devices: Sequence[GpuDevice]) -> list[Found]:
    found = []
    changing = [
        device
        for device in devices
        if device.ecc_mode is not None
        and device.ecc_mode_pending is not None
        and device.ecc_mode != device.ecc_mode_pending
    ]
    off = [
        device
        for device in devices
        if device.ecc_mode is False and is_data_centre(device) and device not in changing
    ]
    if changing:
        found.append(_changing(changing))
    if off:
        found.append(_off(off))
    return found


def _changing(devices: list[GpuDevice]) -> Found:
    now, later = ("on", "off") if devices[0].ecc_mode else ("off", "on")
    return Found(
        key="mode-pending",
        title=f"{gpu_names(devices)}: ECC will be switched at the next reset",
        severity=Severity.WARNING,
        evidence=(
            Evidence(
                text=f"ECC is {now}, after the next reset {later}",
                value=now,
                source=devices[0].sources.get("ecc_mode"),
            ),
        ),
        explanation="Somebody changed the mode; it counts after a reset, and then memory size and speed change too.",
        actions=(reset_action(devices[0]),),
        scope=scope_of(*devices),
        fault=Fault.CONFIG,
    )


def _off(devices: list[GpuDevice]) -> Found:
    return Found(
        key="mode-off",
        title=f"{gpu_names(devices)}: error correction of GPU memory is off",
        severity=Severity.WARNING,
        evidence=(
            Evidence(
                text=f"ECC is off on {len(devices)} {devices[0].name}",
                value=False,
                expected="on",
                expected_source="default of NVIDIA's data-centre GPUs",
                source=devices[0].sources.get("ecc_mode"),
            ),
        ),
        explanation="A flipped bit goes unseen into weights and results, and broken memory is not found.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Switch it on (counts after a reset)",
                command="sudo nvidia-smi -e 1",
            ),
        ),
        scope=scope_of(*devices),
        fault=Fault.CONFIG,
    )


CHECK = Check(id="gpu-ecc", title="errors in GPU memory", run=check_ecc, preflight=True)

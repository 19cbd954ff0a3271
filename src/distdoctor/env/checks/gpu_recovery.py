"""Does the driver ask for a recovery action (reset, reboot, drain) for a GPU?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed
from distdoctor.env.checks.gpus import (
    gpu_key,
    gpu_numbers,
    gpu_title,
    nvidia_gpus,
    scope_of,
    seen_and_unseen,
    smi,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# nvmlDeviceGpuRecoveryAction_t of nvml.h (values 6 and 7 since CUDA 13): what it asks for.
ACTIONS = {
    1: "a GPU reset",
    2: "a reboot of the host",
    3: "draining its peer-to-peer traffic",
    4: "a drain and a reset",
    5: "recovery of the IMEX domain",
    6: "a bus reset",
    7: "a reboot of the system",
}

_COMMANDS = {
    2: "sudo reboot",
    5: "sudo systemctl restart nvidia-imex",
    7: "sudo reboot",
}


def check_recovery_action(facts: EnvFacts) -> Sequence[Outcome]:
    """Any action but "none" is critical: the driver holds the GPU for unfit until it is done."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "recovery_action", what="recovery action")
    asking = [device for device in seen if device.recovery_action]
    if asking:
        return [*(_found(device) for device in asking), *unseen]
    calm = (
        [Passed(detail=f"no action is asked for {gpu_numbers([each.index for each in seen])}")]
        if seen
        else []
    )
    return [*calm, *unseen]


def _found(device: GpuDevice) -> Found:
    action = device.recovery_action or 0
    wanted = ACTIONS.get(action, f"an action that this version does not know ({action})")
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)}: the driver asks for {wanted}"[:80],
        severity=Severity.CRITICAL if action in ACTIONS else Severity.WARNING,
        confidence=Confidence.HIGH if action in ACTIONS else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"GPU recovery action: {wanted}",
                value=action,
                expected="0 (none)",
                expected_source="nvml.h, nvmlDeviceGpuRecoveryAction_t",
                source=device.sources.get("recovery_action"),
            ),
        ),
        explanation=(
            "After a fault that it could not handle alone the driver records what must be done. Until then jobs on "
            "this GPU fail or give wrong results."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text=f"Drain this host; what is needed: {wanted}",
                command=_COMMANDS.get(action, smi(device, "--gpu-reset")),
            ),
        ),
        scope=scope_of(device),
        fault=Fault.GPU,
    )


CHECK = Check(
    id="gpu-recovery-action",
    title="recovery action asked for by the driver",
    run=check_recovery_action,
    preflight=True,
)

"""Do GPUs look busy while they do nothing? A waiting NCCL kernel spins at 100 % and draws hardly more than idle."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed
from distdoctor.env.checks.gpus import gpu_names, nvidia_gpus, scope_of, seen_and_unseen
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# "A kernel was running all the time" (NVML's utilisation), allowing for rounding.
FULL_PCT = 95

# Reported hangs: 44 W of 250 W on V100 (NVIDIA/nccl issue 199), 118 W of 700 W on H100 (issue 2428), both about
# 17 %. Training draws well above half. Our own threshold.
IDLE_POWER_FRACTION = 0.25


def check_hang_signature(facts: EnvFacts) -> Sequence[Outcome]:
    """Full utilisation at the power of an idle GPU: a warning on several GPUs, a lead on one."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(
        facts, devices, "utilisation_pct", "power_w", "power_limit_w", what="utilisation and power"
    )
    spinning = [device for device in seen if _spins(device)]
    if spinning:
        return [_found(spinning), *unseen]
    if not seen:
        return unseen
    busy = sum((device.utilisation_pct or 0) >= FULL_PCT for device in seen)
    state = (
        f"{busy} of {len(seen)} GPUs fully used, at the power of real work" if busy else "no GPU fully used"
    )
    return [Passed(detail=state), *unseen]


def _spins(device: GpuDevice) -> bool:
    full, power = device.power_limit_w or 0.0, device.power_w
    return (
        power is not None
        and full > 0
        and (device.utilisation_pct or 0) >= FULL_PCT
        and power <= IDLE_POWER_FRACTION * full
    )


def _found(devices: list[GpuDevice]) -> Found:
    several = len(devices) > 1
    return Found(
        title=f"{gpu_names(devices)} {'look busy but draw' if several else 'looks busy but draws'} idle power: a hang?",
        severity=Severity.WARNING if several else Severity.INFO,
        confidence=Confidence.MEDIUM if several else Confidence.LOW,
        evidence=tuple(
            Evidence(
                text=f"GPU {device.index}: {device.utilisation_pct} % utilisation at {device.power_w:g} W "
                f"of {device.power_limit_w:g} W",
                value=device.power_w,
                unit="W",
                expected=f"above {IDLE_POWER_FRACTION * (device.power_limit_w or 0.0):.0f} W when it works",
                expected_source="our own threshold; reported hangs lie near 17 % of the limit",
                source=device.sources.get("power_w"),
            )
            for device in devices
        ),
        explanation=(
            "A collective that waits for another rank keeps one small kernel spinning: 100 % utilisation, power near "
            "idle. One moment proves nothing; light kernels look alike."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="See whether steps go on; if not, dump stacks and the flight recorder of all ranks",
                command="nvidia-smi --query-gpu=index,utilization.gpu,power.draw --format=csv -l 2; py-spy dump --pid PID",
            ),
        ),
        scope=scope_of(*devices),
        fault=Fault.UNKNOWN,
    )


CHECK = Check(
    id="gpu-hang-signature",
    title="GPUs that spin without working",
    run=check_hang_signature,
    preflight=False,
)

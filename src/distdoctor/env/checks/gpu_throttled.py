"""Is a GPU held back by heat, power brake or hardware slowdown?"""

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

# nvml.h, clocks event reasons: what each of those that matter means. "sw_power_cap" alone is how every GPU under
# full load runs; "idle", "app_clocks", "sync_boost" and "display" are settings, not faults.
MEANINGS = {
    "power_brake": "an external power brake (power supply or rack) halves its clocks",
    "hw_thermal": "it is too hot: hardware halves its clocks",
    "hw_slowdown": "hardware slows its clocks (heat or power)",
    "sw_thermal": "it is hot: the driver lowers its clocks",
}

_SOURCE = "NVML clocks event reasons (nvml.h)"


def check_throttled(facts: EnvFacts) -> Sequence[Outcome]:
    """Hardware slowdown under load is critical, on an idle GPU or by the driver's thermal control a warning."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "throttle_reasons", what="reasons for low clocks")
    found: list[Outcome] = [outcome for device in seen if (outcome := _judge(device)) is not None]
    if found or not seen:
        return [*found, *unseen]
    capped = [device.index for device in seen if "sw_power_cap" in (device.throttle_reasons or ())]
    note = f" ({gpu_numbers(capped)} at the power limit, normal under load)" if capped else ""
    return [Passed(detail=f"no thermal or power slowdown on {len(seen)} GPUs{note}"), *unseen]


def _judge(device: GpuDevice) -> Found | None:
    reasons = device.throttle_reasons or ()
    # hw_slowdown is the sum of the two others; the more telling one is named.
    reason = next((each for each in MEANINGS if each in reasons), None)
    if reason is None:
        return None
    idle = "idle" in reasons
    severe = reason != "sw_thermal" and not idle
    power = reason == "power_brake"
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)}: {MEANINGS[reason]}"[:80]
        if len(gpu_title(device)) + len(MEANINGS[reason]) <= 78
        else f"{gpu_title(device)} is slowed by {'power' if power else 'heat or power'}",
        severity=Severity.CRITICAL if severe else Severity.WARNING,
        confidence=Confidence.MEDIUM if idle else Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"clocks event reasons: {', '.join(reasons)}; {MEANINGS[reason]}",
                value=reason,
                expected="none but idle or sw_power_cap",
                expected_source=_SOURCE,
                source=device.sources.get("throttle_reasons"),
            ),
            *_clock(device),
        ),
        explanation=(
            "All ranks of a job wait for the slowest GPU in every step."
            if not idle
            else "Seen on an idle GPU: it may be over soon. Look again while a job runs."
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Check power supplies and power caps of the host and rack"
                if power
                else "Check fans, airflow and inlet temperature, then power supplies",
                command=smi(device, "-q -d PERFORMANCE,TEMPERATURE,POWER,CLOCK"),
            ),
        ),
        scope=scope_of(device),
        fault=Fault.HOST,
    )


def _clock(device: GpuDevice) -> tuple[Evidence, ...]:
    if device.sm_clock_mhz is None or device.sm_clock_max_mhz is None:
        return ()
    heat = f" at {device.temperature_c} °C" if device.temperature_c is not None else ""
    return (
        Evidence(
            text=f"SM clock {device.sm_clock_mhz} MHz of {device.sm_clock_max_mhz} MHz{heat}",
            value=device.sm_clock_mhz,
            unit="MHz",
            source=device.sources.get("sm_clock_mhz"),
        ),
    )


CHECK = Check(id="gpu-throttled", title="heat and power slowdown", run=check_throttled, preflight=True)

"""Are there GPUs that answer some queries with an error, such as `ERR!` in nvidia-smi's table?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed, missing
from distdoctor.env.checks.gpus import gpu_key, gpu_title, nvidia_gpus, scope_of, smi
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

# How nvidia-smi and NVML word a query that the GPU did not answer; N/A is something else.
_NO_ANSWER = re.compile(r"ERR!|Unknown Error")

# A text that shows none of these says nothing about how the GPU answers.
SENSORS = ("temperature_c", "power_w", "utilisation_pct")

# One sensor that fails is common on workstation boards; more at once mean that the GPU is in trouble. Our own rule.
SEVERAL = 2


def check_query_errors(facts: EnvFacts) -> Sequence[Outcome]:
    """A warning for a GPU with several failed queries, info for one; GPUs that are lost have their own check."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    found = [_found(device, failed) for device in devices if (failed := _failed(device))]
    answering = [device for device in devices if _answers(device)]
    if not answering:
        return found or [missing(facts, "gpus.devices", what="answers of the GPUs' sensors")]
    return found or [Passed(detail=f"no query of {len(answering)} GPUs ended with an error")]


def _answers(device: GpuDevice) -> bool:
    return any(getattr(device, name) is not None for name in SENSORS)


def _failed(device: GpuDevice) -> list[str]:
    return sorted(
        name
        for name, unread in device.unread.items()
        if unread.cause is SkipCause.FAILED and _NO_ANSWER.search(unread.reason)
    )


def _found(device: GpuDevice, failed: list[str]) -> Found:
    number = len(failed)
    names = ", ".join(failed)
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)} answers {number} quer{'y' if number == 1 else 'ies'} with an error",
        severity=Severity.WARNING if number >= SEVERAL else Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"no answer for {names}",
                value=number,
                unit="queries",
                expected="a value or N/A",
                expected_source="nvidia-smi's documentation: N/A stands for what a board does not have",
                source=device.unread[failed[0]].reason,
            ),
        ),
        explanation=(
            "The driver knows the GPU and cannot read its sensors. A board that overheats, lacks power or is about to "
            "fall off the bus does this; so does a fan or power sensor that is broken by itself."
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Read what the driver said about it; look at power cables and cooling of this GPU",
                command="sudo dmesg | grep -iE 'nvrm|xid' | tail; " + smi(device, "-q -d TEMPERATURE,POWER"),
            ),
        ),
        scope=scope_of(device),
        fault=Fault.GPU,
    )


CHECK = Check(
    id="gpu-query-errors", title="GPUs answer the driver's queries", run=check_query_errors, preflight=True
)

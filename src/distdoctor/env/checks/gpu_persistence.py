"""Does the driver stay loaded between jobs?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed
from distdoctor.env.checks.gpus import (
    gpu_names,
    in_container,
    is_data_centre,
    nvidia_gpus,
    scope_of,
    seen_and_unseen,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team


def check_persistence(facts: EnvFacts) -> Sequence[Outcome]:
    """Off on a data-centre GPU is a warning; elsewhere, and seen from a container, to know."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "persistence_mode", what="persistence mode")
    off = [device for device in seen if not device.persistence_mode]
    if off:
        return [_off(facts, off), *unseen]
    return [Passed(detail=f"persistence mode is on for {len(seen)} GPUs"), *unseen] if seen else unseen


def _off(facts: EnvFacts, devices: list[GpuDevice]) -> Found:
    server = any(is_data_centre(device) for device in devices)
    return Found(
        title=f"{gpu_names(devices)}: persistence mode is off",
        severity=Severity.WARNING if server and not in_container(facts) else Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"persistence mode off on {len(devices)} {devices[0].name or 'GPUs'}",
                value=False,
                expected="on",
                expected_source="NVIDIA, Driver Persistence",
                source=devices[0].sources.get("persistence_mode"),
            ),
        ),
        explanation=(
            "With no client the driver shuts the GPU down: every start of a job and every nvidia-smi takes seconds "
            "longer, and error counters and settings start afresh."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Run the persistence daemon on the host",
                command="sudo systemctl enable --now nvidia-persistenced  # or: sudo nvidia-smi -pm 1",
            ),
        ),
        scope=scope_of(*devices),
        fault=Fault.CONFIG,
    )


CHECK = Check(id="gpu-persistence", title="persistence mode", run=check_persistence, preflight=True)

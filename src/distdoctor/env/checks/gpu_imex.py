"""Is the service up by which GPUs of several hosts share memory over NVLink? (GB200, GB300)"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.gpus import in_container, nvidia_gpus
from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# Machines whose NVLink domain spans hosts.
MULTI_HOST_NVLINK = re.compile(r"\bGB[23]00\b")


def check_imex(facts: EnvFacts) -> Sequence[Outcome]:
    """A domain that is not UP is critical for jobs over several hosts, a warning for others."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    if not any(MULTI_HOST_NVLINK.search(device.name or "") for device in devices):
        if any(device.name is None for device in devices):
            return [missing(facts, "gpus.imex_state")]
        return [NotApplicable(detail="NVLink does not leave this host")]
    gpus = facts.gpus
    if gpus is None or gpus.imex_state is None:
        return [missing(facts, "gpus.imex_state")]
    if gpus.imex_state != "UP":
        inside = gpus.imex_state == "not installed" and in_container(facts)
        if not inside:
            return [_down(facts, gpus.imex_state)]
    if gpus.num_imex_channels == 0:
        return [_no_channel(gpus.sources.get("num_imex_channels"))]
    if gpus.imex_state != "UP":
        return [missing(facts, "gpus.imex_state", what="state of the IMEX domain (seen from the host only)")]
    return [Passed(detail="the IMEX domain is up")]


def _down(facts: EnvFacts, state: str) -> Found:
    one_host = facts.scheduler is not None and facts.scheduler.num_nodes == 1
    return Found(
        key="domain",
        title=f"The IMEX domain is {state}: no NVLink between hosts",
        severity=Severity.WARNING if one_host or state == "DEGRADED" else Severity.CRITICAL,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"IMEX domain: {state}",
                value=state,
                expected="UP",
                expected_source="NVIDIA IMEX Service guide",
                source=facts.gpus.sources.get("imex_state") if facts.gpus else None,
            ),
        ),
        explanation="GPUs of different hosts map each other's memory through this service; NCCL over NVLink fails without.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Start it on all hosts of the domain with the same node list",
                command="sudo systemctl restart nvidia-imex; nvidia-imex-ctl -N",
            ),
        ),
        fault=Fault.HOST,
    )


def _no_channel(source: str | None) -> Found:
    return Found(
        key="channel",
        title="No IMEX channel here: NVLink between hosts cannot be used",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text="no /dev/nvidia-caps-imex-channels/channel*",
                value=0,
                expected="channel0",
                expected_source="NVIDIA IMEX Service guide",
                source=source,
            ),
        ),
        explanation="Each job needs a channel; in Kubernetes the compute domain puts it into the pod.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Create the channel (module option), or give it to the container",
                command="ls -l /dev/nvidia-caps-imex-channels  # module option: NVreg_CreateImexChannel0=1",
            ),
        ),
        fault=Fault.CONFIG,
    )


CHECK = Check(id="gpu-imex", title="NVLink memory sharing between hosts", run=check_imex, preflight=True)

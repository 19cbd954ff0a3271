"""Are the GPUs registered with their NVLink fabric, and does the fabric manager run where there are NVSwitches?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.gpus import (
    NO_GPU,
    gpu_names,
    has_baseboard_nvlink,
    in_container,
    no_nvidia_hardware,
    nvidia_gpus,
    scope_of,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

# nvmlGpuFabricInfo_t of nvml.h.
STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
NOT_SUPPORTED, COMPLETED = 0, 3
UNHEALTHY, LIMITED = 2, 3

# Registration takes some minutes after boot. Our own threshold.
BOOT_GRACE_S = 300.0

# The fabric manager ends with this where it finds no NVSwitch: harmless on boxes that have none
# (NVIDIA/gpu-operator issue 610), a fault where the GPUs hang on switches.
NOTHING_TO_DO = "NV_WARN_NOTHING_TO_DO"

# GPUs that come on baseboards with NVSwitches when there are 8 of them.
_SWITCHED_COUNT = 8

# Rack-scale machines: the switches are managed in the switch trays, not on this host.
_RACK_SCALE = re.compile(r"\bGB[23]00\b|\bGH200\b")

CAUSE = "env:fabric_manager"

_SAYS = {"failed": "failed", "inactive": "is not running", "not installed": "is not installed"}

_HIDDEN = Unread(
    cause=SkipCause.IN_CONTAINER,
    reason="NVSwitches and their manager are not to be seen from inside a container",
    how="run `distdoctor checkup` on the host",
)

# nvmlReturn_t of nvml.h.
_STATUS_WORDS = {
    3: "not supported",
    10: "timeout",
    16: "GPU requires reset",
    23: "insufficient resources",
    27: "not ready",
}

# No fabric manager runs on a compute tray: it is the rack's, in the switch trays.
ASK_THE_RACK = Action(
    team=Team.PLATFORM,
    text="Look at the fabric manager in the rack's NVLink switch trays, and at this host's partition and IMEX",
    command="nvidia-smi -q | grep -A12 '^    Fabric'; nvidia-imex-ctl -N",
)

RESTART = Action(
    team=Team.PLATFORM,
    text="With no job on the host, restart the fabric manager; its version must be the driver's",
    command="sudo systemctl restart nvidia-fabricmanager && nvidia-smi -q | grep -A4 Fabric",
)


def check_fabric(facts: EnvFacts) -> Sequence[Outcome]:
    """Registration not completed or failed, an unhealthy fabric, and a fabric manager that does not run."""
    gpus = facts.gpus
    if gpus is None:
        return [missing(facts, "gpus.fabric_manager")]
    if no_nvidia_hardware(gpus) and not gpus.devices:
        return [NO_GPU]
    devices = nvidia_gpus(facts)
    known = devices if isinstance(devices, tuple) else ()
    manager = _judge_manager(gpus, known)
    if isinstance(manager, Found):
        # GPUs that wait for the fabric wait for it: one cause, one finding.
        return [manager]
    states = _judge_states(facts, known)
    if states:
        return states
    return [manager if manager is not None else _quiet(facts, gpus, known)]


def _quiet(facts: EnvFacts, gpus: GpuFacts, devices: Sequence[GpuDevice]) -> Outcome:
    """Nothing wrong was seen; was anything looked at?"""
    states = {device.fabric_state for device in devices} - {None}
    if COMPLETED in states:
        return Passed(detail="all GPUs are registered with the NVLink fabric")
    if gpus.fabric_manager == "active":
        return Passed(detail="the fabric manager is active")
    if in_container(facts) and any(has_baseboard_nvlink(device) for device in devices) and not states:
        return NotSeen(unread=_HIDDEN)
    if states == {NOT_SUPPORTED} or gpus.num_nvswitches == 0:
        return NotApplicable(detail="no NVSwitch here, so no fabric manager is needed")
    unread = [device.unread["fabric_state"] for device in devices if "fabric_state" in device.unread]
    if unread and unread[0].cause is SkipCause.UNSUPPORTED and not gpus.num_nvswitches:
        return NotApplicable(detail="these GPUs report no NVLink fabric")
    return NotSeen(unread=unread[0]) if unread else missing(facts, "gpus.fabric_manager")


def _judge_manager(gpus: GpuFacts, devices: Sequence[GpuDevice]) -> Found | NotApplicable | None:
    state = gpus.fabric_manager
    error = gpus.fabric_manager_error or ""
    if state == "active" or (state is None and not error):
        return None
    if state == "activating":
        return None
    needed = _needs_manager(gpus, devices)
    if needed is False:
        return NotApplicable(detail="no NVSwitch here: the fabric manager has nothing to do")
    if needed is None:
        if NOTHING_TO_DO in error:
            return NotApplicable(detail="the fabric manager found no NVSwitch")
        # Without a reason a failed unit says nothing as long as it is not known whether there is a switch.
        return _manager_down(gpus, sure=False) if state == "failed" and error else None
    if gpus.num_nvswitches is None and state != "failed" and not error:
        return None
    return _manager_down(gpus, sure=bool(gpus.num_nvswitches))


def _needs_manager(gpus: GpuFacts, devices: Sequence[GpuDevice]) -> bool | None:
    """Does this host have NVSwitches that it must manage? None: not known."""
    if any(_RACK_SCALE.search(device.name or "") for device in devices):
        return False
    if gpus.num_nvswitches:
        return True
    named = [device for device in devices if device.name]
    board = [device for device in named if has_baseboard_nvlink(device) and "V100" not in (device.name or "")]
    # B200 boards hide their switches from /dev; their fabric manager needs NVLSM.
    if len(board) >= _SWITCHED_COUNT and any(re.search(r"\bB[23]00\b", each.name or "") for each in board):
        return True
    if gpus.num_nvswitches == 0 or (named and not board):
        return False
    return True if len(board) >= _SWITCHED_COUNT else None


def _manager_down(gpus: GpuFacts, *, sure: bool) -> Found:
    state = gpus.fabric_manager or "failed"
    version = gpus.fabric_manager_version
    differs = version is not None and gpus.driver_version is not None and version != gpus.driver_version
    evidence = [
        Evidence(
            text=f"nvidia-fabricmanager is {state}; NVSwitches: {gpus.num_nvswitches or 'not counted'}",
            value=state,
            expected="active",
            expected_source="NVIDIA Fabric Manager user guide",
            source=gpus.sources.get("fabric_manager"),
        )
    ]
    if gpus.fabric_manager_error:
        evidence.append(
            Evidence(text=gpus.fabric_manager_error, source=gpus.sources.get("fabric_manager_error"))
        )
    if differs:
        evidence.append(
            Evidence(
                text=f"fabric manager {version}, driver {gpus.driver_version}",
                value=version,
                expected=gpus.driver_version,
                expected_source="NVIDIA Fabric Manager user guide: versions must be equal",
            )
        )
    return Found(
        key="manager",
        title=f"The fabric manager {_SAYS.get(state, f'is {state}')}: GPUs cannot use NVLink",
        severity=Severity.CRITICAL,
        # Not sure: that there are switches follows from the GPUs' model, or from the log line alone.
        confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
        evidence=tuple(evidence),
        explanation=(
            "On machines with NVSwitches CUDA does not start without it: error 802, `system not yet initialized`, or NCCL "
            "failures in nvls.cc."
        ),
        actions=(
            RESTART,
            Action(
                team=Team.PLATFORM,
                text="If it does not stay up, its log says why",
                command="sudo journalctl -u nvidia-fabricmanager -n 50 --no-pager; cat /proc/driver/nvidia/version",
            ),
        ),
        cause_class=CAUSE,
        fault=Fault.HOST,
    )


def _judge_states(facts: EnvFacts, devices: Sequence[GpuDevice]) -> list[Outcome]:
    waiting = [each for each in devices if each.fabric_state not in (None, NOT_SUPPORTED, COMPLETED)]
    failed = [each for each in devices if each.fabric_state == COMPLETED and each.fabric_status]
    unhealthy = [
        each
        for each in devices
        if each.fabric_state == COMPLETED and each.fabric_health in (UNHEALTHY, LIMITED)
    ]
    found: list[Outcome] = []
    if waiting:
        found.append(_waiting(facts, waiting))
    if failed:
        found.append(_failed(failed))
    if unhealthy and not failed:
        found.append(_unhealthy(unhealthy))
    return found


def _waiting(facts: EnvFacts, devices: list[GpuDevice]) -> Found:
    state = devices[0].fabric_state
    word = STATES.get(state if state is not None else -1, f"state {state}")
    uptime = facts.host.uptime_s if facts.host is not None else None
    young = uptime is not None and uptime < BOOT_GRACE_S
    return Found(
        key="state",
        title=f"{gpu_names(devices)}: registration with the NVLink fabric {word}",
        severity=Severity.WARNING if young else Severity.CRITICAL,
        confidence=Confidence.MEDIUM if young else Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"fabric state: {word}" + (f", {uptime:.0f} s after boot" if uptime is not None else ""),
                value=state,
                expected="3 (completed)",
                expected_source="nvml.h, nvmlGpuFabricInfo_t",
                source=devices[0].sources.get("fabric_state"),
            ),
        ),
        explanation=(
            "CUDA does not start on these GPUs (error 802) until the fabric manager, or on a rented machine the "
            "provider's, has registered them."
        ),
        actions=(
            _first_action(devices),
            Action(
                team=Team.PLATFORM,
                text="In a virtual machine the host's fabric manager is in charge: give its owner this report",
            ),
        ),
        scope=scope_of(*devices),
        cause_class=CAUSE,
        fault=Fault.HOST,
    )


def _first_action(devices: Sequence[GpuDevice]) -> Action:
    return ASK_THE_RACK if any(_RACK_SCALE.search(each.name or "") for each in devices) else RESTART


def _failed(devices: list[GpuDevice]) -> Found:
    status = devices[0].fabric_status
    return Found(
        key="status",
        title=f"{gpu_names(devices)}: registration with the NVLink fabric failed",
        severity=Severity.CRITICAL,
        evidence=(
            Evidence(
                text=f"fabric status: {_STATUS_WORDS.get(status or 0, f'NVML error {status}')}",
                value=status,
                expected="0 (success)",
                expected_source="nvml.h, nvmlGpuFabricInfo_t",
                source=devices[0].sources.get("fabric_status"),
            ),
        ),
        explanation="These GPUs cannot reach the others over NVLink.",
        actions=(_first_action(devices),),
        scope=scope_of(*devices),
        cause_class=CAUSE,
        fault=Fault.HOST,
    )


def _unhealthy(devices: list[GpuDevice]) -> Found:
    worst = UNHEALTHY if any(each.fabric_health == UNHEALTHY for each in devices) else LIMITED
    word = "unhealthy" if worst == UNHEALTHY else "of limited capacity"
    return Found(
        key="health",
        title=f"{gpu_names(devices)}: the NVLink fabric is {word}",
        severity=Severity.CRITICAL if worst == UNHEALTHY else Severity.WARNING,
        evidence=(
            Evidence(
                text=f"fabric health: {word}",
                value=worst,
                expected="1 (healthy)",
                expected_source="nvml.h, fabric health summary",
                source=devices[0].sources.get("fabric_health"),
            ),
        ),
        explanation="Routes or bandwidth of the fabric are degraded; collectives are slower or fail.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="See which part is degraded, then links and switches",
                command="nvidia-smi -q | grep -A20 '^    Fabric'; nvidia-smi nvlink -s; sudo dmesg | grep -i sxid | tail",
            ),
        ),
        scope=scope_of(*devices),
        cause_class=CAUSE,
        fault=Fault.HOST,
    )


CHECK = Check(id="gpu-fabric", title="NVLink fabric and its manager", run=check_fabric, preflight=True)

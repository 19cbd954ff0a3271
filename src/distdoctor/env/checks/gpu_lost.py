"""Is a GPU that this host has out of reach? One finding a GPU; errors that follow from it are not told again."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.gpus import (
    NO_GPU,
    gpu_key,
    gpu_title,
    in_container,
    no_nvidia_hardware,
    scope_of,
    smi,
)
from distdoctor.env.checks.kernel_events import boot_note, line_evidence, severity_by_age
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import UNKNOWN_INDEX, GpuDevice, GpuFacts, NvmlState
from distdoctor.env.facts.kernel_log import KernelEvent, KernelEventKind
from distdoctor.env.pci import same_device, sysfs_address
from distdoctor.report.model import (
    Action,
    Confidence,
    Evidence,
    Fault,
    GpuRef,
    Scope,
    Severity,
    SkipCause,
    Team,
)

# NVIDIA, XID Errors: 79 "GPU has fallen off the bus".
XID_OFF_BUS = 79

# Lines of the kernel log shown beside a lost GPU.
MAX_LOG_LINES = 3

# Kernel drivers that hold a GPU which NVML cannot list; anything else means that it should be listed.
NOT_OURS = ("vfio-pci", "nouveau", "pci-stub")

EXPLANATION = (
    "The GPU no longer answers the driver: it fell off the PCIe bus, or needs a reset after a fault. Every job on "
    "this host that uses it fails or hangs. Errors of other queries about it follow from this."
)


def check_lost(facts: EnvFacts) -> Sequence[Outcome]:
    """GPUs that NVML calls lost, and GPUs on the PCI bus that NVML does not list."""
    gpus = facts.gpus
    if gpus is None:
        from_log = _from_log_alone(facts, ())
        return from_log or [missing(facts, "gpus.devices")]
    devices = [device for device in gpus.devices or () if device.vendor == "nvidia"]
    lost = [device for device in devices if device.lost]
    if lost and all(_told_by_xid(facts, device) for device in lost):
        return [Passed(detail="the loss is told by kernel-xid")]
    found: list[Outcome] = [_lost(facts, device) for device in lost if not _told_by_xid(facts, device)]
    found += _from_log_alone(facts, devices)
    if found:
        return found
    if no_nvidia_hardware(gpus) and not devices:
        return [NO_GPU]
    if gpus.devices is None:
        return [missing(facts, "gpus.devices")]
    return _count(facts, gpus, devices)


def _told_by_xid(facts: EnvFacts, device: GpuDevice) -> bool:
    """A GPU lost by its UUID alone is the one whose Xid 79 is in the log; the log knows its address."""
    return device.pci is None and any(event.code == XID_OFF_BUS for event in _events_about(facts, device))


def _lost(facts: EnvFacts, device: GpuDevice) -> Found:
    reason = device.lost_reason or "it does not answer"
    needs_reset = "RESET_REQUIRED" in reason or "requires re" in reason
    evidence = [Evidence(text=reason, source=device.sources.get("lost") or "NVML")]
    evidence += [
        line_evidence(facts, event, value=event.code)
        for event in _events_about(facts, device)[:MAX_LOG_LINES]
    ]
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)} {'needs a reset' if needs_reset else 'is lost'}",
        severity=Severity.CRITICAL,
        evidence=tuple(evidence),
        explanation=EXPLANATION,
        actions=_actions(device),
        scope=scope_of(device),
        cause_class="gpu:fell_off_bus",
        fault=Fault.GPU,
    )


def _actions(device: GpuDevice) -> tuple[Action, ...]:
    address = sysfs_address(device.pci) if device.pci else None
    return (
        Action(
            team=Team.PLATFORM,
            text="Drain this host, then reset the GPU; if that fails, power-cycle the host",
            command=smi(device, "--gpu-reset"),
        ),
        Action(
            team=Team.HARDWARE,
            text="If it comes back, look at power, temperature, riser and seat of this GPU",
            command=f"sudo lspci -s {address} -vv; sudo dmesg | grep -iE 'xid|fallen|aer'"
            if address
            else None,
        ),
    )


def _events_about(facts: EnvFacts, device: GpuDevice) -> list[KernelEvent]:
    """Kernel lines of the loss of this GPU; of one whose address is unknown, those of the only lost address."""
    events = [
        event
        for event in (facts.kernel_log.events if facts.kernel_log else None) or ()
        if event.kind in (KernelEventKind.OFF_BUS, KernelEventKind.NVML_LOST)
        or (event.kind is KernelEventKind.XID and event.code == XID_OFF_BUS)
    ]
    if device.pci is not None:
        return [event for event in events if same_device(event.pci, device.pci)]
    return events if len({event.pci for event in events if event.pci}) == 1 else []


def _from_log_alone(facts: EnvFacts, devices: Sequence[GpuDevice]) -> list[Outcome]:
    """GPUs that fell off the bus by the kernel log, without an Xid 79, and that do not answer now.

    Xid lines have their own check; driver 5xx and newer also print the sentence without one.
    """
    events = (facts.kernel_log.events if facts.kernel_log else None) or ()
    told = {event.pci for event in events if event.kind is KernelEventKind.XID and event.code == XID_OFF_BUS}
    found: dict[str, Outcome] = {}
    unplaced = sum(device.lost is True and device.pci is None for device in devices)
    for event in events:
        if event.kind is not KernelEventKind.OFF_BUS or event.pci is None or event.pci in found:
            continue
        if any(same_device(event.pci, other) for other in told):
            continue
        if any(same_device(event.pci, device.pci) for device in devices):
            continue
        found[event.pci] = _fell_off(facts, event, event.pci)
    # Lost GPUs that the text names by UUID are these.
    return list(found.values())[unplaced:]


def _fell_off(facts: EnvFacts, event: KernelEvent, pci: str) -> Found:
    return Found(
        key=pci,
        title=f"The GPU at {pci} has fallen off the bus",
        severity=severity_by_age(facts, [event], Severity.CRITICAL),
        evidence=(line_evidence(facts, event),),
        explanation=EXPLANATION + boot_note([event]),
        actions=_actions(GpuDevice(index=UNKNOWN_INDEX, pci=pci)),
        scope=Scope(gpus=(GpuRef(pci=pci),)),
        cause_class="gpu:fell_off_bus",
        fault=Fault.GPU,
    )


def _count(facts: EnvFacts, gpus: GpuFacts, devices: Sequence[GpuDevice]) -> Sequence[Outcome]:
    """Does NVML list as many GPUs as the host shows? In a container the PCI bus is the whole host's."""
    answering = Passed(detail=f"{len(devices)} of {len(devices)} listed GPUs answer")
    if gpus.nvml_state is NvmlState.HUNG:
        return [missing(facts, "gpus.devices")]
    container = in_container(facts)
    if container is not False:
        return [answering, *_count_in_container(facts, gpus, devices, container)]
    if gpus.num_pci_gpus is None:
        return [answering, missing(facts, "gpus.num_pci_gpus", what="number of GPUs on the PCI bus")]
    expected = [address for address in gpus.pci_gpus if gpus.pci_drivers.get(address) not in NOT_OURS]
    absent = [
        address for address in expected if not any(same_device(address, device.pci) for device in devices)
    ]
    hidden = gpus.num_forbidden_nodes or 0
    if len(expected) - hidden <= len(devices):
        detail = f"{len(devices)} of {len(expected)} GPUs on the PCI bus answer"
        return [Passed(detail=detail + (f"; {hidden} are not given to this job" if hidden else ""))]
    return [_not_listed(gpus, absent, len(expected), len(devices), hidden)]


def _not_listed(gpus: GpuFacts, absent: list[str], expected: int, listed: int, hidden: int) -> Found:
    number = expected - hidden - listed
    # With some GPUs hidden by a job's cgroup, which of the absent ones is lost is not known.
    certain = hidden == 0 and all(gpus.pci_drivers.get(address) == "nvidia" for address in absent)
    where = f" ({absent[0]})" if len(absent) == 1 else ""
    return Found(
        key=",".join(absent),
        title=f"{number} of {expected} GPUs on the PCI bus {'is' if number == 1 else 'are'} not listed by the driver{where}",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH if certain else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"the driver lists {listed} GPUs, the PCI bus shows {expected}: absent {', '.join(absent)}",
                value=listed,
                unit="GPUs",
                expected=f"{expected - hidden} GPUs",
                expected_source="/sys/bus/pci/devices, vendor 10de",
                source="nvmlDeviceGetCount",
            ),
        ),
        explanation=EXPLANATION,
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See what the driver said about it; drain and power-cycle the host",
                command="sudo dmesg | grep -iE 'nvrm|xid|fallen|rminit'; lspci -d 10de: -nn",
            ),
        ),
        scope=Scope(gpus=tuple(GpuRef(pci=address) for address in absent)) if hidden == 0 else Scope(),
        cause_class="gpu:fell_off_bus",
        fault=Fault.GPU,
    )


def _count_in_container(
    facts: EnvFacts, gpus: GpuFacts, devices: Sequence[GpuDevice], container: bool | None
) -> list[Outcome]:
    """Device files are the only count of what a container was given."""
    if container is None and not facts.is_live:
        return [missing(facts, "gpus.num_pci_gpus", what="number of GPUs that the host should have")]
    nodes = gpus.num_device_nodes
    if not nodes:
        unread = Unread(
            cause=SkipCause.IN_CONTAINER,
            reason="how many GPUs the host has is not to be seen from inside a container",
            how="run `distdoctor checkup` on the host",
        )
        return [NotSeen(unread=unread, what="number of GPUs that the host should have")]
    missing_nodes = nodes - (gpus.num_forbidden_nodes or 0) - len(devices)
    if missing_nodes <= 0:
        return []
    return [
        Found(
            key="container",
            title=f"{missing_nodes} of {nodes} GPUs given to this container {'does' if missing_nodes == 1 else 'do'} not answer",
            severity=Severity.CRITICAL,
            confidence=Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"{nodes} device files /dev/nvidia*, {len(devices)} GPUs listed by the driver",
                    value=len(devices),
                    unit="GPUs",
                    expected=f"{nodes} GPUs",
                    expected_source=gpus.sources.get("num_device_nodes"),
                    source="nvmlDeviceGetCount",
                ),
            ),
            explanation=EXPLANATION,
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="Look from the host, where the kernel log and all GPUs are visible",
                    command="nvidia-smi -L; sudo dmesg | grep -iE 'nvrm|xid'",
                ),
            ),
            cause_class="gpu:fell_off_bus",
            fault=Fault.GPU,
        )
    ]


CHECK = Check(id="gpu-lost", title="every GPU of this host answers", run=check_lost, preflight=True)

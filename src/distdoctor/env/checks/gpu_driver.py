"""Does the NVIDIA driver answer? If not, why, and who can mend it?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.gpus import NO_GPU, in_container, no_nvidia_hardware
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuFacts, NvmlState
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

CAUSE = "env:driver"

# What nvidia-smi prints when the driver is loaded and shows no GPU that works.
NO_DEVICES = "No devices were found"

# NVIDIA_VISIBLE_DEVICES values by which a container asks for no GPU (NVIDIA Container Toolkit user guide).
ASKS_FOR_NONE = ("", "void", "none")

_HOLD_PACKAGES = Action(
    team=Team.PLATFORM,
    text="Keep unattended upgrades from replacing the driver under running jobs",
    command="apt-mark hold $(dpkg-query -W -f='${Package}\\n' 'libnvidia-*' 'nvidia-*')",
)


def check_driver(facts: EnvFacts) -> Sequence[Outcome]:
    """Every way in which NVML's initialisation fails is critical where there is a GPU to drive."""
    gpus = facts.gpus
    if gpus is None:
        return [missing(facts, "gpus.nvml_state")]
    if no_nvidia_hardware(gpus):
        return [NO_GPU]
    match gpus.nvml_state:
        case None | NvmlState.NOT_ASKED:
            return [_without_state(facts, gpus)]
        case NvmlState.OK:
            return [_answers(gpus)]
        case NvmlState.NO_LIBRARY:
            return [_no_library(facts, gpus)]
        case NvmlState.DRIVER_NOT_LOADED:
            return [_not_loaded(gpus)]
        case NvmlState.VERSION_MISMATCH:
            return [_mismatch(gpus)]
        case NvmlState.NO_PERMISSION:
            return [_no_permission(gpus)]
        case NvmlState.UNKNOWN_ERROR:
            return [_unknown_error(facts, gpus)]
        case NvmlState.HUNG:
            return [_hung(gpus)]


def _without_state(facts: EnvFacts, gpus: GpuFacts) -> Outcome:
    if any(device.vendor == "nvidia" and not device.lost for device in gpus.devices or ()):
        return _answers(gpus)
    if gpus.devices is not None and not any(device.vendor == "nvidia" for device in gpus.devices):
        return NO_GPU
    return missing(facts, "gpus.nvml_state")


def _answers(gpus: GpuFacts) -> Passed:
    count = sum(device.vendor == "nvidia" for device in gpus.devices or ())
    driver = f"driver {gpus.driver_version}" if gpus.driver_version else "the driver"
    return Passed(detail=f"{driver} answers and lists {count} GPU{'s' if count != 1 else ''}")


def _evidence(gpus: GpuFacts) -> tuple[Evidence, ...]:
    lines = []
    if gpus.nvml_error:
        lines.append(Evidence(text=f"NVML says: {gpus.nvml_error}", source=gpus.sources.get("nvml_error")))
    if gpus.num_pci_gpus:
        lines.append(
            Evidence(
                text=f"NVIDIA GPUs on the PCI bus: {gpus.num_pci_gpus} {' '.join(gpus.pci_gpus[:16])}".rstrip(),
                value=gpus.num_pci_gpus,
                source=gpus.sources.get("num_pci_gpus"),
            )
        )
    if gpus.kernel_module_version:
        lines.append(
            Evidence(
                text=f"loaded kernel module: {gpus.kernel_module_version}",
                value=gpus.kernel_module_version,
                source=gpus.sources.get("kernel_module_version"),
            )
        )
    if gpus.nvml_library_version:
        lines.append(
            Evidence(
                text=f"libnvidia-ml on disk: {gpus.nvml_library_version}",
                value=gpus.nvml_library_version,
                source=gpus.sources.get("nvml_library_version"),
            )
        )
    return tuple(lines) or (Evidence(text=f"NVML's state: {gpus.nvml_state and gpus.nvml_state.value}"),)


def _no_library(facts: EnvFacts, gpus: GpuFacts) -> Outcome:
    if in_container(facts):
        return _no_library_in_container(facts, gpus)
    if gpus.pci_gpus and all(gpus.pci_drivers.get(address) == "vfio-pci" for address in gpus.pci_gpus):
        return NotApplicable(detail="the GPUs are handed to virtual machines (vfio-pci)")
    return Found(
        key="no-library",
        title="The NVIDIA driver's libraries are missing although there are GPUs",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH if gpus.num_pci_gpus else Confidence.MEDIUM,
        evidence=_evidence(gpus),
        explanation="Without libnvidia-ml.so.1 (and libcuda.so.1) neither PyTorch nor NCCL sees a GPU.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Install the driver's user part at the version of the kernel module",
                command="cat /proc/driver/nvidia/version; ldconfig -p | grep -E 'libcuda|libnvidia-ml'",
            ),
        ),
        cause_class=CAUSE,
        fault=Fault.SOFTWARE,
    )


def _no_library_in_container(facts: EnvFacts, gpus: GpuFacts) -> Outcome:
    """A container sees the host's PCI bus even when it was given no GPU; device files tell whether it was."""
    asked = (facts.container.visible_devices if facts.container else None) or ""
    wanted = asked.lower() not in ASKS_FOR_NONE or bool(facts.scheduler and facts.scheduler.gpus_requested)
    if not gpus.num_device_nodes and not wanted:
        return NotApplicable(detail="this container was given no GPU (the host has some)")
    return Found(
        key="no-library",
        title="This container has no NVIDIA driver libraries",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH if gpus.num_device_nodes else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{gpus.num_device_nodes or 0} GPU device files, no libnvidia-ml.so.1",
                value=gpus.num_device_nodes,
                source=gpus.sources.get("num_device_nodes"),
            ),
            *_evidence(gpus),
        ),
        explanation=(
            "The container runtime did not put the driver's libraries in. NCCL opens libnvidia-ml.so.1 and stops "
            "without it, even where CUDA itself works (capability `compute` without `utility`)."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Start it with the NVIDIA runtime and both capabilities",
                command="docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …",
            ),
        ),
        cause_class=CAUSE,
        fault=Fault.CONFIG,
    )


def _not_loaded(gpus: GpuFacts) -> Outcome:
    bound = {name for address in gpus.pci_gpus if (name := gpus.pci_drivers.get(address))}
    if gpus.pci_gpus and bound == {"vfio-pci"}:
        return NotApplicable(detail="the GPUs are handed to virtual machines (vfio-pci)")
    nouveau = "nouveau" in bound
    return Found(
        key="not-loaded",
        title="The NVIDIA kernel driver is not loaded" + (": nouveau holds the GPU" if nouveau else ""),
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH if gpus.num_pci_gpus else Confidence.MEDIUM,
        evidence=_evidence(gpus),
        explanation=(
            "No program can use the GPUs. Usual causes: a new kernel for which the module was not built, Secure Boot "
            "that refuses it, or another driver that took the device."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Load it; if that fails, the kernel log says why",
                command="sudo modprobe nvidia; dkms status; sudo dmesg | grep -iE 'nvrm|nvidia|nouveau' | tail",
            ),
        ),
        cause_class=CAUSE,
        fault=Fault.SOFTWARE,
    )


def _mismatch(gpus: GpuFacts) -> Found:
    module = gpus.kernel_module_version or gpus.driver_version or "unknown"
    library = gpus.nvml_library_version or "unknown"
    return Found(
        key="mismatch",
        title=f"Driver and library differ: kernel module {module}, library {library}",
        severity=Severity.CRITICAL,
        evidence=_evidence(gpus),
        explanation=(
            "The driver's packages were upgraded while the old kernel module stayed loaded. Jobs that run go on; new "
            "ones and nvidia-smi fail until both are of one version."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Drain the host, then load the new module, or reboot",
                command="sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia  # or: sudo reboot",
            ),
            _HOLD_PACKAGES,
        ),
        cause_class=CAUSE,
        fault=Fault.SOFTWARE,
    )


def _no_permission(gpus: GpuFacts) -> Found:
    return Found(
        key="no-permission",
        title="This process may not open the GPUs' device files",
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=_evidence(gpus),
        explanation="The files' mode, or the device cgroup of the container or job, forbids it; the job is refused too.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Look at the files' mode, and at the devices that the job or container was given",
                command="ls -l /dev/nvidia*; id; cat /proc/self/cgroup",
            ),
        ),
        cause_class=CAUSE,
        fault=Fault.CONFIG,
    )


def _unknown_error(facts: EnvFacts, gpus: GpuFacts) -> Found:
    if NO_DEVICES in (gpus.nvml_error or ""):
        return _no_devices(gpus)
    if in_container(facts):
        explanation = (
            "In a container that worked before: `systemctl daemon-reload` on the host rewrote the device cgroup and "
            "took the GPUs away (NVIDIA/nvidia-container-toolkit issue 48). Running CUDA programs go on for a while."
        )
        action = Action(
            team=Team.PLATFORM,
            text="Restart the container; on the host use CDI, or create the /dev/char links",
            command="sudo nvidia-ctk system create-dev-char-symlinks --create-all",
        )
    else:
        explanation = (
            "The driver is loaded but its library cannot work with it; the kernel log says more. In a container: the "
            "GPUs may have been taken from its device cgroup."
        )
        action = Action(
            team=Team.PLATFORM,
            text="Read what the driver said last; in a container, restart it",
            command="sudo dmesg | grep -iE 'nvrm|xid' | tail -20",
        )
    return Found(
        key="unknown",
        title="The NVIDIA driver answers with an error",
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=_evidence(gpus),
        explanation=explanation,
        actions=(action,),
        cause_class=CAUSE,
        fault=Fault.HOST,
    )


def _no_devices(gpus: GpuFacts) -> Found:
    return Found(
        key="no-devices",
        title="The NVIDIA driver is loaded but lists no GPU",
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=_evidence(gpus),
        explanation=(
            "The driver could initialise none: a GPU off the bus, a failed start (`RmInitAdapter failed` in the kernel "
            "log), or a module that does not support the board. A job or container that was given none sees the same."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See whether the bus shows GPUs, and what the driver said about them",
                command="lspci -d 10de: -nn; sudo dmesg | grep -iE 'nvrm|rminit' | tail -20",
            ),
        ),
        cause_class=CAUSE,
        fault=Fault.HOST,
    )


def _hung(gpus: GpuFacts) -> Found:
    return Found(
        key="hung",
        title="The NVIDIA driver does not answer in time",
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM,
        evidence=_evidence(gpus),
        explanation=(
            "A call into the driver did not come back. A wedged GPU or its firmware does this (Xid 119 in the kernel "
            "log); a slow first start without persistence mode can look alike for some seconds."
        ),
        actions=(
            Action(
                team=Team.PLATFORM,
                text="See whether it is stuck or slow, and what the kernel log says",
                command="time timeout 120 nvidia-smi -L; ps -eo pid,stat,wchan:32,comm | awk '$2 ~ /D/'; sudo dmesg | grep -i xid | tail",
            ),
        ),
        cause_class=CAUSE,
        fault=Fault.GPU,
    )


CHECK = Check(
    id="gpu-driver-unreachable",
    title="NVIDIA driver answers",
    run=check_driver,
    preflight=True,
    essential=True,
)

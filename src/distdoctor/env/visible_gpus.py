"""Which GPUs would the process use? What NVML lists, cut and ordered by CUDA_VISIBLE_DEVICES. Pure.

Rules: CUDA C++ Programming Guide, "CUDA Environment Variables". CUDA numbers GPUs by its own order
("fastest first"), NVML by PCI address; on a host with GPUs of one kind the two agree.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import GpuRef

# In this order ROCm reads them too; CUDA reads the first only.
VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleGpus:
    """GPUs as the process numbers them: `devices[0]` is its GPU 0."""

    devices: tuple[GpuDevice, ...]
    why: str
    """What they were counted by, for evidence: "CUDA_VISIBLE_DEVICES=0,1"."""
    unknown: str | None = None
    """The entry of the variable that names no GPU here; it and all that follow are ignored."""

    @property
    def count(self) -> int:
        """How many the process can use."""
        return len(self.devices)


def visible_gpus(facts: EnvFacts) -> VisibleGpus | None:
    """GPUs that the process can use; None when NVML's list was not read or MIG slices are in play.

    With MIG a process gets slices rather than GPUs, and their number is not known from the parents.
    """
    devices = facts.gpus.devices if facts.gpus is not None else None
    if devices is None or any(device.mig_mode for device in devices):
        return None
    name, text = visible_variable(facts)
    if text is None:
        return VisibleGpus(devices=devices, why=f"{len(devices)} GPUs on this host")
    chosen: list[GpuDevice] = []
    for entry in (part.strip() for part in text.split(",")):
        device = _device(devices, entry)
        if device is None or device in chosen:
            ends = entry in ("", "-1", "NoDevFiles") or device is not None
            return VisibleGpus(devices=tuple(chosen), why=f"{name}={text}", unknown=None if ends else entry)
        chosen.append(device)
    return VisibleGpus(devices=tuple(chosen), why=f"{name}={text}")


def visible_variable(facts: EnvFacts) -> tuple[str, str | None]:
    """(name, value) of the variable that chooses GPUs; value None when none is set."""
    environment = facts.variables.environment if facts.variables is not None else {}
    for name in VARIABLES:
        if name in environment:
            return name, environment[name]
    return VARIABLES[0], facts.gpus.cuda_visible_devices if facts.gpus is not None else None


def gpu_of_local_rank(facts: EnvFacts) -> GpuDevice | None:
    """The GPU that a rank takes by `torch.cuda.set_device(LOCAL_RANK)`, or the only one that it sees."""
    visible = visible_gpus(facts)
    local_rank = facts.scheduler.local_rank if facts.scheduler is not None else None
    if visible is None or local_rank is None:
        return None
    if visible.count == 1:
        return visible.devices[0]
    return visible.devices[local_rank] if local_rank < visible.count else None


def gpu_ref(facts: EnvFacts, device: GpuDevice) -> GpuRef:
    """The GPU's name in a finding."""
    return GpuRef(
        host=facts.host_name, index=device.index, pci=device.pci, uuid=device.uuid, model=device.name
    )


def _device(devices: tuple[GpuDevice, ...], entry: str) -> GpuDevice | None:
    if entry.isdecimal():
        return next((device for device in devices if device.index == int(entry)), None)
    # A UUID may be cut as long as it stays unambiguous.
    if entry.startswith("GPU-"):
        matches = [device for device in devices if (device.uuid or "").startswith(entry)]
        return matches[0] if len(matches) == 1 else None
    return None

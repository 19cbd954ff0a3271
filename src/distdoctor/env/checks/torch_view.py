"""What the torch checks ask of the facts: the build, the driver, whether there is a GPU, how to call pip."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Section
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.env.versions import parse_version
from distdoctor.report.model import GpuRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A text with the place it was read from."""

    text: str
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchBuild:
    """What torch was built for, by the import or else by its files. At most one of cuda, hip, xpu, is_cpu."""

    version: str | None
    cuda: str | None
    hip: str | None
    xpu: str | None
    is_cpu: bool
    source: str | None

    @property
    def cuda_major(self) -> int | None:
        """13 of "13.0"."""
        version = parse_version(self.cuda)
        return version[0] if version else None


def torch_build(facts: EnvFacts) -> TorchBuild | None:
    """The build of the torch that is there; None when it is not known."""
    probe, files = facts.torch_probe, facts.torch
    if probe is not None and probe.torch_version is not None and (probe.cuda_build or probe.hip_build):
        return TorchBuild(
            version=probe.torch_version,
            cuda=probe.cuda_build,
            hip=probe.hip_build,
            xpu=None,
            is_cpu=False,
            source=probe.sources.get("cuda_build") or probe.sources.get("state"),
        )
    if files is None or (files.is_cpu_build is None and not (files.cuda_build or files.hip_build)):
        return None
    return TorchBuild(
        version=files.version,
        cuda=files.cuda_build,
        hip=files.hip_build,
        xpu=files.xpu_build,
        is_cpu=bool(files.is_cpu_build),
        source=files.sources.get("cuda_build") or files.sources.get("version"),
    )


def torch_version(facts: EnvFacts) -> Known | None:
    """torch.__version__, by the import or else by version.py."""
    for section, field in ((facts.torch_probe, "torch_version"), (facts.torch, "version")):
        known = _known(section, field)
        if known is not None:
            return known
    return None


def nvidia_driver(facts: EnvFacts) -> Known | None:
    """The driver's version: that of the loaded kernel module before what nvidia-smi says."""
    for field in ("kernel_module_version", "driver_version"):
        known = _known(facts.gpus, field)
        if known is not None:
            return known
    return None


def nvidia_devices(facts: EnvFacts) -> tuple[GpuDevice, ...]:
    """NVIDIA GPUs that were listed; empty also when nothing was read."""
    devices = facts.gpus.devices if facts.gpus is not None else None
    return tuple(device for device in devices or () if device.vendor == "nvidia")


def has_nvidia(facts: EnvFacts) -> bool | None:
    """True when an NVIDIA GPU or a loaded driver is seen, False when none is there, None when it was not seen."""
    gpus = facts.gpus
    if gpus is None:
        return None
    counts = (gpus.num_pci_gpus, gpus.num_device_nodes, gpus.num_proc_gpus)
    if nvidia_devices(facts) or gpus.pci_gpus or any(counts) or nvidia_driver(facts) is not None:
        return True
    if gpus.num_pci_gpus == 0 or (gpus.devices is not None and "devices" not in gpus.unread):
        return False
    return None


def has_amd(facts: EnvFacts) -> bool | None:
    """As `has_nvidia`, for AMD GPUs: by PCI on a live machine, by the list in a text."""
    gpus = facts.gpus
    if gpus is None:
        return None
    if gpus.amd_pci_gpus or any(device.vendor == "amd" for device in gpus.devices or ()):
        return True
    return (
        False
        if facts.is_live and "amd_pci_gpus" not in gpus.unread and gpus.num_pci_gpus is not None
        else None
    )


def gpu_ref(device: GpuDevice) -> GpuRef:
    """How a report names this GPU."""
    return GpuRef(index=device.index, pci=device.pci, uuid=device.uuid, model=device.name)


def pip_command(facts: EnvFacts, arguments: str) -> str:
    """`python -m pip …` with the job's own interpreter. `arguments` is ours, never from evidence."""
    executable = facts.python.executable if facts.python is not None else None
    return f"{shlex.quote(executable or 'python')} -m pip {arguments}"


def pinned(facts: EnvFacts, name: str) -> str | None:
    """The version of distribution `name` that torch's own metadata pins."""
    return facts.torch.required_nvidia.get(name) if facts.torch is not None else None


def installed(facts: EnvFacts, name: str) -> str | None:
    """The version of distribution `name` that is installed for the job's Python."""
    return facts.python.distributions.get(name) if facts.python is not None else None


def _known(section: Section | None, field: str) -> Known | None:
    value = getattr(section, field, None)
    if not isinstance(value, str) or not value or section is None:
        return None
    return Known(text=value, source=section.sources.get(field))

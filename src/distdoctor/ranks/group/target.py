"""What this rank works on: backend, device, and the names by which somebody finds that device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from distdoctor.ranks.group.device import choose_backend, device_of, take


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Backend and device of one rank."""

    backend: str
    device: torch.device
    gpu_pci: str | None = None
    gpu_uuid: str | None = None
    gpu_model: str | None = None


def find_target(asked: str | None, local_rank: int) -> Target:
    """This rank's target, made the current device. Raises UsageError."""
    backend = choose_backend(asked)
    device = device_of(backend, local_rank)
    take(device)
    if device.type != "cuda":
        return Target(backend=backend, device=device)
    # Not every torch tells all of these.
    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    return Target(
        backend=backend,
        device=device,
        gpu_pci=_pci_address(properties),
        gpu_uuid=None if uuid is None else f"GPU-{str(uuid).removeprefix('GPU-')}",
        gpu_model=properties.name,
    )


def _pci_address(properties: object) -> str | None:
    """As NVML writes it: 00000000:3B:00.0."""
    numbers = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if not all(isinstance(number, int) for number in numbers):
        return None
    domain, bus, device = numbers
    return f"{domain:08X}:{bus:02X}:{device:02X}.0"

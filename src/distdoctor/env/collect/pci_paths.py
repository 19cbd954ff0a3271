"""The PCI bridges between the GPUs, the RDMA NICs and the root complex, and what they do to direct traffic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.pci_config import FULL_BYTES, LEGACY_BYTES, UNPRIVILEGED_BYTES, acs_control, port_type
from distdoctor.report.model import SkipCause

DEVICES = "/sys/bus/pci/devices"

NVIDIA, AMD = "0x10de", "0x1002"

# PCI base classes: 0x03 display controller (all NVIDIA GPUs, AMD's with a display engine), 0x12 processing
# accelerator (AMD Instinct).
GPU_CLASSES = {NVIDIA: ("0x03",), AMD: ("0x03", "0x12")}

ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")

HOW_ROOT = "run as root on the host: sudo lspci -vvv | grep -E '^[0-9a-f]|ACSCtl'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """PCI addresses of what exchanges data directly."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]


def read_pci_paths(world: World, reading: Reading) -> None:
    """Put acs_*, gpu_numa_nodes and device_iommu_types of HostFacts into `reading`."""
    endpoints = cache(lambda: find_endpoints(world))
    bridges = cache(lambda: _bridges(world, endpoints()))
    reading.take("acs_relevant_bridges", DEVICES, bridges)
    configs = cache(lambda: {address: _config(world, address) for address in bridges()})
    reading.take("acs_bridges", f"{DEVICES}/*/config", lambda: _controls(configs()))
    reading.take("acs_port_types", f"{DEVICES}/*/config", lambda: _types(configs()))
    reading.take(
        "gpu_numa_nodes",
        f"{DEVICES}/*/numa_node",
        lambda: {gpu: int(world.read_line(f"{DEVICES}/{gpu}/numa_node")) for gpu in endpoints().gpus},
    )
    reading.take(
        "device_iommu_types",
        f"{DEVICES}/*/iommu_group/type",
        lambda: _iommu_types(world, (*endpoints().gpus, *endpoints().nics)),
    )


def find_endpoints(world: World) -> Endpoints:
    """GPUs of NVIDIA and AMD, and NICs with an RDMA device. Raises OSError when PCI devices are not listed."""
    gpus, nics = [], []
    for address in world.listdir(DEVICES):
        folder = f"{DEVICES}/{address}"
        try:
            vendor, device_class = world.read_line(f"{folder}/vendor"), world.read_line(f"{folder}/class")
        except OSError:
            continue
        if device_class.startswith(GPU_CLASSES.get(vendor, ())):
            gpus.append(address)
        elif world.exists(f"{folder}/infiniband"):
            nics.append(address)
    return Endpoints(gpus=tuple(gpus), nics=tuple(nics))


def _bridges(world: World, endpoints: Endpoints) -> tuple[str, ...]:
    """Bridges above the endpoints: a device's link in sysfs spells its path from the root complex."""
    found: set[str] = set()
    for address in (*endpoints.gpus, *endpoints.nics):
        parts = world.readlink(f"{DEVICES}/{address}").split("/")
        found.update(part for part in parts[:-1] if ADDRESS.match(part))
    return tuple(sorted(found))


def _config(world: World, address: str) -> bytes:
    config = world.read_bytes(f"{DEVICES}/{address}/config")[:FULL_BYTES]
    if len(config) <= UNPRIVILEGED_BYTES:
        raise UnreadError(
            SkipCause.NEEDS_ROOT,
            f"{DEVICES}/{address}/config shows {len(config)} bytes; ACS stands above {LEGACY_BYTES}",
            HOW_ROOT,
        )
    return config


def _controls(configs: Mapping[str, bytes]) -> dict[str, int]:
    controls: dict[str, int] = {}
    for address, config in configs.items():
        try:
            control = acs_control(config)
        except ValueError as error:
            raise UnreadError(SkipCause.FAILED, f"{address}: {error}", HOW_ROOT) from error
        if control is not None:
            controls[address] = control
    return controls


def _types(configs: Mapping[str, bytes]) -> dict[str, str]:
    types = {address: port_type(config) for address, config in configs.items()}
    return {address: kind.name.lower().replace("_", " ") for address, kind in types.items() if kind}


def _iommu_types(world: World, addresses: tuple[str, ...]) -> dict[str, str]:
    """Domain type of each device that is in a group; a device in no group has no IOMMU before it."""
    return {
        address: world.read_line(f"{DEVICES}/{address}/iommu_group/type")
        for address in addresses
        if world.exists(f"{DEVICES}/{address}/iommu_group")
    }

"""Where a device sits on the PCI tree, as /sys tells."""

from __future__ import annotations

import re

from distdoctor.env.collect.world import World

_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")

# PCI class codes: VGA and 3D controllers (NVIDIA), other display (AMD Instinct), processing accelerator.
GPU_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")


def pci_chain(world: World, path: str) -> tuple[str, ...]:
    """PCI addresses on the way to the device at `path` (a link in /sys), the root port first, itself last.

    Empty when it is no PCI device or the link cannot be followed.
    """
    try:
        parts = world.path(path).resolve().parts
    except (OSError, RuntimeError):
        return ()
    return tuple(part for part in parts if _ADDRESS.match(part))


def pci_numa_node(world: World, path: str) -> int | None:
    """NUMA node of the device at `path`; None when unknown (firmware and hypervisors say -1)."""
    try:
        node = int(world.read_line(f"{path}/numa_node"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def display_controllers(world: World) -> list[str]:
    """PCI addresses of everything that may be a GPU. Raises OSError when /sys/bus/pci cannot be listed."""
    found = []
    for address in world.listdir("/sys/bus/pci/devices"):
        try:
            kind = world.read_line(f"/sys/bus/pci/devices/{address}/class")
        except (OSError, ValueError):
            continue
        if kind.startswith(GPU_CLASSES):
            found.append(address)
    return found

"""What files say about GPUs, without NVML: the PCI bus, device nodes, the kernel module."""

from __future__ import annotations

import re

from distdoctor.env.collect.pci import pci_numa_node
from distdoctor.env.collect.world import World
from distdoctor.env.cpu_list import parse_cpu_list
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.pci import sysfs_address
from distdoctor.report.model import SkipCause

PCI_DEVICES = "/sys/bus/pci/devices"

NVIDIA_VENDOR = "0x10de"
AMD_VENDOR = "0x1002"

# PCI class codes (PCI Code and ID Assignment specification): VGA, 3D and other display controllers.
DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380")

# AMD Instinct announces itself as a processing accelerator.
AMD_CLASSES = (*DISPLAY_CLASSES, "0x1200")


def read_pci_gpus(world: World, reading: Reading) -> None:
    """`num_pci_gpus`, `pci_gpus`, `pci_drivers`, `amd_pci_gpus`. In a container the host's are listed too."""
    found = reading.take("num_pci_gpus", PCI_DEVICES, lambda: _scan(world))
    if found is None:
        return
    nvidia, amd = found
    reading.put("num_pci_gpus", PCI_DEVICES, len(nvidia))
    reading.put("pci_gpus", PCI_DEVICES, nvidia)
    reading.put("amd_pci_gpus", PCI_DEVICES, amd)
    drivers = {address: _bound_driver(world, address) for address in nvidia}
    reading.put(
        "pci_drivers", f"{PCI_DEVICES}/*/driver", {key: name for key, name in drivers.items() if name}
    )


def _scan(world: World) -> tuple[tuple[str, ...], tuple[str, ...]]:
    nvidia, amd = [], []
    for address in world.listdir(PCI_DEVICES):
        try:
            vendor = world.read_line(f"{PCI_DEVICES}/{address}/vendor")
            kind = world.read_line(f"{PCI_DEVICES}/{address}/class")[:6]
        except OSError:
            continue
        if vendor == NVIDIA_VENDOR and kind in DISPLAY_CLASSES:
            nvidia.append(address)
        elif vendor == AMD_VENDOR and kind in AMD_CLASSES:
            amd.append(address)
    return tuple(nvidia), tuple(amd)


def _bound_driver(world: World, address: str) -> str | None:
    try:
        return world.readlink(f"{PCI_DEVICES}/{address}/driver").rpartition("/")[2]
    except OSError:
        return None


def read_numa(world: World, pci: str) -> tuple[int | None, tuple[int, ...] | None]:
    """(NUMA node, nearby CPUs) of the device with this PCI address; None where the firmware does not say."""
    address = sysfs_address(pci)
    if address is None:
        return None, None
    folder = f"{PCI_DEVICES}/{address}"
    try:
        cpus = parse_cpu_list(world.read_line(f"{folder}/local_cpulist"))
    except (OSError, ValueError):
        cpus = None
    return pci_numa_node(world, folder), cpus


def read_device_nodes(world: World, reading: Reading) -> None:
    """`num_device_nodes`, `num_nvswitches`, `num_imex_channels`."""
    names = reading.take("num_device_nodes", "/dev/nvidia[0-9]*", lambda: world.listdir("/dev"))
    if names is None:
        return
    reading.put("num_device_nodes", "/dev/nvidia[0-9]*", _count(names, r"nvidia\d+"))
    reading.put("num_nvswitches", "/dev/nvidia-nvswitch[0-9]*", _count(names, r"nvidia-nvswitch\d+"))
    channels = "/dev/nvidia-caps-imex-channels"
    try:
        count = _count(world.listdir(channels), r"channel\d+")
    except OSError:
        count = 0
    reading.put("num_imex_channels", channels, count)


def _count(names: list[str], pattern: str) -> int:
    return sum(re.fullmatch(pattern, name) is not None for name in names)


def read_kernel_module(world: World, reading: Reading) -> None:
    """`kernel_module_version`, `kernel_module_open`, `num_proc_gpus` from /proc/driver/nvidia."""
    version_file = "/proc/driver/nvidia/version"
    line = reading.take("kernel_module_version", version_file, lambda: world.read_line(version_file))
    if line is not None:
        reading.take("kernel_module_version", version_file, lambda: parse_module_version(line))
        # "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build …"
        reading.put("kernel_module_open", version_file, "Open Kernel Module" in line)
    folder = "/proc/driver/nvidia/gpus"
    reading.take("num_proc_gpus", folder, lambda: len(world.listdir(folder)))


def parse_module_version(line: str) -> str:
    """The driver version in the NVRM line. Raises UnreadError."""
    match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", line)
    if match is None:
        raise UnreadError(SkipCause.FAILED, f"no version in `{line[:120]}`")
    return match.group(1)

"""The machine: operating system, memory, kernel settings that matter to training, and the parts of sibling files."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache

from distdoctor.env.collect.clock import read_clock
from distdoctor.env.collect.cpu import read_cpu
from distdoctor.env.collect.logind import read_remove_ipc
from distdoctor.env.collect.pci_paths import read_pci_paths
from distdoctor.env.collect.virtualisation import read_virtualisation
from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.facts.host import HostFacts
from distdoctor.report.model import SkipCause
from distdoctor.units import KIB

# What the checks and a reader of the report ask for; a full module list says nothing more.
MODULES_OF_INTEREST = re.compile(
    r"^(nvidia(_\w+)?|nv_peer_mem|gdrdrv|nouveau|amdgpu|mlx[45]_\w+|ib_\w+|rdma_\w+|bnxt_re|irdma|efa|iw_cxgb4|"
    r"ice|vfio_pci|nvme_rdma|lustre|knem|xpmem)$"
)

IOMMU_GROUPS = "/sys/kernel/iommu_groups"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def collect_host(world: World) -> HostFacts:
    """Facts of the machine below `world`. Nothing is raised: what cannot be read is None with its reason."""
    reading = Reading()
    _read_system(world, reading)
    _read_memory(world, reading)
    read_cpu(world, reading)
    read_clock(world, reading)
    read_pci_paths(world, reading)
    _take_number(world, reading, "numa_balancing", "/proc/sys/kernel/numa_balancing")
    reading.take("transparent_hugepage", THP, lambda: _chosen(world.read_line(THP)))
    _take_number(world, reading, "file_max", "/proc/sys/fs/file-max")
    reading.take("port_range", PORT_RANGE, lambda: _port_range(world.read_line(PORT_RANGE)))
    reading.take("virtualisation", "CPU flags and DMI", lambda: read_virtualisation(world))
    reading.take("iommu_groups", f"{IOMMU_GROUPS}/*/type", lambda: _iommu_groups(world))
    reading.take("kernel_modules", "/proc/modules", lambda: _modules(world.read_text("/proc/modules")))
    read_remove_ipc(world, reading)
    return HostFacts(**reading.fields())


def _read_system(world: World, reading: Reading) -> None:
    if (
        reading.take("os_name", "/etc/os-release", lambda: _pretty_name(world.read_text("/etc/os-release")))
        is None
    ):
        usr = "/usr/lib/os-release"
        reading.take("os_name", usr, lambda: _pretty_name(world.read_text(usr)))
    kernel = "/proc/sys/kernel/osrelease"
    reading.take("kernel", kernel, lambda: world.read_line(kernel))
    reading.take("architecture", "/proc/sys/kernel/arch", lambda: _architecture(world))
    reading.take("kernel_command_line", "/proc/cmdline", lambda: world.read_line("/proc/cmdline"))
    boot_id = "/proc/sys/kernel/random/boot_id"
    reading.take("boot_id", boot_id, lambda: world.read_line(boot_id))
    reading.take("boot_utc", "/proc/stat (btime)", lambda: _boot_utc(world.read_text("/proc/stat")))
    reading.take("uptime_s", "/proc/uptime", lambda: _first_number(world.read_line("/proc/uptime")))
    reading.take("load_1min", "/proc/loadavg", lambda: _first_number(world.read_line("/proc/loadavg")))


def _read_memory(world: World, reading: Reading) -> None:
    source = "/proc/meminfo"
    memory = cache(lambda: parse_meminfo(world.read_text(source)))

    def size(name: str) -> int:
        if name not in memory():
            raise UnreadError(SkipCause.UNSUPPORTED, f"{source} has no `{name}`")
        return memory()[name]

    reading.take("memory_total_bytes", source, lambda: size("MemTotal"))
    reading.take("memory_available_bytes", source, lambda: size("MemAvailable"))
    reading.take("swap_total_bytes", source, lambda: size("SwapTotal"))
    reading.take("swap_used_bytes", source, lambda: size("SwapTotal") - size("SwapFree"))


def parse_meminfo(text: str) -> Mapping[str, int]:
    """Sizes in bytes by name; lines without a size in kB are left out."""
    return {name: int(value) * KIB for name, value in re.findall(r"^(\S+):\s+(\d+) kB$", text, re.MULTILINE)}


def _take_number(world: World, reading: Reading, name: str, path: str) -> None:
    reading.take(name, path, lambda: int(world.read_line(path)))


def _first_number(text: str) -> float:
    return float(text.partition(" ")[0])


def _pretty_name(text: str) -> str:
    match = re.search(r'^PRETTY_NAME=["\']?([^"\'\n]*)', text, re.MULTILINE)
    if not match:
        raise ValueError("no PRETTY_NAME")
    return match[1]


def _architecture(world: World) -> str:
    try:
        return world.read_line("/proc/sys/kernel/arch")
    except OSError:
        # The file came with Linux 6.1.
        if not world.is_this_machine:
            raise
        return platform.machine()


def _boot_utc(text: str) -> str:
    match = re.search(r"^btime (\d+)$", text, re.MULTILINE)
    if not match:
        raise ValueError("no btime")
    try:
        return datetime.fromtimestamp(int(match[1]), timezone.utc).isoformat()
    except OverflowError as error:
        raise ValueError(f"btime {match[1]} is no time") from error


def _chosen(text: str) -> str:
    match = re.search(r"\[(\w+)\]", text)
    if not match:
        raise ValueError(f"no choice marked in {text[:60]!r}")
    return match[1]


def _port_range(text: str) -> tuple[int, int]:
    low, high = (int(part) for part in text.split())
    return low, high


def _iommu_groups(world: World) -> Mapping[str, int]:
    """Domain types and their counts; {} when the kernel drives no IOMMU."""
    try:
        groups = world.listdir(IOMMU_GROUPS)
    except FileNotFoundError:
        if world.exists("/sys/kernel/mm"):
            return {}
        raise
    return dict(Counter(world.read_line(f"{IOMMU_GROUPS}/{group}/type") for group in groups))


def _modules(text: str) -> tuple[str, ...]:
    names = (line.partition(" ")[0] for line in text.splitlines())
    return tuple(sorted(name for name in names if MODULES_OF_INTEREST.match(name)))

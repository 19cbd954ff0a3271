"""The host's processors: model, sockets, NUMA nodes, governors. /proc/cpuinfo of x86 and of 64-bit Arm."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

from distdoctor.env.collect.world import World
from distdoctor.env.cpu_list import parse_cpu_list
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.facts.host import NumaNode
from distdoctor.report.model import SkipCause
from distdoctor.units import KIB

CPUINFO = "/proc/cpuinfo"
CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"

# Arm's cpuinfo gives numbers only: (implementer, part) by Linux' arch/arm64/include/asm/cputype.h.
ARM_CORES = {
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
    ("0x41", "0xd83"): "Arm Neoverse V3AE",
    ("0x41", "0xd84"): "Arm Neoverse V3",
    ("0x46", "0x001"): "Fujitsu A64FX",
    ("0x4e", "0x004"): "NVIDIA Carmel",
    ("0x4e", "0x010"): "NVIDIA Olympus",
    ("0x48", "0xd01"): "HiSilicon TSV110",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1A",
}


def read_cpu(world: World, reading: Reading) -> None:
    """Put the CPU and NUMA fields of HostFacts into `reading`."""
    info = cache(lambda: parse_cpuinfo(world.read_text(CPUINFO)))
    reading.take("cpu_model", CPUINFO, lambda: cpu_model(info()))
    if reading.take("num_cpus", f"{CPUS}/online", lambda: len(_online(world))) is None:
        reading.take("num_cpus", CPUINFO, lambda: num_processors(world.read_text(CPUINFO)))
    reading.take("num_sockets", f"{CPUS}/cpu*/topology/physical_package_id", lambda: _num_sockets(world))
    reading.take("numa_nodes", f"{NODES}/node*/cpulist", lambda: _numa_nodes(world))
    reading.take("cpu_governors", f"{CPUS}/cpu*/cpufreq/scaling_governor", lambda: _governors(world))
    driver = f"{CPUS}/cpu0/cpufreq/scaling_driver"
    reading.take("cpu_frequency_driver", driver, lambda: world.read_line(driver))


def parse_cpuinfo(text: str) -> Mapping[str, str]:
    """Fields of the first processor; later blocks fill in what it lacks (Arm prints "Hardware" at the end)."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.partition(":")
        if separator:
            fields.setdefault(name.strip(), value.strip())
    return fields


def cpu_model(fields: Mapping[str, str]) -> str:
    """Model name: as x86 prints it, or from Arm's implementer and part. Raises ValueError when neither is there."""
    if fields.get("model name"):
        return fields["model name"]
    implementer, part = fields.get("CPU implementer"), fields.get("CPU part")
    if implementer is None or part is None:
        raise ValueError("no model name and no CPU part")
    known = ARM_CORES.get((implementer.lower(), part.lower()))
    return known or f"Arm implementer {implementer} part {part}"


def num_processors(text: str) -> int:
    """Processor blocks in the text of /proc/cpuinfo. Raises ValueError when there is none."""
    count = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    if count == 0:
        raise ValueError("no processor is listed")
    return count


def _online(world: World) -> tuple[int, ...]:
    online = parse_cpu_list(world.read_line(f"{CPUS}/online"))
    if not online:
        raise ValueError("no CPU is online")
    return online


def _num_sockets(world: World) -> int:
    packages = set()
    for cpu in _online(world):
        try:
            packages.add(int(world.read_line(f"{CPUS}/cpu{cpu}/topology/physical_package_id")))
        except FileNotFoundError:
            continue
    # -1: firmware does not tell (some Arm machines).
    packages.discard(-1)
    if not packages:
        raise UnreadError(SkipCause.UNSUPPORTED, "the firmware does not tell which CPUs share a socket")
    return len(packages)


def _numa_nodes(world: World) -> tuple[NumaNode, ...]:
    numbers = sorted(int(name[4:]) for name in world.listdir(NODES) if re.fullmatch(r"node\d+", name))
    if not numbers:
        raise UnreadError(SkipCause.ABSENT, f"{NODES} has no nodes: a kernel without NUMA support")
    return tuple(_numa_node(world, number) for number in numbers)


def _numa_node(world: World, number: int) -> NumaNode:
    folder = f"{NODES}/node{number}"
    try:
        memory = world.read_text(f"{folder}/meminfo")
    except OSError:
        memory = ""
    return NumaNode(
        node=number,
        cpus=parse_cpu_list(world.read_line(f"{folder}/cpulist")),
        memory_total_bytes=_node_bytes(memory, "MemTotal"),
        memory_free_bytes=_node_bytes(memory, "MemFree"),
    )


def _node_bytes(text: str, name: str) -> int | None:
    match = re.search(rf"^Node \d+ {name}: +(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * KIB if match else None


def _governors(world: World) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for cpu in _online(world):
        try:
            counts[world.read_line(f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor")] += 1
        except FileNotFoundError:
            continue
    if not counts:
        raise UnreadError(SkipCause.ABSENT, "no CPU has a frequency driver (usual in a virtual machine)")
    return dict(counts)

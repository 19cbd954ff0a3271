"""Interfaces, RDMA ports, name resolution and GPUDirect modules of a host, read once and gently."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from distdoctor.env.collect.addresses import parse_ipv6_routes, parse_routes
from distdoctor.env.collect.interfaces import collect_interfaces
from distdoctor.env.collect.pci import display_controllers, pci_chain, pci_numa_node
from distdoctor.env.collect.rdma import CLASS, collect_rdma_ports, read_counters
from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading
from distdoctor.env.facts.network import NetworkFacts, RdmaPort, Route
from distdoctor.report.model import SkipCause

# A resolver that works answers in milliseconds; glibc gives up on one dead server after 5 s (resolv.conf(5)).
RESOLVE_TIMEOUT_S = 3.0

# ib_umem_dmabuf came with Linux 5.12 (NCCL user guide, GPU Direct RDMA: "Linux kernel 5.12 or later").
DMABUF_KERNEL = (5, 12)

PEERMEM_MODULES = ("nvidia_peermem", "nv_peer_mem")

LIBRARY_FOLDERS = (
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
)


def collect_network(world: World, *, second_sample_after_s: float | None = None) -> NetworkFacts:
    """Everything that `env` knows of the network, without sending a packet other than name lookups.

    Each counter is read once: on restricted functions every read leaves a line in the kernel log. With
    `second_sample_after_s` counters are read again after that many seconds, and their growth is kept.
    """
    reading = Reading()
    reading.take("interfaces", "/sys/class/net", lambda: collect_interfaces(world))
    ports = reading.take("rdma_ports", CLASS, lambda: collect_rdma_ports(world))
    if ports and second_sample_after_s is not None:
        reading.put("rdma_ports", CLASS, _with_growth(world, ports, second_sample_after_s))
    reading.take("rdma_class_visible", CLASS, lambda: bool(_names(world, CLASS)))
    reading.take("rdma_device_nodes", "/dev/infiniband", lambda: _names(world, "/dev/infiniband"))
    reading.take("peermem_module", "/proc/modules", lambda: _peermem_module(world))
    reading.take(
        "memory_peers", "/sys/kernel/mm/memory_peers", lambda: _names(world, "/sys/kernel/mm/memory_peers")
    )
    peers = reading.get("memory_peers")
    if peers is not None:
        registered = any(name.startswith("nv_mem") for name in peers)
        reading.put("peermem_registered", "/sys/kernel/mm/memory_peers/nv_mem*", registered)
    reading.take("dmabuf_possible", "/proc/driver/nvidia/version", lambda: _dmabuf_possible(world))
    _take_names(world, reading)
    reading.take("routes", world.proc("net/route"), lambda: _routes(world))
    reading.take("libibverbs_path", "/etc/ld.so.cache", lambda: _libibverbs(world))
    paths, numa = _pci_places(world, ports or ())
    reading.put("pci_paths", "/sys/bus/pci/devices", paths)
    reading.put("pci_numa_nodes", "/sys/bus/pci/devices", numa)
    return NetworkFacts(**reading.fields())


def _with_growth(world: World, ports: Sequence[RdmaPort], after_s: float) -> tuple[RdmaPort, ...]:
    began = time.monotonic()
    world.wait(after_s)
    again = [read_counters(world, port.device, port.port) if port.counters else {} for port in ports]
    window_s = max(after_s, time.monotonic() - began)
    return tuple(_grown(port, later, window_s) for port, later in zip(ports, again, strict=True))


def _grown(port: RdmaPort, later: Mapping[str, int], window_s: float) -> RdmaPort:
    growth = {name: value - port.counters[name] for name, value in later.items() if name in port.counters}
    # A counter that went down was reset in between: its growth is not known.
    growth = {name: value for name, value in growth.items() if value >= 0}
    if not growth:
        return port
    return replace(port, counters_growth=growth, counters_window_s=window_s)


def _names(world: World, folder: str) -> tuple[str, ...]:
    """Names in a folder, empty when the folder is not there but its parent is.

    Raises FileNotFoundError when not even the parent is there (/sys is not mounted), PermissionError, OSError.
    """
    try:
        return tuple(world.listdir(folder))
    except FileNotFoundError:
        if not world.exists(folder.rpartition("/")[0]):
            raise
        return ()


def _peermem_module(world: World) -> str:
    loaded = {line.partition(" ")[0] for line in world.read_text("/proc/modules").splitlines()}
    return next((name for name in PEERMEM_MODULES if name in loaded), "")


def _dmabuf_possible(world: World) -> bool:
    kernel = re.match(r"(\d+)\.(\d+)", world.read_line("/proc/sys/kernel/osrelease"))
    if kernel is None:
        raise ValueError("the kernel release is no version number")
    new_enough = (int(kernel.group(1)), int(kernel.group(2))) >= DMABUF_KERNEL
    module = world.read_line("/proc/driver/nvidia/version")
    return new_enough and "Open Kernel Module" in module


def _take_names(world: World, reading: Reading) -> None:
    name = reading.take("hostname", "gethostname()", world.host_name)
    if name is not None:
        reading.take(
            "hostname_resolves_to",
            f"getaddrinfo({name})",
            lambda: world.resolve(name, timeout_s=RESOLVE_TIMEOUT_S),
        )
    else:
        reading.miss("hostname_resolves_to", SkipCause.FAILED, "the own host name is not known")
    master = world.environ.get("MASTER_ADDR")
    if master:
        reading.take(
            "master_addr_resolves_to",
            f"getaddrinfo({master})",
            lambda: world.resolve(master, timeout_s=RESOLVE_TIMEOUT_S),
        )
    else:
        reading.miss("master_addr_resolves_to", SkipCause.NOT_ASKED, "MASTER_ADDR is not set")


def _routes(world: World) -> tuple[Route, ...]:
    routes = parse_routes(world.read_proc("net/route"))
    try:
        return routes + parse_ipv6_routes(world.read_proc("net/ipv6_route"))
    except FileNotFoundError:  # a kernel without IPv6
        return routes


def _libibverbs(world: World) -> str:
    """Path of libibverbs.so.1: LD_LIBRARY_PATH, the loader's cache, then the usual folders; "" if in none."""
    folders = [
        folder for folder in world.environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")
    ]
    for folder in folders:
        if world.exists(f"{folder}/libibverbs.so.1"):
            return f"{folder}/libibverbs.so.1"
    try:
        cached = re.search(rb"/[^\0]*/libibverbs\.so\.1(?=\0)", world.read_bytes("/etc/ld.so.cache"))
    except FileNotFoundError:
        cached = None
    if cached:
        return cached.group().decode("utf-8", "replace")
    for folder in LIBRARY_FOLDERS:
        if world.exists(f"{folder}/libibverbs.so.1"):
            return f"{folder}/libibverbs.so.1"
    return ""


def _pci_places(world: World, ports: Sequence[RdmaPort]) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """PCI path and NUMA node of every GPU and RDMA device, where /sys tells them."""
    addresses = {port.pci for port in ports if port.pci}
    with contextlib.suppress(OSError):
        addresses |= set(display_controllers(world))
    paths: dict[str, tuple[str, ...]] = {}
    numa: dict[str, int] = {}
    for address in sorted(addresses):
        chain = pci_chain(world, f"/sys/bus/pci/devices/{address}")
        if chain:
            paths[address] = chain
        node = pci_numa_node(world, f"/sys/bus/pci/devices/{address}")
        if node is not None:
            numa[address] = node
    return paths, numa

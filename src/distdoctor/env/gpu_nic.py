"""Which RDMA port is nearest to each GPU, by PCI tree and NUMA node? Pure.

Closeness has the words of `nvidia-smi topo -m`: PIX (one PCIe switch), PXB (several), PHB and NODE (through the
CPU of one NUMA node; told apart only with the PCI tree), SYS (across sockets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.env.facts.network import RdmaPort
from distdoctor.env.pci import sysfs_address
from distdoctor.env.predict.nccl import port_name
from distdoctor.report.model import Column, Table

CLOSENESS = ("PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestPort:
    """A GPU's nearest port; None when there is none or the places are not known."""

    gpu: GpuDevice
    gpu_numa_node: int | None
    port: RdmaPort | None
    closeness: str | None


def nearest_ports(facts: EnvFacts, ports: Sequence[RdmaPort]) -> list[NearestPort]:
    """One row per GPU: the nearest of `ports`."""
    devices = facts.gpus.devices if facts.gpus is not None else None
    network = facts.network
    paths: Mapping[str, tuple[str, ...]] = network.pci_paths if network is not None else {}
    rows = []
    for gpu in devices or ():
        node = gpu_numa_node(facts, gpu)
        ranked: list[tuple[int, int, RdmaPort]] = []
        for port in ports:
            kind = closeness(_path(paths, gpu.pci), _path(paths, port.pci), node, port.numa_node)
            if kind is not None:
                ranked.append((CLOSENESS.index(kind), len(ranked), port))
        best = min(ranked, key=lambda item: item[:2]) if ranked else None
        rows.append(
            NearestPort(
                gpu=gpu,
                gpu_numa_node=node,
                port=best[2] if best else None,
                closeness=CLOSENESS[best[0]] if best else None,
            )
        )
    return rows


def gpu_numa_node(facts: EnvFacts, gpu: GpuDevice) -> int | None:
    """NUMA node of a GPU, by NVML or by /sys; None when unknown (-1 in many virtual machines)."""
    if gpu.numa_node is not None:
        return gpu.numa_node if gpu.numa_node >= 0 else None
    known = facts.network.pci_numa_nodes if facts.network is not None else {}
    return known.get(sysfs_address(gpu.pci) or "") if gpu.pci else None


def _path(paths: Mapping[str, tuple[str, ...]], pci: str | None) -> tuple[str, ...]:
    return paths.get(sysfs_address(pci) or "", ()) if pci else ()


def closeness(
    left: tuple[str, ...], right: tuple[str, ...], left_node: int | None, right_node: int | None
) -> str | None:
    """How near two PCI devices are; None when neither their paths nor their NUMA nodes tell.

    A path lists the bridges from the root port to the device. Devices that share a root port are below one
    PCIe tree: PIX with at most one switch port on each side, PXB with more.
    """
    shared = 0
    for one, other in zip(left[:-1], right[:-1], strict=False):
        if one != other:
            break
        shared += 1
    if shared > 0:
        bridges = (len(left) - 1 - shared) + (len(right) - 1 - shared)
        return "PIX" if bridges <= 2 else "PXB"
    if left_node is not None and right_node is not None:
        if left_node != right_node:
            return "SYS"
        return "NODE"
    return None


def gpu_nic_table(facts: EnvFacts, ports: Sequence[RdmaPort]) -> Table | None:
    """GPU by GPU its nearest port; None when there is nothing to show."""
    rows = nearest_ports(facts, ports)
    if not rows or not ports:
        return None
    return Table(
        name="gpu_nic",
        title="Nearest RDMA port of each GPU",
        columns=(
            Column(name="GPU", align="right"),
            Column(name="PCI"),
            Column(name="NUMA", align="right"),
            Column(name="nearest port"),
            Column(name="port's NUMA", align="right"),
            Column(name="closeness"),
        ),
        rows=tuple(
            (
                row.gpu.index,
                row.gpu.pci,
                row.gpu_numa_node,
                port_name(row.port) if row.port else None,
                row.port.numa_node if row.port else None,
                row.closeness,
            )
            for row in rows
        ),
        note="PIX, PXB: below one PCIe tree; NODE: same NUMA node; SYS: across sockets",
    )

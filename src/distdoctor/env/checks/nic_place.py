"""Do network cards have their full PCIe link, and does each GPU have one nearby?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.network_view import (
    hca_choice,
    is_active,
    join_names,
    links,
    port_scope,
    spans_hosts,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import RdmaPort
from distdoctor.env.gpu_nic import NearestPort, nearest_ports
from distdoctor.env.predict.nccl import port_name
from distdoctor.report.model import Action, Confidence, Evidence, Fault, GpuRef, Scope, Severity, Team


def check_nic_pcie_width(facts: EnvFacts) -> Sequence[Outcome]:
    """A card with fewer lanes than its siblings is a fault; all of them with fewer sit in such slots."""
    ports = facts.network.rdma_ports if facts.network else None
    if ports is None:
        return [missing(facts, "network.rdma_ports")]
    devices = list({port.device: port for port in ports if not port.is_virtual_function}.values())
    if not devices:
        return [NotApplicable(detail="no RDMA card (virtual functions have no link of their own)")]
    known = [port for port in devices if port.pcie_width is not None and port.pcie_width_max is not None]
    if not known:
        return [missing(facts, "network.pcie_width", what="PCIe link width of the RDMA cards")]
    narrow = [port for port in known if (port.pcie_width or 0) < (port.pcie_width_max or 0)]
    if not narrow:
        return [Passed(detail=f"{len(known)} RDMA cards have all their PCIe lanes")]
    return [_narrow(facts, port, known) for port in narrow]


def _narrow(facts: EnvFacts, port: RdmaPort, cards: Sequence[RdmaPort]) -> Found:
    siblings = [
        each for each in cards if each.board == port.board and each is not port and port.board is not None
    ]
    full = [each for each in siblings if each.pcie_width == each.pcie_width_max]
    by_slot = bool(siblings) and not full
    compared = f"as {len(full)} equal cards here" if full else "the card's maximum"
    return Found(
        key=f"{port.device}",
        title=f"{port.device} has {port.pcie_width} of {port.pcie_width_max} PCIe lanes"[:80],
        severity=Severity.CRITICAL
        if full and is_active(port)
        else Severity.INFO
        if by_slot
        else Severity.WARNING,
        confidence=Confidence.HIGH if full else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{port.device} ({port.pci or 'PCI address not known'}): x{port.pcie_width}",
                value=port.pcie_width,
                unit="lanes",
                expected=f"x{port.pcie_width_max}, {compared}",
                expected_source="max_link_width of the device",
                source=port.sources.get("pcie_width"),
            ),
        ),
        explanation=(
            "All equal cards have this width: their slots are wired so."
            if by_slot
            else "Lost lanes cut the bandwidth between card and host in proportion: a badly seated card, riser or slot."
        ),
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Reseat the card, or move it to a slot with all lanes",
                command=f"lspci -s {shlex.quote(port.pci)} -vv | grep -E 'LnkCap|LnkSta'"
                if port.pci
                else None,
            ),
        ),
        scope=port_scope(facts, (port,)),
        fault=Fault.HOST,
    )


def check_gpu_nic_affinity(facts: EnvFacts) -> Sequence[Outcome]:
    """A GPU whose near port is down or left out reaches the network across sockets."""
    network = facts.network
    if network is None or network.rdma_ports is None:
        return [missing(facts, "network.rdma_ports")]
    usable = _usable(facts, network.rdma_ports)
    if not usable:
        return [NotApplicable(detail="no RDMA port that a job could use is ACTIVE")]
    if facts.gpus is None or facts.gpus.devices is None:
        return [missing(facts, "gpus.devices")]
    if not facts.gpus.devices:
        return [NotApplicable(detail="no GPU here")]
    rows = nearest_ports(facts, usable)
    placed = [row for row in rows if row.closeness is not None]
    if not placed:
        return [missing(facts, "network.pci_paths", what="places of GPUs and RDMA ports on the PCI tree")]
    far = [row for row in placed if row.closeness == "SYS"]
    if not far:
        return [
            Passed(
                detail=f"each of {len(placed)} GPUs has an ACTIVE RDMA port on its own NUMA node or nearer"
            )
        ]
    return [_far(facts, far, rows, [port for port in network.rdma_ports if port not in usable])]


def _usable(facts: EnvFacts, ports: Sequence[RdmaPort]) -> list[RdmaPort]:
    choice = hca_choice(facts)
    if isinstance(choice, NotSeen):
        return [port for port in ports if is_active(port)]
    return [*choice.chosen, *(port for port in ports if port.is_efa and is_active(port))]


def _far(
    facts: EnvFacts, far: Sequence[NearestPort], rows: Sequence[NearestPort], unused: Sequence[RdmaPort]
) -> Found:
    nodes = {row.gpu_numa_node for row in far}
    idle = [port for port in unused if port.numa_node in nodes and not port.is_virtual_function]
    gpus = ", ".join(str(row.gpu.index) for row in far)
    severity = Severity.WARNING if idle and spans_hosts(facts) is not False else Severity.INFO
    evidence = [
        Evidence(
            text=(
                f"GPU {row.gpu.index} (NUMA {row.gpu_numa_node}): nearest "
                f"{port_name(row.port) if row.port else 'none'} ({row.closeness or 'not known'})"
            ),
            value=row.closeness,
            source="/sys/bus/pci/devices",
        )
        for row in rows[:16]
    ]
    evidence += [
        Evidence(
            text=f"{port_name(port)} is on NUMA {port.numa_node} but not used ({port.state})",
            value=port.state,
        )
        for port in idle[:8]
    ]
    return Found(
        key="gpus:" + gpus.replace(" ", ""),
        title=f"GPU {gpus}: the nearest RDMA port is on another socket"[:80],
        severity=severity,
        confidence=Confidence.MEDIUM,
        evidence=tuple(evidence),
        explanation=(
            "Data of these GPUs crosses the link between the CPU sockets, and GPUDirect RDMA is off at that "
            "distance by default (NCCL_NET_GDR_LEVEL)."
            + (
                f" A nearer port is not used: {join_names([port_name(port) for port in idle])}."
                if idle
                else ""
            )
        ),
        actions=(
            Action(
                team=Team.NETWORK if idle else Team.PLATFORM,
                text="Bring the nearer port into use"
                if idle
                else "See the tree; spread cards over sockets if it matters",
                command="nvidia-smi topo -m",
            ),
        ),
        scope=Scope(
            gpus=tuple(
                GpuRef(index=row.gpu.index, pci=row.gpu.pci, uuid=row.gpu.uuid, model=row.gpu.name)
                for row in far
            ),
            links=links(facts, [port_name(port) for port in idle]).links,
        ),
        fault=Fault.NETWORK if idle else Fault.HOST,
    )


PCIE_WIDTH = Check(
    id="nic-pcie-width", title="PCIe lanes of RDMA cards", run=check_nic_pcie_width, preflight=True
)
AFFINITY = Check(
    id="gpu-nic-affinity", title="an RDMA port near each GPU", run=check_gpu_nic_affinity, preflight=True
)

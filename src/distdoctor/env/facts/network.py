"""Facts about network interfaces and RDMA ports, and what NCCL would choose among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distdoctor.env.facts.base import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An IP address with its prefix length."""

    address: str
    prefix_length: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface(Section):
    """One network interface."""

    name: str
    index: int | None = None
    state: str | None = None
    """operstate: "up", "down", "unknown" …"""
    is_up: bool | None = None
    """IFF_UP and IFF_RUNNING, which is what NCCL asks for."""
    speed_mbps: int | None = None
    mtu: int | None = None
    mac: str | None = None
    driver: str | None = None
    is_virtual: bool | None = None
    """No PCI device behind it: lo, docker0, veth…, br-…, virbr…, tailscale…"""
    addresses: tuple[Address, ...] = ()
    rx_errors: int | None = None
    tx_errors: int | None = None
    rx_dropped: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GidEntry:
    """One row of a RoCE port's GID table."""

    index: int
    gid: str
    kind: str | None
    """"IB/RoCE v1" or "RoCE v2"."""
    netdev: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort(Section):
    """One port of an RDMA device (HCA)."""

    device: str
    """"mlx5_0"."""
    port: int
    link_layer: str | None = None
    """"InfiniBand" or "Ethernet"."""
    state: str | None = None
    """"ACTIVE", "DOWN", "INIT", "ARMED"."""
    phys_state: str | None = None
    """"LinkUp", "Disabled", "Polling" …"""
    rate_gbit: float | None = None
    """Gb/s, as sysfs, ibstat and ibstatus print. Means nothing on a port that is down."""
    lid: int | None = None
    sm_lid: int | None = None
    board: str | None = None
    """hca_type / board_id."""
    firmware: str | None = None
    netdev: str | None = None
    pci: str | None = None
    numa_node: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    gids: tuple[GidEntry, ...] | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    """symbol_error, link_downed, link_error_recovery, port_rcv_errors …: since the last reset."""
    counters_growth: Mapping[str, int] = field(default_factory=dict)
    """Growth between two samples, where two were taken."""
    counters_window_s: float | None = None
    uverbs: str | None = None
    """"uverbs3"."""
    openable: bool | None = None
    """Could this process open /dev/infiniband/<uverbs>?"""
    is_efa: bool | None = None
    is_virtual_function: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFacts(Section):
    """Interfaces and RDMA ports of a host."""

    interfaces: tuple[Interface, ...] | None = None
    rdma_ports: tuple[RdmaPort, ...] | None = None
    """None: not read; empty: there is none."""
    peermem_module: str | None = None
    """"nvidia_peermem", "nv_peer_mem", or "" when neither is loaded."""
    peermem_registered: bool | None = None
    """/sys/kernel/mm/memory_peers/nv_mem*/version is there: the module is registered with ib_core."""
    dmabuf_possible: bool | None = None
    """Kernel ≥ 5.12 and the open NVIDIA kernel module."""
    hostname_resolves_to: tuple[str, ...] | None = None
    ipv6_only: bool | None = None
    memory_peers: tuple[str, ...] | None = None
    """Names under /sys/kernel/mm/memory_peers."""
    libibverbs_path: str | None = None

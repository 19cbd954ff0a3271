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
    rx_packets: int | None = None
    pci: str | None = None
    master: str | None = None
    """The bond or bridge that it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One network that the routing table reaches; "0.0.0.0/0" or "::/0" is the default route."""

    network: str
    interface: str


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
    open_error: str | None = None
    """Why not, in the system's words."""
    active_mtu: int | None = None
    """Bytes, as ibv_devinfo prints; sysfs does not have it."""
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
    """Addresses of the own name, in the resolver's order. None: not asked; empty: it does not resolve."""
    ipv6_only: bool | None = None
    memory_peers: tuple[str, ...] | None = None
    """Names under /sys/kernel/mm/memory_peers."""
    libibverbs_path: str | None = None
    """The libibverbs.so.1 that NCCL would load; "" when none was found."""
    hostname: str | None = None
    """What gethostname() gives, which is the name that Gloo resolves."""
    master_addr_resolves_to: tuple[str, ...] | None = None
    """None: not asked; empty: the name does not resolve."""
    routes: tuple[Route, ...] | None = None
    rdma_class_visible: bool | None = None
    """/sys/class/infiniband shows at least one device."""
    rdma_device_nodes: tuple[str, ...] | None = None
    """Names under /dev/infiniband; empty: the folder is not there."""
    pci_paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """PCI address of a GPU or RDMA device → bridges above it from the root, then itself."""
    pci_numa_nodes: Mapping[str, int] = field(default_factory=dict)

"""What joins the ranks, and what was loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network port that the job may use."""

    name: str
    """"mlx5_0/1", "eth0"."""
    kind: str
    """"infiniband", "roce", "efa", "ethernet"."""
    rate_gbit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHardware:
    """What decides how fast one host can be; None where it is not known."""

    host: str
    gpu_models: tuple[str, ...] | None = None
    """One for each GPU of the host; empty: none."""
    nvlinks_per_gpu: int | None = None
    """Active links of the GPU that has the fewest; 0: none."""
    nvlink_gbps: float | None = None
    """One link in one direction, GB/s."""
    has_nvswitch: bool | None = None
    """Every pair of GPUs is joined by NVLink, through switches."""
    nvls_supported: bool | None = None
    p2p_broken: bool | None = None
    pcie_gen: int | None = None
    """Of the GPUs, the lowest."""
    pcie_width: int | None = None
    nics: tuple[Nic, ...] | None = None
    """RDMA ports that are up; Ethernet interfaces where there is no RDMA port."""
    gpudirect_rdma: bool | None = None
    num_cpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What was loaded."""

    torch: str | None = None
    nccl: str | None = None
    cuda: str | None = None
    driver: str | None = None

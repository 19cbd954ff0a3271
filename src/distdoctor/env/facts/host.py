"""Facts about a host, and about the container that we look from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distdoctor.env.facts.base import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """One NUMA node."""

    node: int
    cpus: tuple[int, ...]
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts(Section):
    """The machine: kernel, CPU, memory, settings that matter to training."""

    os_name: str | None = None
    kernel: str | None = None
    architecture: str | None = None
    kernel_command_line: str | None = None
    boot_utc: str | None = None
    boot_id: str | None = None
    """The kernel's id of this boot: equal in everything that runs on one machine, whatever it calls itself."""
    uptime_s: float | None = None
    cpu_model: str | None = None
    num_cpus: int | None = None
    num_sockets: int | None = None
    numa_nodes: tuple[NumaNode, ...] | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    load_1min: float | None = None
    numa_balancing: int | None = None
    transparent_hugepage: str | None = None
    """"always", "madvise" or "never"."""
    cpu_governors: Mapping[str, int] | None = None
    """Governor → number of CPUs."""
    cpu_frequency_driver: str | None = None
    """"intel_pstate", "amd-pstate-epp", "acpi-cpufreq", "cppc_cpufreq" …"""
    clock_source: str | None = None
    clock_synchronised: bool | None = None
    clock_max_error_s: float | None = None
    clock_utc: str | None = None
    """Wall clock when the facts were taken."""
    file_max: int | None = None
    port_range: tuple[int, int] | None = None
    remove_ipc: bool | None = None
    """RemoveIPC of logind."""
    virtualisation: str | None = None
    """"none", "kvm", "vmware", "microsoft", "xen", "wsl" … (CPU flag hypervisor and DMI)."""
    iommu_groups: Mapping[str, int] | None = None
    """Type of IOMMU domain ("DMA", "DMA-FQ", "identity") → number of groups; empty: no IOMMU."""
    acs_bridges: Mapping[str, int] | None = None
    """PCI bridge address → ACS control bits that are on (0: off); only bridges with the capability."""
    acs_relevant_bridges: tuple[str, ...] = ()
    """Those on a path to a GPU or an RDMA NIC."""
    acs_port_types: Mapping[str, str] | None = None
    """Relevant bridge → "root port", "switch upstream", "switch downstream" …"""
    device_iommu_types: Mapping[str, str] | None = None
    """PCI address of a GPU or RDMA NIC → type of its IOMMU domain; those behind no IOMMU are left out."""
    gpu_numa_nodes: Mapping[str, int] | None = None
    """PCI address of a GPU → NUMA node as the kernel says; -1: the firmware does not tell."""
    kernel_modules: tuple[str, ...] | None = None
    """Loaded modules of interest: nvidia, nvidia_peermem, nv_peer_mem, nvidia_uvm, gdrdrv, mlx5_core, …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts(Section):
    """Are we inside a container, and what does it hide?"""

    kind: str | None = None
    """"none", "docker", "podman", "kubernetes", "singularity", "enroot", "lxc", "container"."""
    image: str | None = None
    same_pid_namespace_as_init: bool | None = None
    user_namespace: bool | None = None
    runtime_capabilities: str | None = None
    """NVIDIA_DRIVER_CAPABILITIES."""
    visible_devices: str | None = None
    """NVIDIA_VISIBLE_DEVICES."""
    extra: Mapping[str, str] = field(default_factory=dict)

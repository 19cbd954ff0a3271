"""Facts about GPUs, by NVML or by nvidia-smi's text. Units as NVML gives them unless the name says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from distdoctor.env.facts.base import Section

# Index of a GPU that a text names by its PCI address or UUID alone, or not at all (an excerpt of one GPU's log).
UNKNOWN_INDEX = -1


class NvmlState(str, Enum):
    """How NVML's initialisation ended."""

    OK = "ok"
    NO_LIBRARY = "no libnvidia-ml.so.1"
    DRIVER_NOT_LOADED = "driver not loaded"
    VERSION_MISMATCH = "driver/library version mismatch"
    NO_PERMISSION = "no permission"
    UNKNOWN_ERROR = "unknown error"
    HUNG = "hung"
    NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """One MIG slice."""

    profile: str
    uuid: str | None = None
    memory_total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory on a GPU. The pid is the host's."""

    pid: int | None
    name: str | None = None
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvLink:
    """One NVLink of a GPU."""

    link: int
    active: bool | None
    speed_gbps: float | None = None
    """GB/s in one direction, as `nvidia-smi nvlink -s` prints."""
    replay_errors: int | None = None
    recovery_errors: int | None = None
    crc_errors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice(Section):
    """One GPU. Index is NVML's (PCI order), not CUDA's; `UNKNOWN_INDEX` when only a text names it otherwise."""

    index: int
    vendor: str = "nvidia"
    """"nvidia", "amd", "intel", "tpu"."""
    lost: bool | None = None
    """True when NVML or nvidia-smi says that it is lost or cannot be reached."""
    lost_reason: str | None = None
    name: str | None = None
    uuid: str | None = None
    serial: str | None = None
    pci: str | None = None
    """"00000000:3B:00.0", as NVML and nvidia-smi print; eight-digit domain."""
    numa_node: int | None = None
    local_cpus: tuple[int, ...] | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    utilisation_pct: int | None = None
    temperature_c: int | None = None
    temperature_slowdown_c: int | None = None
    temperature_margin_c: int | None = None
    """Degrees left to the nearest slowdown threshold; newer GPUs give it instead of the threshold."""
    memory_temperature_c: int | None = None
    memory_temperature_max_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    """Enforced limit."""
    power_limit_default_w: float | None = None
    power_limit_max_w: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    application_clock_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Active ones: "idle", "app_clocks", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal",
    "power_brake", "display"."""
    persistence_mode: bool | None = None
    compute_mode: str | None = None
    """"default", "exclusive_process", "prohibited"."""
    mig_mode: bool | None = None
    mig_mode_pending: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    ecc_mode: bool | None = None
    ecc_mode_pending: bool | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_corrected_volatile: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    sram_threshold_exceeded: bool | None = None
    unrepairable_memory: bool | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    remap_banks_without_spare: int | None = None
    retired_pages: int | None = None
    retired_pages_pending: bool | None = None
    recovery_action: int | None = None
    """NVML field 230: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX, 6 bus reset, 7 reboot."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_replays: int | None = None
    nvlinks: tuple[NvLink, ...] | None = None
    """None: not read; empty: has none."""
    fabric_state: int | None = None
    """0 not supported, 1 not started, 2 in progress, 3 completed."""
    fabric_status: int | None = None
    """0 success; otherwise an NVML error code."""
    fabric_health: int | None = None
    """0 not supported, 1 healthy, 2 unhealthy, 3 limited capacity."""
    fabric_clique: str | None = None
    inforom_valid: bool | None = None
    vbios: str | None = None
    display_active: bool | None = None
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLink:
    """How two GPUs (or a GPU and a NIC) are joined, as `nvidia-smi topo -m` or NVML says."""

    a: str
    b: str
    kind: str
    """"NV18", "PIX", "PXB", "PHB", "NODE", "SYS"."""
    p2p_read: str | None = None
    """"ok", or NVML's word for why not: "chipset not supported", "disabled by regkey" …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts(Section):
    """All GPUs of a host and their driver."""

    nvml_state: NvmlState | None = None
    nvml_error: str | None = None
    """NVML's own words."""
    nvml_library_version: str | None = None
    """From the real name of libnvidia-ml.so.X."""
    driver_version: str | None = None
    """As NVML or nvidia-smi says."""
    kernel_module_version: str | None = None
    """/proc/driver/nvidia/version."""
    kernel_module_open: bool | None = None
    cuda_driver_version: str | None = None
    """Newest CUDA API of the driver, "12.8": neither what is installed nor a limit inside the major."""
    smi_version: str | None = None
    """NVIDIA-SMI's own version, where text shows it."""
    num_pci_gpus: int | None = None
    num_device_nodes: int | None = None
    """/dev/nvidia[0-9]*."""
    num_proc_gpus: int | None = None
    """/proc/driver/nvidia/gpus/*."""
    pci_gpus: tuple[str, ...] = ()
    """PCI addresses of NVIDIA display and 3D controllers in /sys, `0000:3b:00.0`."""
    pci_drivers: Mapping[str, str] = field(default_factory=dict)
    """PCI address → kernel driver that holds it: "nvidia", "nouveau", "vfio-pci"; absent: none or not read."""
    num_forbidden_nodes: int | None = None
    """Of /dev/nvidia[0-9]*, those that we may not open: a job's device cgroup hides these GPUs."""
    amd_pci_gpus: tuple[str, ...] = ()
    cuda_visible_devices: str | None = None
    devices: tuple[GpuDevice, ...] | None = None
    """None: not read; empty: there is none."""
    pair_links: tuple[PairLink, ...] = ()
    libcuda_path: str | None = None
    """The libcuda.so.1 that the loader would take."""
    libcuda_version: str | None = None
    fabric_manager: str | None = None
    """systemd's word for nvidia-fabricmanager: "active", "failed", "inactive", "not installed"."""
    fabric_manager_version: str | None = None
    fabric_manager_error: str | None = None
    num_nvswitches: int | None = None
    imex_state: str | None = None
    """"UP", "DOWN", "DEGRADED" as `nvidia-imex-ctl -N` says of the domain, or "not installed"."""
    num_imex_channels: int | None = None
    """/dev/nvidia-caps-imex-channels/channel*."""
    persistenced_running: bool | None = None
    pynvml_shadowed: bool | None = None
    """An installed `pynvml` distribution hides the official binding."""
    toolkit_version: str | None = None
    """nvcc / CUDA runtime version installed on the system, where known."""
    source_note: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

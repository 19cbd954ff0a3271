"""The only importer of pynvml: small typed calls that give a value or say which NVML error they met.

NVML needs no CUDA context and makes none. It can hang with a broken driver: whoever calls it for a report
does so in a child process with a deadline (`env.collect.nvml_child`). Nothing but the standard library and
the binding is imported here, so that the child starts fast.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")

# nvmlReturn_t of nvml.h, API 13. Kept here because older bindings lack the newer names.
ERROR_NAMES = {
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    6: "NOT_FOUND",
    7: "INSUFFICIENT_SIZE",
    8: "INSUFFICIENT_POWER",
    9: "DRIVER_NOT_LOADED",
    10: "TIMEOUT",
    11: "IRQ_ISSUE",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    14: "CORRUPTED_INFOROM",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    18: "LIB_RM_VERSION_MISMATCH",
    19: "IN_USE",
    20: "MEMORY",
    21: "NO_DATA",
    22: "VGPU_ECC_NOT_SUPPORTED",
    23: "INSUFFICIENT_RESOURCES",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    27: "NOT_READY",
    28: "GPU_NOT_FOUND",
    29: "INVALID_STATE",
    999: "UNKNOWN",
}

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
FUNCTION_NOT_FOUND = 13
CORRUPTED_INFOROM = 14
GPU_IS_LOST = 15
RESET_REQUIRED = 16
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26

# After these the GPU answers nothing more in this process.
LOST_CODES = frozenset({GPU_IS_LOST, RESET_REQUIRED})

# An older call of the same meaning may answer where a newer one gives these.
TRY_OLDER = frozenset(
    {FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED, INVALID_ARGUMENT, NOT_SUPPORTED}
)

# nvmlFieldValue ids, nvml.h.
FIELD_MEMORY_TEMPERATURE = 82
FIELD_NVLINK_SPEED_COMMON = 90
FIELD_NVLINK_ERROR_REPLAY = 161
FIELD_NVLINK_ERROR_RECOVERY = 162
FIELD_NVLINK_ERROR_CRC = 163
FIELD_NVLINK_SPEED = 164
FIELD_NVLINK_RECOVERY_EVENTS = 215
FIELD_RECOVERY_ACTION = 230

# nvmlClocksEventReasons bits → our words.
THROTTLE_BITS = {
    0x001: "idle",
    0x002: "app_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal",
    0x040: "hw_thermal",
    0x080: "power_brake",
    0x100: "display",
}

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}

# nvmlGpuTopologyLevel_t → the words of `nvidia-smi topo -m`.
TOPOLOGY_KINDS = {0: "X", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}

P2P_STATUS = {
    0: "ok",
    1: "chipset not supported",
    2: "gpu not supported",
    3: "topology not supported",
    4: "disabled by regkey",
    5: "not supported",
    6: "unknown",
}

# Links of the largest GPU that NVML's header knows.
MAX_NVLINKS = 36

REMOTE_IS_SWITCH = 2


class BindingError(Exception):
    """The official NVML binding (distribution nvidia-ml-py) cannot be imported."""


class NvmlCallError(Exception):
    """One NVML call that gave no value: nvmlReturn_t, its name, and the library's words."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} (NVML {code} {ERROR_NAMES.get(code, 'ERROR')})")
        self.code = code
        self.name = ERROR_NAMES.get(code, "ERROR")
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The imported module, and whether the old `pynvml` package stood in front of it."""

    module: ModuleType
    shadowed: bool


def load_binding() -> Binding:
    """Import the official binding, also when the abandoned `pynvml` package hides it.

    That package is a folder `pynvml/`, which wins over the official single file `pynvml.py` beside it; the
    file is then loaded by its path. Raises BindingError when there is no official one.
    """
    try:
        import pynvml as module
    except ImportError as error:
        raise BindingError(f"nvidia-ml-py is not installed: {error}") from error
    shadowed = hasattr(module, "__path__")
    if shadowed:
        module = _load_official(Path(str(module.__file__)).parent.parent / "pynvml.py")
    if not hasattr(module, "nvmlInit_v2") and not hasattr(module, "nvmlInitWithFlags"):
        raise BindingError(f"{module.__file__} is not NVIDIA's NVML binding")
    return Binding(module=module, shadowed=shadowed)


def _load_official(path: Path) -> ModuleType:
    if not path.is_file():
        raise BindingError(
            f"the old `pynvml` package in {path.parent} is installed without nvidia-ml-py: "
            "pip uninstall pynvml && pip install nvidia-ml-py"
        )
    spec = importlib.util.spec_from_file_location("pynvml", path)
    if spec is None or spec.loader is None:
        raise BindingError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["pynvml"] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def open_nvml() -> Iterator[Nvml]:
    """NVML initialised, and shut down at the end.

    Raises BindingError; NvmlCallError when the library is missing, the driver is not loaded or differs, …
    """
    binding = load_binding()
    nvml = Nvml(binding)
    nvml.initialise()
    try:
        yield nvml
    finally:
        nvml.shut_down()


class Nvml:
    """The library: questions about the host."""

    def __init__(self, binding: Binding) -> None:
        self.shadowed = binding.shadowed
        self.pynvml = binding.module

    def initialise(self) -> None:
        """Load libnvidia-ml.so.1 and connect to the driver. Raises NvmlCallError."""
        self.call("nvmlInit")

    def shut_down(self) -> None:
        """Let go; a failure here says nothing about the GPUs."""
        try:
            self.call("nvmlShutdown")
        except NvmlCallError:
            return

    def driver_version(self) -> str:
        """Version of the loaded kernel driver, as NVML says: "570.86.15"."""
        return text_of(self.call("nvmlSystemGetDriverVersion"))

    def cuda_driver_version(self) -> str:
        """Newest CUDA API of the driver: "12.8"."""
        number = int(self.call("nvmlSystemGetCudaDriverVersion_v2"))
        return f"{number // 1000}.{number % 1000 // 10}"

    def num_gpus(self) -> int:
        """GPUs that NVML counts, those that it cannot reach included."""
        return int(self.call("nvmlDeviceGetCount"))

    def gpu(self, index: int) -> Gpu:
        """The GPU with this NVML index. Raises NvmlCallError, for instance GPU_IS_LOST."""
        return Gpu(self, self.call("nvmlDeviceGetHandleByIndex", index))

    def process_name(self, pid: int) -> str:
        """Name of a process as NVML knows it; it may be the whole command line."""
        return text_of(self.call("nvmlSystemGetProcessName", pid))

    def call(self, function: str, *arguments: Any) -> Any:  # Any: the binding is untyped
        """One call of the binding. Raises NvmlCallError, also when binding or library lack the function."""
        found = getattr(self.pynvml, function, None)
        if found is None:
            raise NvmlCallError(FUNCTION_NOT_FOUND, f"this nvidia-ml-py has no {function}")
        try:
            return found(*arguments)
        except self.pynvml.NVMLError as error:
            raise NvmlCallError(int(error.value), str(error)) from error
        except getattr(self.pynvml, "NVMLLibraryMismatchError", ()) as error:
            raise NvmlCallError(FUNCTION_NOT_FOUND, f"the driver has no {function}") from error


class Gpu:
    """One GPU; every method raises NvmlCallError when NVML gives no value."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:  # Any: an opaque pointer of the binding
        self._nvml = nvml
        self.handle = handle

    def ask(self, function: str, *arguments: Any) -> Any:  # Any: the binding is untyped
        """`function` of the binding about this GPU."""
        return self._nvml.call(function, self.handle, *arguments)

    def first_of(self, *reads: Callable[[], T]) -> T:
        """The first read that works: newer calls before older ones. Raises the last one's error."""
        for read in reads[:-1]:
            try:
                return read()
            except NvmlCallError as error:
                if error.code not in TRY_OLDER:
                    raise
        return reads[-1]()

    def field(self, field: int, scope: int = 0) -> int:
        """A field value (nvmlDeviceGetFieldValues) as an integer; `scope` is a link or a sensor."""
        value = self.ask("nvmlDeviceGetFieldValues", [(field, scope)])[0]
        if value.nvmlReturn != 0:
            raise NvmlCallError(int(value.nvmlReturn), f"field {field}")
        # nvmlValueType_t: double, unsigned int, unsigned long, unsigned long long, long long, int, unsigned short.
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        if not 0 <= value.valueType < len(members):
            raise NvmlCallError(NOT_SUPPORTED, f"field {field} has an unknown type {value.valueType}")
        return int(getattr(value.value, members[value.valueType]))

    def name(self) -> str:
        """Model: "NVIDIA H100 80GB HBM3"."""
        return text_of(self.ask("nvmlDeviceGetName"))

    def uuid(self) -> str:
        """ "GPU-…"."""
        return text_of(self.ask("nvmlDeviceGetUUID"))

    def serial(self) -> str:
        """Board serial number; many boards have none."""
        return text_of(self.ask("nvmlDeviceGetSerial"))

    def pci(self) -> str:
        """ "00000000:3B:00.0"."""
        return text_of(self.ask("nvmlDeviceGetPciInfo").busId)

    def vbios(self) -> str:
        """VBIOS version."""
        return text_of(self.ask("nvmlDeviceGetVbiosVersion"))

    def compute_capability(self) -> tuple[int, int]:
        """(9, 0) for H100."""
        major, minor = self.ask("nvmlDeviceGetCudaComputeCapability")
        return int(major), int(minor)

    def memory_bytes(self) -> tuple[int, int, int]:
        """(total, used, free). Version 2 keeps what the driver reserves out of `used`."""
        version_2 = getattr(self._nvml.pynvml, "nvmlMemory_v2", None)
        newer: list[Callable[[], Any]] = []
        if version_2 is not None:
            newer.append(lambda: self.ask("nvmlDeviceGetMemoryInfo", version_2))
        info = self.first_of(*newer, lambda: self.ask("nvmlDeviceGetMemoryInfo"))
        return int(info.total), int(info.used), int(info.free)

    def utilisation_pct(self) -> int:
        """Share of the last sample period in which a kernel ran, in per cent."""
        return int(self.ask("nvmlDeviceGetUtilizationRates").gpu)

    def temperature_c(self) -> int:
        """Core temperature in °C."""
        return self.first_of(
            lambda: int(self.ask("nvmlDeviceGetTemperature", 0)),
            lambda: int(self.ask("nvmlDeviceGetTemperatureV", 0)),
        )

    def temperature_threshold_c(self, threshold: int) -> int:
        """0 shutdown, 1 slowdown, 2 memory maximum, 3 GPU maximum; in °C."""
        return int(self.ask("nvmlDeviceGetTemperatureThreshold", threshold))

    def temperature_margin_c(self) -> int:
        """Degrees left to the nearest slowdown threshold (newer GPUs give this instead of thresholds)."""
        return int(self.ask("nvmlDeviceGetMarginTemperature"))

    def power_w(self) -> float:
        """Power draw in watts."""
        return float(self.ask("nvmlDeviceGetPowerUsage")) / 1000

    def power_limit_w(self) -> float:
        """Enforced limit in watts."""
        return float(self.ask("nvmlDeviceGetEnforcedPowerLimit")) / 1000

    def power_limit_default_w(self) -> float:
        """Default limit in watts."""
        return float(self.ask("nvmlDeviceGetPowerManagementDefaultLimit")) / 1000

    def power_limit_max_w(self) -> float:
        """Highest limit that may be set, in watts."""
        return float(self.ask("nvmlDeviceGetPowerManagementLimitConstraints")[1]) / 1000

    def sm_clock_mhz(self) -> int:
        """Current SM clock."""
        return int(self.ask("nvmlDeviceGetClockInfo", 1))

    def sm_clock_max_mhz(self) -> int:
        """Highest SM clock of this board."""
        return int(self.ask("nvmlDeviceGetMaxClockInfo", 1))

    def application_clock_mhz(self) -> int:
        """Application SM clock (deprecated in CUDA 13)."""
        return int(self.ask("nvmlDeviceGetApplicationsClock", 1))

    def throttle_reasons(self) -> tuple[str, ...]:
        """Reasons that hold the clocks down now, in our words (`THROTTLE_BITS`)."""
        bits = self.first_of(
            lambda: int(self.ask("nvmlDeviceGetCurrentClocksEventReasons")),
            lambda: int(self.ask("nvmlDeviceGetCurrentClocksThrottleReasons")),
        )
        return tuple(word for bit, word in THROTTLE_BITS.items() if bits & bit)

    def persistence_mode(self) -> bool:
        """Does the driver stay initialised without a client?"""
        return bool(self.ask("nvmlDeviceGetPersistenceMode"))

    def compute_mode(self) -> str:
        """ "default", "exclusive_process", "prohibited"."""
        mode = int(self.ask("nvmlDeviceGetComputeMode"))
        return COMPUTE_MODES.get(mode, f"mode {mode}")

    def mig_mode(self) -> tuple[bool, bool]:
        """(current, after the next reset)."""
        current, pending = self.ask("nvmlDeviceGetMigMode")
        return bool(current), bool(pending)

    def mig_gpus(self) -> list[Gpu]:
        """Handles of the MIG slices of this GPU; empty slots are left out."""
        slices = []
        for index in range(int(self.ask("nvmlDeviceGetMaxMigDeviceCount"))):
            try:
                slices.append(Gpu(self._nvml, self.ask("nvmlDeviceGetMigDeviceHandleByIndex", index)))
            except NvmlCallError as error:
                if error.name != "NOT_FOUND":
                    raise
        return slices

    def ecc_mode(self) -> tuple[bool, bool]:
        """(current, after the next reset)."""
        current, pending = self.ask("nvmlDeviceGetEccMode")
        return bool(current), bool(pending)

    def ecc_errors(self, *, uncorrected: bool, aggregate: bool) -> int:
        """Errors since the driver was loaded, or (aggregate) in the life of the board."""
        return int(self.ask("nvmlDeviceGetTotalEccErrors", int(uncorrected), int(aggregate)))

    def sram_threshold_exceeded(self) -> bool:
        """NVIDIA's own threshold for uncorrectable SRAM errors; needs root."""
        kind = getattr(self._nvml.pynvml, "c_nvmlEccSramErrorStatus_v1_t", None)
        if kind is None:
            raise NvmlCallError(FUNCTION_NOT_FOUND, "this nvidia-ml-py has no SRAM error status")
        status = kind()
        self.ask("nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status))
        return bool(status.bThresholdExceeded)

    def unrepairable_memory(self) -> bool:
        """Does the board say that its memory can no longer be repaired? Hopper and newer."""
        return bool(self.ask("nvmlDeviceGetUnrepairableMemoryFlag_v1"))

    def remapped_rows(self) -> tuple[int, int, bool, bool]:
        """(after correctable errors, after uncorrectable errors, pending, failed). Ampere and newer, no MIG."""
        correctable, uncorrectable, pending, failed = self.ask("nvmlDeviceGetRemappedRows")
        return int(correctable), int(uncorrectable), bool(pending), bool(failed)

    def banks_without_spare(self) -> int:
        """Memory banks that have no spare row left."""
        return int(self.ask("nvmlDeviceGetRowRemapperHistogram").none)

    def retired_pages(self) -> int:
        """Pages retired for whatever cause. Volta and older."""
        return sum(len(self.ask("nvmlDeviceGetRetiredPages", cause)) for cause in (0, 1))

    def retired_pages_pending(self) -> bool:
        """Does a page wait for the next reset to be retired?"""
        return bool(self.ask("nvmlDeviceGetRetiredPagesPendingStatus"))

    def recovery_action(self) -> int:
        """What the driver asks for: 0 nothing, see `GpuDevice.recovery_action`."""
        return self.field(FIELD_RECOVERY_ACTION)

    def pcie_width(self) -> int:
        """Lanes in use."""
        return int(self.ask("nvmlDeviceGetCurrPcieLinkWidth"))

    def pcie_width_max(self) -> int:
        """Lanes that GPU and slot could use, as NVML says."""
        return int(self.ask("nvmlDeviceGetMaxPcieLinkWidth"))

    def pcie_gen(self) -> int:
        """PCIe generation now; it falls when the GPU idles."""
        return int(self.ask("nvmlDeviceGetCurrPcieLinkGeneration"))

    def pcie_gen_max(self) -> int:
        """Highest generation of GPU and system together."""
        return int(self.ask("nvmlDeviceGetMaxPcieLinkGeneration"))

    def pcie_replays(self) -> int:
        """Packets sent again since the driver was loaded."""
        return int(self.ask("nvmlDeviceGetPcieReplayCounter"))

    def inforom_valid(self) -> bool:
        """Do the checksums of the board's configuration memory hold?"""
        try:
            self.ask("nvmlDeviceValidateInforom")
        except NvmlCallError as error:
            if error.code == CORRUPTED_INFOROM:
                return False
            raise
        return True

    def display_active(self) -> bool:
        """Does it drive a screen?"""
        return bool(self.ask("nvmlDeviceGetDisplayActive"))

    def processes(self) -> list[tuple[int, int | None]]:
        """(pid on the host, bytes used) of compute processes. Empty inside a container that hides them."""
        found = self.first_of(
            lambda: self.ask("nvmlDeviceGetComputeRunningProcesses_v3"),
            lambda: self.ask("nvmlDeviceGetComputeRunningProcesses_v2"),
            lambda: self.ask("nvmlDeviceGetComputeRunningProcesses"),
        )
        return [
            (int(each.pid), None if each.usedGpuMemory is None else int(each.usedGpuMemory)) for each in found
        ]

    def nvlink_active(self, link: int) -> bool:
        """Is this link up?"""
        return bool(self.ask("nvmlDeviceGetNvLinkState", link))

    def nvlink_speed_gbps(self, link: int) -> float:
        """GB/s in one direction (NVML gives MB/s)."""
        old_field = getattr(
            self._nvml.pynvml, f"NVML_FI_DEV_NVLINK_SPEED_MBPS_L{link}", FIELD_NVLINK_SPEED_COMMON
        )
        mbps = self.first_of(lambda: self.field(FIELD_NVLINK_SPEED, link), lambda: self.field(old_field))
        return mbps / 1000

    def nvlink_errors(self, link: int, counter: int, field: int) -> int:
        """An error counter of a link: by the old call (Volta to Ampere), else by `field` (Hopper and newer)."""
        return self.first_of(
            lambda: int(self.ask("nvmlDeviceGetNvLinkErrorCounter", link, counter)),
            lambda: self.field(field, link),
        )

    def nvlink_peer(self, link: int) -> str:
        """PCI address of what is at the other end ("switch" for an NVSwitch)."""
        try:
            if int(self.ask("nvmlDeviceGetNvLinkRemoteDeviceType", link)) == REMOTE_IS_SWITCH:
                return "switch"
        except NvmlCallError as error:
            if error.code not in TRY_OLDER:
                raise
        return text_of(self.ask("nvmlDeviceGetNvLinkRemotePciInfo", link).busId)

    def fabric(self) -> FabricState:
        """NVLink fabric registration; Hopper and newer on NVSwitch systems."""
        return self.first_of(
            lambda: self._fabric("c_nvmlGpuFabricInfo_v3_t", "nvmlDeviceGetGpuFabricInfoV"),
            lambda: self._fabric("c_nvmlGpuFabricInfo_v2_t", "nvmlDeviceGetGpuFabricInfoV"),
            lambda: self._fabric("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo"),
        )

    def _fabric(self, struct: str, function: str) -> FabricState:
        kind = getattr(self._nvml.pynvml, struct, None)
        if kind is None:
            raise NvmlCallError(FUNCTION_NOT_FOUND, f"this nvidia-ml-py has no {struct}")
        info = kind()
        self.ask(function, ctypes.byref(info))
        cluster = bytes(info.clusterUuid)
        return FabricState(
            state=int(info.state),
            status=int(info.status),
            health=_fabric_health(info),
            clique=f"{cluster.hex()}.{info.cliqueId}" if any(cluster) else None,
        )

    def topology_kind(self, other: Gpu) -> str:
        """How PCIe joins two GPUs, in the words of `nvidia-smi topo -m`."""
        level = int(self.ask("nvmlDeviceGetTopologyCommonAncestor", other.handle))
        return TOPOLOGY_KINDS.get(level, f"level {level}")

    def p2p_read_status(self, other: Gpu) -> str:
        """ "ok", or NVML's word for why one GPU cannot read the other's memory."""
        status = int(self.ask("nvmlDeviceGetP2PStatus", other.handle, 0))
        return P2P_STATUS.get(status, f"status {status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricState:
    """NVML's fabric info of one GPU; see `GpuDevice.fabric_state`, `fabric_status` and `fabric_health`."""

    state: int
    status: int
    health: int | None
    clique: str | None


def _fabric_health(info: Any) -> int | None:  # Any: one of three ctypes structures
    """The summary of version 3; of version 2 the mask's route and configuration bits say the same."""
    summary = getattr(info, "healthSummary", None)
    if summary is not None:
        return int(summary)
    mask = getattr(info, "healthMask", None)
    if mask is None:
        return None
    degraded, unhealthy, configuration = mask & 0x3, mask >> 4 & 0x3, mask >> 8 & 0xF
    if unhealthy == 1 or configuration > 1:
        return 2
    if degraded == 1:
        return 3
    return 1 if mask else 0


def text_of(value: str | bytes) -> str:
    """Text that some bindings give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

"""Words and numbers of nvidia-smi's `-q` and `--query-gpu` output, and the facts that they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable

from distdoctor.units import MIB

BOOLEANS = {
    "enabled": True, "yes": True, "active": True, "on": True, "true": True,
    "disabled": False, "no": False, "not active": False, "off": False, "false": False,
}  # fmt: skip

# Label below "Clocks Throttle Reasons" (before 535) or "Clocks Event Reasons" → our word.
THROTTLE_WORDS = {
    "idle": "idle",
    "applications clocks setting": "app_clocks",
    "sw power cap": "sw_power_cap",
    "sw power capping": "sw_power_cap",
    "hw slowdown": "hw_slowdown",
    "hw thermal slowdown": "hw_thermal",
    "hw power brake slowdown": "power_brake",
    "hw power braking": "power_brake",
    "sync boost": "sync_boost",
    "sw thermal slowdown": "sw_thermal",
    "display clock setting": "display",
}

# NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, as nvidia-smi words it.
_RECOVERY = {
    "none": 0, "reset": 1, "gpu reset": 1, "gpu reset required": 1, "reboot": 2, "node reboot": 2,
    "node reboot required": 2, "drain p2p": 3, "drain and reset": 4, "recover imex": 5, "bus reset": 6,
    "system reboot": 7,
}  # fmt: skip

_FABRIC_STATE = {"not supported": 0, "not started": 1, "in progress": 2, "completed": 3}

# nvmlReturn_t of nvml.h, as nvmlErrorString() words them; any other failure is NVML_ERROR_UNKNOWN.
_FABRIC_STATUS = {
    "success": 0, "uninitialized": 1, "invalid argument": 2, "insufficient permissions": 4, "not found": 6,
    "timeout": 10, "gpu is lost": 15, "gpu requires reset": 16, "in use by another client": 19,
    "insufficient memory": 20, "no data": 21, "insufficient resources": 23, "not ready": 27,
}  # fmt: skip
_UNKNOWN_STATUS = 999

# NVML_GPU_FABRIC_HEALTH_SUMMARY_*.
_FABRIC_HEALTH = {"not supported": 0, "healthy": 1, "unhealthy": 2, "limited capacity": 3}

_COMPUTE_MODES = {
    "default": "default", "exclusive_process": "exclusive_process", "exclusive process": "exclusive_process",
    "e. process": "exclusive_process", "exclusive_thread": "exclusive_thread", "prohibited": "prohibited",
}  # fmt: skip


def mib(value: str) -> int | None:
    """Bytes of "81559 MiB" (or "MB", as drivers before 340 print)."""
    match = re.fullmatch(r"(\d+)\s*(?:MiB|MB)?", value.strip())
    return int(match[1]) * MIB if match else None


def _integer(value: str) -> int | None:
    match = re.match(r"(\d+)\s*(?:%|C|MHz|x|bank\(s\)|W|us)?$", value.strip())
    return int(match[1]) if match else None


def _number(value: str) -> float | None:
    match = re.match(r"(\d+(?:\.\d+)?)\s*W?$", value.strip())
    return float(match[1]) if match else None


def _boolean(value: str) -> bool | None:
    return BOOLEANS.get(value.strip().lower())


def _text(value: str) -> str | None:
    value = value.strip()
    return None if value.strip("[]").lower() in ("", "n/a", "none", "not supported") else value


def _uuid(value: str) -> str | None:
    return value.strip() if value.strip().startswith(("GPU-", "MIG-")) else None


def _pci(value: str) -> str | None:
    match = re.fullmatch(
        r"(?:([0-9A-Fa-f]{8})|([0-9A-Fa-f]{4})):[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]", value.strip()
    )
    if match is None:
        return None
    return value.strip() if match[1] else f"0000{value.strip()}"


def _recovery(value: str) -> int | None:
    return _RECOVERY.get(value.strip().lower())


def _fabric_state(value: str) -> int | None:
    return _FABRIC_STATE.get(value.strip().lower())


def _fabric_status(value: str) -> int | None:
    word = value.strip().lower()
    return None if word in ("n/a", "", "not supported") else _FABRIC_STATUS.get(word, _UNKNOWN_STATUS)


def _fabric_health(value: str) -> int | None:
    return _FABRIC_HEALTH.get(value.strip().lower())


def _capability(value: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d+)\.(\d)", value.strip())
    return (int(match[1]), int(match[2])) if match else None


def _compute_mode(value: str) -> str | None:
    return _COMPUTE_MODES.get(value.strip().lower())


# "nearest heading/label" (or the label alone at a GPU's top level) → field of GpuDevice. Where drivers renamed a
# label, both stand here. Names with an underscore are put together later.
FIELDS = {
    "product name": "name",
    "display active": "display_active",
    "persistence mode": "persistence_mode",
    "mig mode/current": "mig_mode",
    "mig mode/pending": "mig_mode_pending",
    "serial number": "serial",
    "gpu uuid": "uuid",
    "vbios version": "vbios",
    "gpu recovery action": "recovery_action",
    "gpu reset status/reset required": "_reset_required",
    "pci/bus id": "pci",
    "pcie generation/max": "pcie_gen_max",
    "pcie generation/current": "pcie_gen",
    "link width/max": "pcie_width_max",
    "link width/current": "pcie_width",
    "pci/replays since reset": "pcie_replays",
    "fb memory usage/total": "memory_total_bytes",
    "fb memory usage/used": "memory_used_bytes",
    "fb memory usage/free": "memory_free_bytes",
    "compute mode": "compute_mode",
    "utilization/gpu": "utilisation_pct",
    "ecc mode/current": "ecc_mode",
    "ecc mode/pending": "ecc_mode_pending",
    "retired pages/single bit ecc": "_retired_single",
    "retired pages/double bit ecc": "_retired_double",
    "retired pages/pending": "retired_pages_pending",
    "retired pages/pending retirement": "retired_pages_pending",
    "retired pages/pending page blacklist": "retired_pages_pending",
    "remapped rows/correctable error": "remapped_correctable",
    "remapped rows/uncorrectable error": "remapped_uncorrectable",
    "remapped rows/pending": "remap_pending",
    "remapped rows/remapping failure occurred": "remap_failed",
    "bank remap availability histogram/none": "remap_banks_without_spare",
    "temperature/gpu current temp": "temperature_c",
    "temperature/gpu slowdown temp": "temperature_slowdown_c",
    "temperature/memory current temp": "memory_temperature_c",
    "power readings/power draw": "power_w",
    "power readings/enforced power limit": "power_limit_w",
    "power readings/default power limit": "power_limit_default_w",
    "power readings/max power limit": "power_limit_max_w",
    "gpu power readings/power draw": "power_w",
    "gpu power readings/average power draw": "power_w",
    "gpu power readings/instantaneous power draw": "power_w",
    "gpu power readings/current power limit": "power_limit_w",
    "gpu power readings/enforced power limit": "power_limit_w",
    "gpu power readings/default power limit": "power_limit_default_w",
    "gpu power readings/max power limit": "power_limit_max_w",
    "clocks/sm": "sm_clock_mhz",
    "max clocks/sm": "sm_clock_max_mhz",
    "applications clocks/graphics": "application_clock_mhz",
    "fabric/state": "fabric_state",
    "fabric/status": "fabric_status",
    "fabric/cliqueid": "fabric_clique",
    "health/summary": "fabric_health",
    # `--query-gpu` names
    "index": "index",
    "gpu_name": "name",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "pci.bus_id": "pci",
    "gpu_bus_id": "pci",
    "serial": "serial",
    "gpu_serial": "serial",
    "vbios_version": "vbios",
    "compute_cap": "compute_capability",
    "memory.total": "memory_total_bytes",
    "memory.used": "memory_used_bytes",
    "memory.free": "memory_free_bytes",
    "utilization.gpu": "utilisation_pct",
    "temperature.gpu": "temperature_c",
    "temperature.memory": "memory_temperature_c",
    "power.draw": "power_w",
    "power.draw.average": "power_w",
    "power.draw.instant": "power_w",
    "power.limit": "power_limit_w",
    "enforced.power.limit": "power_limit_w",
    "power.default_limit": "power_limit_default_w",
    "power.max_limit": "power_limit_max_w",
    "clocks.sm": "sm_clock_mhz",
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.max.sm": "sm_clock_max_mhz",
    "clocks.applications.graphics": "application_clock_mhz",
    "persistence_mode": "persistence_mode",
    "compute_mode": "compute_mode",
    "display_active": "display_active",
    "mig.mode.current": "mig_mode",
    "mig.mode.pending": "mig_mode_pending",
    "ecc.mode.current": "ecc_mode",
    "ecc.mode.pending": "ecc_mode_pending",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected_volatile",
    "ecc.errors.corrected.volatile.total": "ecc_corrected_volatile",
    "ecc.errors.uncorrected.aggregate.total": "ecc_uncorrected_aggregate",
    "pcie.link.gen.current": "pcie_gen",
    "pcie.link.gen.gpucurrent": "pcie_gen",
    "pcie.link.gen.max": "pcie_gen_max",
    "pcie.link.width.current": "pcie_width",
    "pcie.link.width.max": "pcie_width_max",
    "gpu_recovery_action": "recovery_action",
    "fabric.state": "fabric_state",
    "fabric.status": "fabric_status",
    "fabric.health.summary": "fabric_health",
    "retired_pages.pending": "retired_pages_pending",
    "retired_pages.sbe": "_retired_single",
    "retired_pages.single_bit_ecc.count": "_retired_single",
    "retired_pages.dbe": "_retired_double",
    "retired_pages.double_bit.count": "_retired_double",
    "remapped_rows.correctable": "remapped_correctable",
    "remapped_rows.uncorrectable": "remapped_uncorrectable",
    "remapped_rows.pending": "remap_pending",
    "remapped_rows.failure": "remap_failed",
}

_BOOLEAN_FIELDS = (
    "display_active", "persistence_mode", "mig_mode", "mig_mode_pending", "_reset_required", "ecc_mode",
    "ecc_mode_pending", "retired_pages_pending", "remap_pending", "remap_failed", "sram_threshold_exceeded",
)  # fmt: skip
_BYTE_FIELDS = ("memory_total_bytes", "memory_used_bytes", "memory_free_bytes")
_WATT_FIELDS = ("power_w", "power_limit_w", "power_limit_default_w", "power_limit_max_w")
_TEXT_FIELDS = ("name", "serial", "vbios", "fabric_clique")

Converter = Callable[[str], object]


def _converters() -> dict[str, Converter]:
    found: dict[str, Converter] = dict.fromkeys(FIELDS.values(), _integer)
    found |= dict.fromkeys(_BOOLEAN_FIELDS, _boolean)
    found |= dict.fromkeys(_BYTE_FIELDS, mib)
    found |= dict.fromkeys(_WATT_FIELDS, _number)
    found |= dict.fromkeys(_TEXT_FIELDS, _text)
    found["uuid"] = _uuid
    found["pci"] = _pci
    found["recovery_action"] = _recovery
    found["fabric_state"] = _fabric_state
    found["fabric_status"] = _fabric_status
    found["fabric_health"] = _fabric_health
    found["compute_capability"] = _capability
    found["compute_mode"] = _compute_mode
    return found


# Field → how its text becomes a value; each gives None for text that is no value.
CONVERT = _converters()

"""What exporters call their metrics, and how to get from their unit to ours.

DCGM: names and units of dcgm-exporter's `default-counters.csv` and of DCGM's `dcgm_fields.h`. Violations are
nanoseconds: older lists of the exporter said µs, which was an error in the comment and never in the value
(corrected in NVIDIA/dcgm-exporter pull request 589). Left out because their unit is not certain:
DCGM_FI_DEV_PCIE_*_THROUGHPUT ("bytes (in KB)"), DCGM_FI_DEV_NVLINK_BANDWIDTH_*.

AMD: names and units of ROCm/device-metrics-exporter's list of metrics. Residencies of violations have no unit there
and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from distdoctor.straggler.facts.telemetry import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What one exporter's metric holds."""

    metric: Metric
    factor: float = 1.0
    """Our unit in one of theirs."""
    choice: int | None = 0
    """Of several names for one thing the one with the lowest number is taken; None: each counts something else."""
    is_counter: bool = False


def _gauge(metric: Metric, factor: float = 1.0, choice: int | None = 0) -> Meaning:
    return Meaning(metric=metric, factor=factor, choice=choice)


def _counter(metric: Metric, choice: int | None = 0) -> Meaning:
    return Meaning(metric=metric, choice=choice, is_counter=True)


_DCGM: dict[str, Meaning] = {
    "DEV_SM_CLOCK": _gauge(Metric.SM_CLOCK),
    "DEV_MEM_CLOCK": _gauge(Metric.MEMORY_CLOCK),
    "DEV_POWER_USAGE": _gauge(Metric.POWER),
    "DEV_POWER_USAGE_INSTANT": _gauge(Metric.POWER, choice=1),
    "DEV_ENFORCED_POWER_LIMIT": _gauge(Metric.POWER_LIMIT),
    "DEV_POWER_MGMT_LIMIT": _gauge(Metric.POWER_LIMIT, choice=1),
    "DEV_GPU_TEMP": _gauge(Metric.TEMPERATURE),
    "DEV_MEMORY_TEMP": _gauge(Metric.MEMORY_TEMPERATURE),
    "DEV_GPU_UTIL": _gauge(Metric.UTILISATION),
    "PROF_SM_ACTIVE": _gauge(Metric.SM_ACTIVE),
    "PROF_PIPE_TENSOR_ACTIVE": _gauge(Metric.TENSOR_ACTIVE),
    "PROF_DRAM_ACTIVE": _gauge(Metric.DRAM_ACTIVE),
    "DEV_CLOCKS_EVENT_REASONS": _gauge(Metric.THROTTLE_REASONS),
    "DEV_CLOCK_THROTTLE_REASONS": _gauge(Metric.THROTTLE_REASONS, choice=1),
    "DEV_POWER_VIOLATION": _counter(Metric.POWER_VIOLATION),
    "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS": _counter(Metric.POWER_VIOLATION, choice=1),
    "DEV_THERMAL_VIOLATION": _counter(Metric.THERMAL_VIOLATION),
    "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS": _counter(Metric.THERMAL_VIOLATION, choice=None),
    "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS": _counter(Metric.THERMAL_VIOLATION, choice=None),
    "DEV_PCIE_REPLAY_COUNTER": _counter(Metric.PCIE_REPLAYS),
    "DEV_XID_ERRORS": _gauge(Metric.XID),
    "DEV_ROW_REMAP_FAILURE": _gauge(Metric.ROW_REMAP_FAILURE),
    "PROF_PCIE_RX_BYTES": _gauge(Metric.PCIE_RX),
    "PROF_PCIE_TX_BYTES": _gauge(Metric.PCIE_TX),
    "PROF_NVLINK_RX_BYTES": _gauge(Metric.NVLINK_RX),
    "PROF_NVLINK_TX_BYTES": _gauge(Metric.NVLINK_TX),
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _counter(Metric.NVLINK_ERRORS, choice=None),
    "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _counter(Metric.NVLINK_ERRORS, choice=None),
    "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _counter(Metric.NVLINK_ERRORS, choice=None),
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _counter(Metric.NVLINK_ERRORS, choice=None),
}

_AMD: dict[str, Meaning] = {
    "gpu_package_power": _gauge(Metric.POWER),
    "gpu_average_package_power": _gauge(Metric.POWER, choice=1),
    "gpu_power_usage": _gauge(Metric.POWER, choice=2),
    "gpu_junction_temperature": _gauge(Metric.TEMPERATURE),
    "gpu_edge_temperature": _gauge(Metric.TEMPERATURE, choice=1),
    "gpu_memory_temperature": _gauge(Metric.MEMORY_TEMPERATURE),
    "gpu_gfx_activity": _gauge(Metric.UTILISATION),
    "pcie_replay_count": _counter(Metric.PCIE_REPLAYS),
}

_AMD_CLOCKS = {
    "GPU_CLOCK_TYPE_SYSTEM": Metric.SM_CLOCK,
    "GPU_CLOCK_TYPE_MEMORY": Metric.MEMORY_CLOCK,
}

# Metrics of tools that give averages, never single steps.
XPU_TIMER = "XPU_TIMER_"
NCCL_INSPECTOR = re.compile(
    r"nccl_(?:p2p_)?(?:bus_bandwidth_gbs|algorithm_bandwidth_gbs|exec_time_microseconds)"
    r"|nccl_collective_exec_time_microseconds|nccl_(?:collectives|p2p)_(?:dropped_)?total"
)

# Any of these in a text says that it comes from an exporter that is known here.
KNOWN = re.compile(
    r"DCGM_FI_(?:DEV|PROF)_[A-Z]|XPU_TIMER_[A-Z]|\bnccl_(?:p2p_)?(?:bus_bandwidth|collective_exec|exec_time)"
    r"|\b(?:amd_)?gpu_(?:package_power|gfx_activity|junction_temperature|clock)\b"
)


def meaning_of(name: str, labels: Mapping[str, str]) -> Meaning | None:
    """What a series holds; None for what is not known here, or not certain."""
    if name.startswith("DCGM_FI_"):
        return _DCGM.get(name.removeprefix("DCGM_FI_"))
    # Both are common words; the exporter names the GPU by this label.
    if "gpu_id" not in labels:
        return None
    plain = name.removeprefix("amd_")
    if plain == "gpu_clock":
        clock = _AMD_CLOCKS.get(labels.get("clock_type", ""))
        index = labels.get("clock_index", "0")
        choice = int(index) if index.isdecimal() and len(index) < 6 else 10**6
        return None if clock is None else _gauge(clock, choice=choice)
    return _AMD.get(plain)

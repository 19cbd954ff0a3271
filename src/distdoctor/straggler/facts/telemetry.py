"""What monitoring recorded of GPUs over time: clocks, power, temperature, throttling."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from distdoctor.report.model import GpuRef


class Metric(str, Enum):
    """What a series holds; the value names its unit."""

    SM_CLOCK = "SM clock, MHz"
    MEMORY_CLOCK = "memory clock, MHz"
    POWER = "power, W"
    POWER_LIMIT = "power limit, W"
    TEMPERATURE = "temperature, C"
    MEMORY_TEMPERATURE = "memory temperature, C"
    UTILISATION = "utilisation, %"
    SM_ACTIVE = "SM active, fraction"
    TENSOR_ACTIVE = "tensor cores active, fraction"
    DRAM_ACTIVE = "memory active, fraction"
    THROTTLE_REASONS = "clock throttle reasons, bit mask"
    POWER_VIOLATION = "held back by power, ns"
    THERMAL_VIOLATION = "held back by temperature, ns"
    PCIE_REPLAYS = "PCIe replays, count"
    NVLINK_ERRORS = "NVLink errors, count"
    XID = "last Xid"
    ROW_REMAP_FAILURE = "row remapping failed, flag"
    PCIE_RX = "PCIe received, bytes/s"
    PCIE_TX = "PCIe sent, bytes/s"
    NVLINK_RX = "NVLink received, bytes/s"
    NVLINK_TX = "NVLink sent, bytes/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeries:
    """One metric of one GPU; arrays have shape (samples,), times ascending."""

    metric: Metric
    gpu: GpuRef
    utc_s: NDArray[np.float64]
    values: NDArray[np.float64]
    pod: str | None = None
    job: str | None = None
    name: str | None = None
    """What the exporter calls it, where several of its counters are one metric here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """All series of one export."""

    source: str
    path: str
    series: tuple[GpuSeries, ...]

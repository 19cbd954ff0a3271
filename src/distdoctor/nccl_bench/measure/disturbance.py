"""How undisturbed this rank measures: switches against its will, load, and pressure on the host's processors."""

from __future__ import annotations

import os
import re
import resource
import time
from pathlib import Path

from distdoctor.nccl_bench.messages import Farewell

_PRESSURE = Path("/proc/pressure/cpu")
_TOTAL = re.compile(r"^some .*\btotal=(\d+)", re.MULTILINE)


class Disturbance:
    """Begins when it is made; `farewell` gives the difference since."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._switches = _involuntary_switches()
        self._pressure_us = _pressure_us()

    def farewell(self, rank: int, *, communicators_s: float, first_collective_s: float) -> Farewell:
        """What this rank saw of its host since the beginning."""
        seconds = max(time.monotonic() - self._began, 1e-3)
        pressure_us = _pressure_us()
        pressure = None
        if pressure_us is not None and self._pressure_us is not None:
            pressure = round(100 * (pressure_us - self._pressure_us) / 1e6 / seconds, 1)
        return Farewell(
            rank=rank,
            seconds=round(seconds, 3),
            involuntary_switches=_involuntary_switches() - self._switches,
            communicators_s=round(communicators_s, 3),
            first_collective_s=round(first_collective_s, 4),
            load_1min=round(os.getloadavg()[0], 2),
            num_cpus=os.cpu_count(),
            cpu_pressure_pct=pressure,
        )


def _involuntary_switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _pressure_us() -> int | None:
    """Microseconds in which some task waited for a CPU, since boot; None on kernels without PSI."""
    try:
        match = _TOTAL.search(_PRESSURE.read_text())
    except OSError:
        return None
    return int(match[1]) if match else None

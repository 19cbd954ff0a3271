"""Clocks, power and temperature of a rank's GPU, as a recording holds them between its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distdoctor.report.model import GpuRef
from distdoctor.straggler.facts.telemetry import GpuSeries, Metric, Telemetry
from distdoctor.straggler.readers.clock_values import parse_iso
from distdoctor.straggler.recording_format import EVENT_TELEMETRY

# Keys of a telemetry event.
_METRICS = {
    "sm_mhz": Metric.SM_CLOCK,
    "mem_mhz": Metric.MEMORY_CLOCK,
    "power_w": Metric.POWER,
    "power_limit_w": Metric.POWER_LIMIT,
    "temp_c": Metric.TEMPERATURE,
    "mem_temp_c": Metric.MEMORY_TEMPERATURE,
    "util_pct": Metric.UTILISATION,
    "throttle": Metric.THROTTLE_REASONS,
    "xid": Metric.XID,
}


def telemetry_of(
    path: str, parts: Sequence[tuple[Mapping[str, object], Sequence[Mapping[str, object]]]]
) -> list[Telemetry]:
    """The series of one recording: of each part its header and its events. Empty when it holds none."""
    samples: dict[Metric, list[tuple[float, float]]] = {}
    gpu = GpuRef()
    for header, events in parts:
        begun = parse_iso(str(header.get("started_utc") or ""))
        if begun is None:
            continue
        gpu = _gpu(header) or gpu
        for event in events:
            at_ms = event.get("at_ms")
            if event.get("event") != EVENT_TELEMETRY or not _is_number(at_ms):
                continue
            for key, metric in _METRICS.items():
                value = event.get(key)
                if _is_number(value):
                    moment = begun[0] + float(at_ms) / 1e3  # type: ignore[arg-type]  # it is a number
                    samples.setdefault(metric, []).append((moment, float(value)))  # type: ignore[arg-type]
    if not samples:
        return []
    series = []
    for metric, pairs in samples.items():
        array = np.array(sorted(pairs), dtype=np.float64)
        series.append(GpuSeries(metric=metric, gpu=gpu, utc_s=array[:, 0], values=array[:, 1]))
    return [Telemetry(source="distdoctor recordings", path=path, series=tuple(series))]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15


def _gpu(header: Mapping[str, object]) -> GpuRef | None:
    found = header.get("gpu")
    if not isinstance(found, dict):
        return None
    texts = {
        key: str(found[key])[:255] for key in ("uuid", "pci", "model") if isinstance(found.get(key), str)
    }
    index = found.get("index")
    host = header.get("host")
    return GpuRef(
        host=host[:255] if isinstance(host, str) else None,
        index=index if isinstance(index, int) and not isinstance(index, bool) and 0 <= index < 4096 else None,
        **texts,
    )

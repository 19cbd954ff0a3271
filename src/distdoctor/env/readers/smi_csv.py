"""`nvidia-smi --query-gpu=… --format=csv` as GPU facts. Without its header line nothing is known about columns."""

from __future__ import annotations

import re

from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import UNKNOWN_INDEX, GpuDevice, GpuFacts, NvmlState
from distdoctor.env.readers.smi_table import NOT_REPORTED
from distdoctor.env.readers.smi_values import CONVERT, FIELDS
from distdoctor.report.model import SkipCause

_UNIT = re.compile(r"\[[^\[\]]*\]\s*$")
_THROTTLE = {
    "hw_slowdown": "hw_slowdown", "hw_thermal_slowdown": "hw_thermal", "hw_power_brake_slowdown": "power_brake",
    "sw_power_cap": "sw_power_cap", "sw_thermal_slowdown": "sw_thermal", "gpu_idle": "idle",
    "applications_clocks_setting": "app_clocks", "sync_boost": "sync_boost",
}  # fmt: skip
_MIN_KNOWN_COLUMNS = 2


def has_csv(text: str) -> bool:
    """True when a line is a header of at least two columns that nvidia-smi knows."""
    return any(_columns(line) for line in text.split("\n"))


def read_csv(text: str, origin: str) -> GpuFacts:
    """GPUs of the (last) table, one a row. Values in brackets ("[N/A]", "[Unknown Error]") are None with a reason."""
    columns: list[str] = []
    driver: str | None = None
    devices: list[GpuDevice] = []
    for line in text.split("\n"):
        header = _columns(line)
        if header:
            columns, devices = header, []
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if not columns or len(cells) != len(columns):
            continue
        row = dict(zip(columns, cells, strict=True))
        if row.get("driver_version", "")[:1].isdigit():
            driver = row["driver_version"]
        device = _device(row, origin)
        if device is not None:
            devices.append(device)
    source = f"{origin}: nvidia-smi --query-gpu"
    return GpuFacts(
        nvml_state=NvmlState.OK if devices else None,
        driver_version=driver,
        devices=tuple(devices) or None,
        sources=dict.fromkeys(("driver_version", "devices"), source),
    )


def _columns(line: str) -> list[str]:
    if "," not in line:
        return []
    names = [_UNIT.sub("", name).strip().lower() for name in line.split(",")]
    known = sum(name in FIELDS or _is_throttle(name) for name in names)
    return names if known >= _MIN_KNOWN_COLUMNS and known >= len(names) / 2 else []


def _is_throttle(name: str) -> bool:
    return name.startswith(("clocks_throttle_reasons.", "clocks_event_reasons."))


def _device(row: dict[str, str], origin: str) -> GpuDevice | None:
    fields: dict[str, object] = {}
    unread: dict[str, Unread] = {}
    throttle: dict[str, bool] = {}
    for name, value in row.items():
        if _is_throttle(name):
            word = _THROTTLE.get(name.partition(".")[2])
            if word and value in ("Active", "Not Active"):
                throttle[word] = value == "Active"
            continue
        field = FIELDS.get("gpu_name" if name == "name" else name)
        if field is None or field in fields:
            continue
        _take(fields, unread, field, value)
    if throttle:
        fields["throttle_reasons"] = tuple(word for word, active in throttle.items() if active)
    index = fields.pop("index", UNKNOWN_INDEX)
    pages = [fields.pop(name, None) for name in ("_retired_single", "_retired_double")]
    known = [number for number in pages if isinstance(number, int)]
    if known:
        fields["retired_pages"] = sum(known)
    if not fields:
        return None
    source = f"{origin}: nvidia-smi --query-gpu"
    kept = {name: why for name, why in unread.items() if not name.startswith("_")}
    return GpuDevice(index=index, sources=dict.fromkeys(fields, source), unread=kept, **fields)  # type: ignore[arg-type]


def _take(fields: dict[str, object], unread: dict[str, Unread], field: str, value: str) -> None:
    word = value.strip("[]").lower()
    if word == "gpu is lost":
        fields["lost"], fields["lost_reason"] = True, value.strip("[]")
    elif word == "gpu requires reset":
        fields.setdefault("recovery_action", 1)
    elif word in ("unknown error", "err!"):
        unread[field] = Unread(cause=SkipCause.FAILED, reason=f"nvidia-smi prints `{value}` here")
    else:
        converted = CONVERT[field](value)
        if converted is None:
            unread[field] = NOT_REPORTED
        else:
            fields[field] = converted

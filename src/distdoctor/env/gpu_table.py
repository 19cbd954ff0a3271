"""The GPUs of one or more hosts as a table."""

from __future__ import annotations

from collections.abc import Mapping

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Column, Scalar, Table
from distdoctor.units import GIB

# More rows are of no use to a reader; the JSON facts hold all GPUs.
MAX_ROWS = 512


def make_gpu_table(hosts: Mapping[str, EnvFacts]) -> tuple[Table, ...]:
    """A table of one row a GPU; the host column only with several hosts. Empty without GPUs."""
    rows: list[tuple[Scalar, ...]] = []
    for host, facts in hosts.items():
        for device in (facts.gpus.devices or ()) if facts.gpus else ():
            row = _row(device)
            rows.append((host, *row) if len(hosts) > 1 else row)
    if not rows:
        return ()
    columns: tuple[Column, ...] = (
        Column(name="GPU", align="right"),
        Column(name="model"),
        Column(name="PCI"),
        Column(name="memory", unit="GiB", align="right"),
        Column(name="used", unit="GiB", align="right"),
        Column(name="power", unit="W", align="right"),
        Column(name="limit", unit="W", align="right"),
        Column(name="temp", unit="°C", align="right"),
        Column(name="SM clock", unit="MHz", align="right"),
        Column(name="PCIe"),
        Column(name="NVLinks", align="right"),
        Column(name="ECC uncorr.", align="right"),
    )
    if len(hosts) > 1:
        columns = (Column(name="host"), *columns)
    note = f"the first {MAX_ROWS} of {len(rows)} GPUs" if len(rows) > MAX_ROWS else None
    return (Table(name="gpus", title="GPUs", columns=columns, rows=tuple(rows[:MAX_ROWS]), note=note),)


def _row(device: GpuDevice) -> tuple[Scalar, ...]:
    links = device.nvlinks
    return (
        device.index,
        device.name if not device.lost else f"{device.name or 'unknown'} (lost)",
        device.pci,
        _gib(device.memory_total_bytes),
        _gib(device.memory_used_bytes),
        device.power_w,
        device.power_limit_w,
        device.temperature_c,
        device.sm_clock_mhz,
        _pcie(device),
        None if links is None else f"{sum(bool(link.active) for link in links)}/{len(links)}",
        device.ecc_uncorrected_volatile,
    )


def _gib(num_bytes: int | None) -> float | None:
    return None if num_bytes is None else round(num_bytes / GIB, 1)


def _pcie(device: GpuDevice) -> str | None:
    if device.pcie_width is None:
        return None
    most = f" of ×{device.pcie_width_max}" if device.pcie_width_max not in (None, device.pcie_width) else ""
    gen = f"gen {device.pcie_gen} " if device.pcie_gen is not None else ""
    return f"{gen}×{device.pcie_width}{most}"

"""The synthetic GPU snapshots of tests/env/gpu_snapshots; run as a script to write them anew."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, MigInstance, NvmlState
from distdoctor.report.model import SkipCause

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_builders import h100, hgx, links

FOLDER = Path(__file__).parent / "gpu_snapshots"


def without_nvml(state: NvmlState, error: str, **changes: Any) -> GpuFacts:
    """Eight H100 on the bus, and a driver that does not answer."""
    why = Unread(cause=SkipCause.FAILED, reason=f"NVML: {error}")
    unread = dict.fromkeys(("devices", "driver_version", "pair_links"), why)
    changes.setdefault("kernel_module_version", None)
    return hgx(
        nvml_state=state,
        nvml_error=error,
        devices=None,
        driver_version=None,
        cuda_driver_version=None,
        pair_links=(),
        unread=unread,
        **changes,
    )


def sliced(index: int) -> GpuDevice:
    """Seven slices; NVML gives neither NVLinks nor row remapping nor utilisation then."""
    why = Unread(cause=SkipCause.UNSUPPORTED, reason="NVML: Not Supported (3)")
    hidden = ("nvlinks", "remap_pending", "remap_failed", "utilisation_pct")
    return h100(
        index,
        mig_mode=True,
        mig_mode_pending=True,
        mig_instances=tuple(MigInstance(profile="1g.10gb", memory_total_bytes=10200547328) for _ in range(7)),
        unread=dict.fromkeys(hidden, why),
        **dict.fromkeys(hidden),
    )


SNAPSHOTS: dict[str, GpuFacts] = {
    "all-well": hgx(),
    "gpu-lost": hgx(
        GpuDevice(index=5, lost=True, lost_reason="GPU is lost (NVML 15 GPU_IS_LOST)", pci="00000000:C3:00.0")
    ),
    "library-mismatch": without_nvml(
        NvmlState.VERSION_MISMATCH,
        "RM has detected an NVML/RM version mismatch. (NVML 18 LIB_RM_VERSION_MISMATCH)",
        kernel_module_version="570.86.15",
        nvml_library_version="570.133.20",
    ),
    "driver-not-loaded": without_nvml(
        NvmlState.DRIVER_NOT_LOADED,
        "Driver Not Loaded (NVML 9 DRIVER_NOT_LOADED)",
        num_device_nodes=0,
        num_proc_gpus=None,
        pci_drivers={},
        num_nvswitches=0,
        fabric_manager="inactive",
    ),
    "mig": hgx(sliced(0)),
    "throttled": hgx(
        h100(
            6,
            utilisation_pct=100,
            power_w=310.0,
            sm_clock_mhz=975,
            temperature_c=74,
            temperature_margin_c=13,
            throttle_reasons=("hw_slowdown", "power_brake"),
        )
    ),
    "row-remap-pending": hgx(
        h100(2, remap_pending=True, remapped_uncorrectable=1, ecc_uncorrected_aggregate=1)
    ),
    "ecc-contained": hgx(
        h100(3, ecc_uncorrected_volatile=1, ecc_uncorrected_aggregate=1, remapped_uncorrectable=1)
    ),
    "ecc-uncontained": hgx(h100(3, ecc_uncorrected_volatile=2, ecc_uncorrected_aggregate=2)),
    "pcie-x8": hgx(h100(4, pcie_width=8)),
    "nvlink-down": hgx(h100(1, nvlinks=links(down=(11,)))),
    "power-limits-mixed": hgx(h100(7, power_limit_w=400.0)),
}


def as_json(facts: GpuFacts) -> str:
    """One snapshot's file: a line for each GPU, without what has its default."""
    known = _lean(msgspec.to_builtins(facts))
    devices = [json.dumps(device) for device in known.pop("devices", [])]
    head = {
        "provenance": "synthetic",
        "machine": "8 × H100 SXM as NVML's documentation has it",
        "facts": known,
    }
    text = json.dumps(head, indent=1, ensure_ascii=False)
    if devices:
        lines = ",\n   ".join(devices)
        text = text.removesuffix("\n }\n}") + f',\n  "devices": [\n   {lines}\n  ]\n }}\n}}'
    return text + "\n"


def _lean(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lean(each) for name, each in value.items() if each is not None and each != {}}
    return [_lean(each) for each in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    for name, facts in SNAPSHOTS.items():
        (FOLDER / f"{name}.json").write_text(as_json(facts))

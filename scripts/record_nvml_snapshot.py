#!/usr/bin/env python3
"""Write what NVML says on this machine as a snapshot for tests: `record_nvml_snapshot.py FILE [--timeout S]`.

Serial numbers, UUIDs and processes are replaced; model, driver, PCI addresses and all readings stay. The file
has the form of those in tests/env/gpu_snapshots, with `"provenance": "recorded"`. Refuses to overwrite.
Prints one line: how many GPUs, and the fields that were not read on the first one.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import sys
from pathlib import Path

import msgspec

from distdoctor.env.collect.gpu import collect_gpus
from distdoctor.env.collect.world import this_world
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts


def main() -> int:
    """Record, and say what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--timeout", type=float, default=60.0, help="limit for NVML in seconds")
    options = parser.parse_args()
    facts = collect_gpus(this_world(), timeout_s=options.timeout)
    with options.file.open("x", encoding="utf-8") as stream:
        json.dump(snapshot(facts), stream, indent=1)
        stream.write("\n")
    devices = facts.devices or ()
    unread = ", ".join(sorted(devices[0].unread)) if devices else "everything"
    print(
        f"{options.file}: NVML {facts.nvml_state and facts.nvml_state.value}, {len(devices)} GPUs; not read: {unread}"
    )
    return 0 if devices else 3


def snapshot(facts: GpuFacts) -> dict[str, object]:
    """The file's content."""
    devices = facts.devices or ()
    machine = f"{len(devices)} × {devices[0].name}" if devices else "no GPU"
    return {
        "provenance": "recorded",
        "machine": f"{machine}, driver {facts.driver_version}",
        "recorded": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "facts": msgspec.to_builtins(without_identity(facts)),
    }


def without_identity(facts: GpuFacts) -> GpuFacts:
    """Without what names this very machine or its users."""
    devices = None if facts.devices is None else tuple(_anonymous(device) for device in facts.devices)
    visible = facts.cuda_visible_devices
    if visible is not None and not all(part.strip().isdigit() for part in visible.split(",") if part.strip()):
        visible = "(UUIDs)"
    return dataclasses.replace(facts, devices=devices, cuda_visible_devices=visible)


def _anonymous(device: GpuDevice) -> GpuDevice:
    slices = tuple(dataclasses.replace(each, uuid=None) for each in device.mig_instances)
    processes = device.processes
    if processes is not None:
        processes = tuple(
            dataclasses.replace(process, pid=number, name=None)
            for number, process in enumerate(processes, start=1)
        )
    return dataclasses.replace(
        device,
        uuid=None if device.uuid is None else f"GPU-00000000-0000-0000-0000-{device.index:012d}",
        serial=None if device.serial is None else f"serial-{device.index}",
        mig_instances=slices,
        processes=processes,
    )


if __name__ == "__main__":
    sys.exit(main())

"""Asks NVML everything, in a process of its own: NVML can hang, and it can crash.

Prints JSON lines as it goes, so that the parent knows what had been answered when a call hung:
`{"asking": …}` before each GPU, then `{"system": …}`, `{"device": …}`, `{"pairs": …}`, `{"state": …}`, and
`{"done": true}` last. Imports the standard library and `distdoctor.nvml` only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from distdoctor import nvml
from distdoctor.nvml import BindingError, Gpu, Nvml, NvmlCallError

# More processes, links or pairs than this are not listed; a host has fewer.
MAX_PROCESSES = 256
MAX_GPUS = 64

Emit = Callable[[dict[str, Any]], None]


class DeviceRecord:
    """Fields of one GPU and, for those without a value, NVML's code and words."""

    def __init__(self, index: int) -> None:
        self.fields: dict[str, Any] = {"index": index, "lost": False}
        self.errors: dict[str, tuple[int, str]] = {}

    def take(self, names: str, read: Callable[[], Any]) -> Any:  # Any: JSON values of many types
        """The value of `read` as field `names`; several names (by space) share a tuple."""
        fields = names.split()
        if self.fields["lost"]:
            return None
        try:
            value = read()
        except NvmlCallError as error:
            self._fail(fields, error.code, error.text)
            return None
        except Exception as error:  # foreign code: one field must not cost the others
            self._fail(fields, 0, f"{type(error).__name__}: {error}")
            return None
        self.fields.update(zip(fields, value if len(fields) > 1 else (value,), strict=True))
        return value

    def miss(self, name: str, code: int, text: str) -> None:
        """Field `name` has no value after all."""
        self.fields.pop(name, None)
        self.errors[name] = (code, text)

    def lose(self, error: NvmlCallError) -> None:
        """The GPU cannot be reached; nothing more is asked."""
        self.fields["lost"] = True
        self.fields["lost_reason"] = str(error)

    def _fail(self, fields: list[str], code: int, text: str) -> None:
        if code in nvml.LOST_CODES:
            self.lose(NvmlCallError(code, text))
        for field in fields:
            self.errors[field] = (code, text)


def main() -> None:
    """Print what NVML says as JSON lines on standard output."""
    # The library must not write among our lines.
    out = os.dup(1)
    os.dup2(2, 1)

    def emit(line: dict[str, Any]) -> None:
        os.write(out, (json.dumps(line) + "\n").encode())

    try:
        with nvml.open_nvml() as library:
            ask_all(library, emit)
    except BindingError as error:
        emit({"binding": str(error)})
    except NvmlCallError as error:
        emit({"state": error.code, "error": str(error)})
        emit({"forbidden_nodes": count_forbidden(device_nodes("/dev"))})
    emit({"done": True})


def ask_all(library: Nvml, emit: Emit) -> None:
    """The driver, each GPU, then pairs of GPUs."""
    emit({"state": 0, "system": _system(library)})
    gpus: dict[int, Gpu] = {}
    peers: dict[int, list[str]] = {}
    for index in range(min(library.num_gpus(), MAX_GPUS)):
        emit({"asking": f"GPU {index}"})
        record = DeviceRecord(index)
        try:
            gpu = library.gpu(index)
        except NvmlCallError as error:
            record.lose(error)
        else:
            _device(library, gpu, record)
            if not record.fields["lost"]:
                gpus[index] = gpu
                peers[index] = record.fields.pop("nvlink_peers", [])
        emit({"device": record.fields, "errors": record.errors})
    emit({"asking": "pairs of GPUs"})
    emit({"pairs": _pairs(gpus, peers)})
    # Opened while NVML holds the GPUs: without persistence mode the first opening wakes a GPU, which takes seconds.
    nodes = device_nodes("/dev")
    if len(nodes) > len(gpus):
        emit({"forbidden_nodes": count_forbidden(nodes)})


def _system(library: Nvml) -> dict[str, Any]:
    answers: dict[str, Any] = {"shadowed": library.shadowed}
    for name, read in (
        ("driver_version", library.driver_version),
        ("cuda_driver_version", library.cuda_driver_version),
    ):
        try:
            answers[name] = read()
        except NvmlCallError as error:
            answers[f"{name}_error"] = [error.code, error.text]
    return answers


def _device(library: Nvml, gpu: Gpu, record: DeviceRecord) -> None:
    _identity(gpu, record)
    _load(gpu, record)
    _settings(gpu, record)
    _memory_health(gpu, record)
    _pcie(gpu, record)
    record.take("nvlinks nvlink_peers", partial(_nvlinks, gpu))
    if not record.fields.get("nvlinks") and record.fields.get("mig_mode"):
        record.miss("nvlinks", nvml.NOT_SUPPORTED, "NVLinks are not reported while MIG is on")
    record.take("fabric_state fabric_status fabric_health fabric_clique", lambda: _fabric(gpu))
    record.take("processes", lambda: _processes(library, gpu))


def _identity(gpu: Gpu, record: DeviceRecord) -> None:
    record.take("pci", gpu.pci)
    record.take("name", gpu.name)
    record.take("uuid", gpu.uuid)
    record.take("serial", gpu.serial)
    record.take("vbios", gpu.vbios)
    record.take("compute_capability", gpu.compute_capability)
    record.take("inforom_valid", gpu.inforom_valid)
    record.take("display_active", gpu.display_active)


def _load(gpu: Gpu, record: DeviceRecord) -> None:
    record.take("memory_total_bytes memory_used_bytes memory_free_bytes", gpu.memory_bytes)
    record.take("utilisation_pct", gpu.utilisation_pct)
    record.take("temperature_c", gpu.temperature_c)
    record.take("temperature_slowdown_c", lambda: gpu.temperature_threshold_c(1))
    record.take("temperature_margin_c", gpu.temperature_margin_c)
    record.take("memory_temperature_c", lambda: gpu.field(nvml.FIELD_MEMORY_TEMPERATURE))
    record.take("memory_temperature_max_c", lambda: gpu.temperature_threshold_c(2))
    record.take("power_w", gpu.power_w)
    record.take("sm_clock_mhz", gpu.sm_clock_mhz)
    record.take("throttle_reasons", gpu.throttle_reasons)


def _settings(gpu: Gpu, record: DeviceRecord) -> None:
    record.take("power_limit_w", gpu.power_limit_w)
    record.take("power_limit_default_w", gpu.power_limit_default_w)
    record.take("power_limit_max_w", gpu.power_limit_max_w)
    record.take("sm_clock_max_mhz", gpu.sm_clock_max_mhz)
    record.take("application_clock_mhz", gpu.application_clock_mhz)
    record.take("persistence_mode", gpu.persistence_mode)
    record.take("compute_mode", gpu.compute_mode)
    mig = record.take("mig_mode mig_mode_pending", gpu.mig_mode)
    if mig is not None and mig[0]:
        record.take("mig_instances", lambda: [_mig_instance(each) for each in gpu.mig_gpus()])


def _memory_health(gpu: Gpu, record: DeviceRecord) -> None:
    record.take("ecc_mode ecc_mode_pending", gpu.ecc_mode)
    record.take("ecc_uncorrected_volatile", lambda: gpu.ecc_errors(uncorrected=True, aggregate=False))
    record.take("ecc_corrected_volatile", lambda: gpu.ecc_errors(uncorrected=False, aggregate=False))
    record.take("ecc_uncorrected_aggregate", lambda: gpu.ecc_errors(uncorrected=True, aggregate=True))
    record.take("sram_threshold_exceeded", gpu.sram_threshold_exceeded)
    record.take("unrepairable_memory", gpu.unrepairable_memory)
    record.take("remapped_correctable remapped_uncorrectable remap_pending remap_failed", gpu.remapped_rows)
    record.take("remap_banks_without_spare", gpu.banks_without_spare)
    record.take("retired_pages", gpu.retired_pages)
    record.take("retired_pages_pending", gpu.retired_pages_pending)
    record.take("recovery_action", gpu.recovery_action)


def _pcie(gpu: Gpu, record: DeviceRecord) -> None:
    record.take("pcie_width", gpu.pcie_width)
    record.take("pcie_width_max", gpu.pcie_width_max)
    record.take("pcie_gen", gpu.pcie_gen)
    record.take("pcie_gen_max", gpu.pcie_gen_max)
    record.take("pcie_replays", gpu.pcie_replays)


def _mig_instance(gpu: Gpu) -> dict[str, Any]:
    record = DeviceRecord(0)
    name = record.take("name", gpu.name) or ""
    return {
        # "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
        "profile": name.rpartition("MIG ")[2] or "unknown",
        "uuid": record.take("uuid", gpu.uuid),
        "memory_total_bytes": (record.take("total used free", gpu.memory_bytes) or (None,))[0],
    }


def _nvlinks(gpu: Gpu) -> tuple[list[dict[str, Any]], list[str]]:
    """All links, and the other end's PCI address (or "switch") of each active one."""
    links, peers = [], []
    for link in range(nvml.MAX_NVLINKS):
        try:
            active = gpu.nvlink_active(link)
        except NvmlCallError as error:
            if error.code == nvml.NOT_SUPPORTED:
                continue
            # The first index past the last link.
            if error.code == nvml.INVALID_ARGUMENT:
                break
            raise
        record = DeviceRecord(link)
        if active:
            record.take("speed_gbps", partial(gpu.nvlink_speed_gbps, link))
            record.take("peer", partial(gpu.nvlink_peer, link))
        for name, counter, field in (
            ("replay_errors", 0, nvml.FIELD_NVLINK_ERROR_REPLAY),
            ("recovery_errors", 1, nvml.FIELD_NVLINK_ERROR_RECOVERY),
            ("crc_errors", 2, nvml.FIELD_NVLINK_ERROR_CRC),
        ):
            record.take(name, partial(gpu.nvlink_errors, link, counter, field))
        if "peer" in record.fields:
            peers.append(record.fields["peer"])
        kept = ("speed_gbps", "replay_errors", "recovery_errors", "crc_errors")
        links.append({"link": link, "active": active, **{name: record.fields.get(name) for name in kept}})
    return links, peers


def _fabric(gpu: Gpu) -> tuple[int, int, int | None, str | None]:
    fabric = gpu.fabric()
    return fabric.state, fabric.status, fabric.health, fabric.clique


def _processes(library: Nvml, gpu: Gpu) -> list[dict[str, Any]]:
    found = []
    for pid, used_bytes in gpu.processes()[:MAX_PROCESSES]:
        record = DeviceRecord(0)
        name = record.take("name", partial(library.process_name, pid))
        found.append({"pid": pid, "name": name, "used_bytes": used_bytes})
    return found


def _pairs(gpus: dict[int, Gpu], peers: dict[int, list[str]]) -> list[dict[str, Any]]:
    """Every pair once: NVLinks between them if there are any, else how PCIe joins them; and the P2P status."""
    addresses: dict[int, str | None] = {}
    for index, gpu in gpus.items():
        record = DeviceRecord(index)
        addresses[index] = record.take("pci", gpu.pci)
    pairs = []
    for first, gpu in gpus.items():
        for second, other in gpus.items():
            if second <= first:
                continue
            record = DeviceRecord(0)
            kind = record.take("kind", partial(gpu.topology_kind, other))
            links = count_pair_links(peers[first], peers[second], addresses[second])
            read = record.take("p2p_read", partial(gpu.p2p_read_status, other))
            kind = f"NV{links}" if links else kind
            if kind is not None:
                pairs.append({"a": f"GPU{first}", "b": f"GPU{second}", "kind": kind, "p2p_read": read})
    return pairs


def count_pair_links(peers: list[str], other_peers: list[str], other_pci: str | None) -> int:
    """NVLinks that join two GPUs: direct ones, or through switches the smaller number of switch links."""
    direct = sum(peer == other_pci for peer in peers)
    return direct or min(peers.count("switch"), other_peers.count("switch"))


def device_nodes(folder: str) -> list[str]:
    """Paths of the GPUs' device files: /dev/nvidia0, /dev/nvidia1, …"""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are wanted
    except OSError:
        return []
    return [f"{folder}/{name}" for name in names if name.startswith("nvidia") and name[6:].isdigit()]


def count_forbidden(nodes: list[str]) -> int:
    """Device files that exist but may not be opened, by a device cgroup (EPERM) or file mode (EACCES).

    NVML opens the same files. A lost GPU gives EIO or ENXIO here, which is not counted.
    """
    forbidden = 0
    for node in nodes:
        try:
            os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC))
        except PermissionError:
            forbidden += 1
        except OSError:
            continue
    return forbidden


if __name__ == "__main__":
    main()

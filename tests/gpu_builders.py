"""GPUs as NVML shows them on machines that are well; a test changes what is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, NvLink, NvmlState, PairLink
from distdoctor.env.facts.host import ContainerFacts
from distdoctor.units import MIB

BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)


def links(count: int = 18, *, down: tuple[int, ...] = (), speed_gbps: float = 26.562) -> tuple[NvLink, ...]:
    """NVLinks, all up but those in `down`."""
    return tuple(
        NvLink(
            link=link,
            active=link not in down,
            speed_gbps=None if link in down else speed_gbps,
            replay_errors=0,
            recovery_errors=0,
            crc_errors=0,
        )
        for link in range(count)
    )


def h100(index: int = 0, **changes: Any) -> GpuDevice:
    """One of eight H100 SXM, idle and well."""
    device = GpuDevice(
        index=index,
        lost=False,
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-00000000-0000-0000-0000-{index:012d}",
        serial=f"serial-{index}",
        pci=f"00000000:{BUSES[index]:02X}:00.0",
        numa_node=index // 4,
        compute_capability=(9, 0),
        memory_total_bytes=81559 * MIB,
        memory_used_bytes=1 * MIB,
        memory_free_bytes=80900 * MIB,
        utilisation_pct=0,
        temperature_c=28 + index,
        temperature_margin_c=58 - index,
        memory_temperature_c=40,
        memory_temperature_max_c=95,
        power_w=72.0 + index,
        power_limit_w=700.0,
        power_limit_default_w=700.0,
        power_limit_max_w=700.0,
        sm_clock_mhz=345,
        sm_clock_max_mhz=1980,
        application_clock_mhz=1980,
        throttle_reasons=("idle",),
        persistence_mode=True,
        compute_mode="default",
        mig_mode=False,
        mig_mode_pending=False,
        ecc_mode=True,
        ecc_mode_pending=True,
        ecc_uncorrected_volatile=0,
        ecc_corrected_volatile=0,
        ecc_uncorrected_aggregate=0,
        sram_threshold_exceeded=False,
        unrepairable_memory=False,
        remapped_correctable=0,
        remapped_uncorrectable=0,
        remap_pending=False,
        remap_failed=False,
        remap_banks_without_spare=0,
        recovery_action=0,
        pcie_width=16,
        pcie_width_max=16,
        pcie_gen=5,
        pcie_gen_max=5,
        pcie_replays=0,
        nvlinks=links(),
        fabric_state=3,
        fabric_status=0,
        fabric_health=1,
        inforom_valid=True,
        vbios="96.00.89.00.01",
        display_active=False,
        processes=(),
    )
    return dataclasses.replace(device, **changes)


def pairs(count: int, kind: str = "NV18", p2p_read: str | None = "ok") -> tuple[PairLink, ...]:
    """Every pair of `count` GPUs, joined alike."""
    return tuple(
        PairLink(a=f"GPU{a}", b=f"GPU{b}", kind=kind, p2p_read=p2p_read)
        for a in range(count)
        for b in range(a + 1, count)
    )


def host_gpus(*devices: GpuDevice, **changes: Any) -> GpuFacts:
    """The GPU section of a host whose driver is well."""
    addresses = tuple(f"0000:{bus:02x}:00.0" for bus in BUSES[: len(devices)])
    facts = GpuFacts(
        nvml_state=NvmlState.OK,
        nvml_library_version="570.86.15",
        driver_version="570.86.15",
        kernel_module_version="570.86.15",
        kernel_module_open=True,
        cuda_driver_version="12.8",
        num_pci_gpus=len(devices),
        num_device_nodes=len(devices),
        num_proc_gpus=len(devices),
        pci_gpus=addresses,
        pci_drivers=dict.fromkeys(addresses, "nvidia"),
        devices=devices,
        pair_links=pairs(len(devices)),
        fabric_manager="active",
        fabric_manager_version="570.86.15",
        num_nvswitches=4 if devices else 0,
        num_imex_channels=0,
        persistenced_running=True,
        pynvml_shadowed=False,
    )
    return dataclasses.replace(facts, **changes)


def hgx(*changed: GpuDevice, **changes: Any) -> GpuFacts:
    """Eight H100; `changed` take the place of those with their index."""
    by_index = {device.index: device for device in changed}
    return host_gpus(*(by_index.get(index, h100(index)) for index in range(8)), **changes)


def env(gpus: GpuFacts | None, **sections: Any) -> EnvFacts:
    """This machine, bare metal unless another container is given."""
    sections.setdefault("container", ContainerFacts(kind="none"))
    return EnvFacts(host_name="host-a", gpus=gpus, **sections)


def pasted(*devices: GpuDevice, **changes: Any) -> EnvFacts:
    """Facts read from a text: only what the test gives is known."""
    return EnvFacts(origin="ticket.txt", gpus=GpuFacts(devices=devices or None, **changes))

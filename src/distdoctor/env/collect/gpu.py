"""All facts about the GPUs of this host: NVML in a child process, and what files say when NVML cannot."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from distdoctor.env.collect.driver_library import find_driver_library
from distdoctor.env.collect.gpu_files import (
    read_device_nodes,
    read_kernel_module,
    read_numa,
    read_pci_gpus,
)
from distdoctor.env.collect.gpu_services import read_fabric_manager, read_imex, read_persistenced
from distdoctor.env.collect.nvml_process import NvmlAnswers, ask_nvml
from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, NvmlState
from distdoctor.report.model import SkipCause

# GPUs of one NVLink domain over several hosts.
MULTI_HOST_NVLINK_MODELS = ("GB200", "GB300")

_SERVICE_TIMEOUT_S = 5.0


def collect_gpus(world: World, *, timeout_s: float) -> GpuFacts:
    """The GPUs of this host and their driver. No CUDA context is made.

    timeout_s bounds the NVML child; a child that hangs leaves `nvml_state` HUNG and what /proc, /sys and /dev
    say. Tools beside it have a limit of 5 s each.
    """
    reading = Reading()
    read_pci_gpus(world, reading)
    read_device_nodes(world, reading)
    read_kernel_module(world, reading)
    _read_libraries(world, reading)
    if "CUDA_VISIBLE_DEVICES" in world.environ:
        reading.put("cuda_visible_devices", "environment", world.environ["CUDA_VISIBLE_DEVICES"])
    devices = _read_nvml(world, reading, timeout_s)
    _read_services(world, reading, devices, min(timeout_s, _SERVICE_TIMEOUT_S))
    return GpuFacts(**reading.fields())


def _read_libraries(world: World, reading: Reading) -> None:
    nvml = find_driver_library(world, "libnvidia-ml.so.1")
    if nvml is None:
        reading.miss("nvml_library_version", SkipCause.ABSENT, "there is no libnvidia-ml.so.1")
    else:
        reading.put("nvml_library_version", nvml.real_path, nvml.version)
    cuda = find_driver_library(world, "libcuda.so.1")
    if cuda is None:
        reading.miss("libcuda_path", SkipCause.ABSENT, "there is no libcuda.so.1")
    else:
        reading.put("libcuda_path", cuda.path, cuda.real_path)
        reading.put("libcuda_version", cuda.real_path, cuda.version)


def _read_nvml(world: World, reading: Reading, timeout_s: float) -> tuple[GpuDevice, ...]:
    amd = tuple(
        GpuDevice(index=index, vendor="amd", pci=address)
        for index, address in enumerate(reading.get("amd_pci_gpus") or ())
    )
    if not _any_trace(world, reading):
        reading.put("nvml_state", "no libnvidia-ml.so.1, no NVIDIA device", NvmlState.NO_LIBRARY)
        reading.put("devices", "/sys, /dev", tuple(_with_numa(world, device) for device in amd))
        return ()
    answers = ask_nvml(_child_environ(world), timeout_s=timeout_s)
    _put_answers(reading, answers)
    devices = tuple(_with_numa(world, device) for device in answers.devices or ())
    if answers.devices is not None:
        reading.put("devices", "NVML", (*devices, *amd))
    return devices


def _any_trace(world: World, reading: Reading) -> bool:
    """Anything that makes NVML worth asking. /dev/dxg: WSL, where the GPU is not on the PCI bus."""
    return bool(
        "nvml_library_version" in reading.fields()["sources"]
        or reading.get("num_pci_gpus")
        or reading.get("num_device_nodes")
        or reading.get("kernel_module_version")
        or world.exists("/dev/dxg")
    )


def _child_environ(world: World) -> Mapping[str, str]:
    """The variables of the process asked about when it is ours; another's must not choose our libraries."""
    return world.environ if world.pid == "self" else os.environ


def _put_answers(reading: Reading, answers: NvmlAnswers) -> None:
    for name, unread in answers.unread.items():
        reading.miss(name, unread.cause, unread.reason, unread.how)
    if answers.state is not NvmlState.NOT_ASKED:
        reading.put("nvml_state", "nvmlInit", answers.state)
    if answers.error is not None:
        reading.put("nvml_error", "nvmlInit", answers.error)
    if answers.shadowed is not None:
        reading.put("pynvml_shadowed", "import pynvml", answers.shadowed)
    for name in ("driver_version", "cuda_driver_version"):
        if name in answers.system:
            reading.put(name, "NVML", answers.system[name])
    if answers.pair_links:
        reading.put("pair_links", "NVML", answers.pair_links)
    if answers.num_forbidden_nodes is not None:
        reading.put("num_forbidden_nodes", "open(/dev/nvidia*)", answers.num_forbidden_nodes)


def _with_numa(world: World, device: GpuDevice) -> GpuDevice:
    if device.pci is None:
        return device
    node, cpus = read_numa(world, device.pci)
    return dataclasses.replace(device, numa_node=node, local_cpus=cpus)


def _read_services(world: World, reading: Reading, devices: tuple[GpuDevice, ...], timeout_s: float) -> None:
    read_persistenced(world, reading)
    if devices or reading.get("num_pci_gpus") or reading.get("num_nvswitches"):
        read_fabric_manager(world, reading, timeout_s=timeout_s)
    if any(model in (device.name or "") for device in devices for model in MULTI_HOST_NVLINK_MODELS):
        read_imex(world, reading, timeout_s=timeout_s)

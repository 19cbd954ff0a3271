"""What a collect_env dump tells about GPUs, their driver, and the host."""

from __future__ import annotations

import re
from dataclasses import replace

from distdoctor.env.cpu_list import parse_cpu_list
from distdoctor.env.facts.base import Reading
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, MigInstance, NvmlState
from distdoctor.env.facts.host import HostFacts, NumaNode
from distdoctor.env.readers import collect_env_warnings
from distdoctor.env.readers.collect_env_dump import Dump
from distdoctor.report.model import SkipCause

_GPU = re.compile(
    r"^\s*(?:[-*]\s*)?GPU (?P<index>\d+): (?P<name>[^(\n]+?)\s*(?:\(UUID: (?P<uuid>[^)\s]+)\))?\s*$"
)
_MIG = re.compile(r"^\s*MIG (?P<profile>\S+)\s+Device\s+(?P<number>\d+):(?:\s*\(UUID: (?P<uuid>\S+)\))?")
_AMD = re.compile(r"^(?P<name>.*?)\s*\((?P<arch>gfx[0-9a-f]+[^)]*)\)\s*$")
_LSCPU = re.compile(r"^\s*(?P<key>[A-Z][\w ()/-]*?[\w)]):\s+(?P<value>\S.*)$")

_HOW = "run `python -m torch.utils.collect_env` again on the host, in the job's own environment"


def gpus_of(dump: Dump, origin: str) -> GpuFacts | None:
    """GPUs by their list, driver and toolkit; None when the dump shows neither."""
    if "gpus" not in dump.values and "driver" not in dump.values and "too old" not in dump.text:
        return None
    reading = Reading()
    driver = dump.value("driver")
    if driver:
        reading.put("driver_version", f"{origin}: Nvidia driver version", driver)
    else:
        reading.miss("driver_version", SkipCause.NOT_IN_EVIDENCE, "collect_env could not collect it", _HOW)
    toolkit = dump.value("toolkit")
    if toolkit:
        reading.put("toolkit_version", f"{origin}: CUDA runtime version", toolkit)
    cuda = collect_env_warnings.driver_cuda_version(dump.text)
    if cuda:
        reading.put("cuda_driver_version", f"{origin}: warning of torch.cuda", cuda)
    if collect_env_warnings.is_pynvml_shadowing(dump.text):
        reading.put("pynvml_shadowed", f"{origin}: warning", True)
    _put_devices(reading, dump, origin)
    return GpuFacts(**reading.fields())


def _put_devices(reading: Reading, dump: Dump, origin: str) -> None:
    source = f"{origin}: GPU models and configuration"
    first = dump.values.get("gpus", "")
    lines = [first, *dump.blocks.get("gpus", ())]
    amd = _AMD.match(first)
    if amd or (dump.value("hip_build") and dump.value("gpus")):
        name = amd["name"] if amd else first
        device = GpuDevice(index=0, vendor="amd", name=name, sources={"name": source})
        reading.put("devices", source, (device,))
        reading.put("source_note", source, "collect_env names one GPU on ROCm, however many there are")
        if amd:
            reading.put("extra", source, {"gpu.0.gfx": amd["arch"]})
        return
    devices = _devices(lines, source)
    if devices:
        devices = _with_capability(devices, dump.text, origin)
        reading.put("devices", source, devices)
        reading.put("nvml_state", source, NvmlState.OK)
        return
    collect = "nvidia-smi -L"
    if first.strip().lower() == "no cuda":
        reason = "collect_env says No CUDA: nvidia-smi, nvcc and torch showed none, which is no proof that there is none"
    else:
        reason = "collect_env could not collect the GPUs (nvidia-smi did not answer or is not there)"
    reading.miss("devices", SkipCause.NOT_IN_EVIDENCE, reason, f"run `{collect}` on the host")


def _devices(lines: list[str], source: str) -> tuple[GpuDevice, ...]:
    devices: list[GpuDevice] = []
    slices: dict[int, list[MigInstance]] = {}
    for line in lines:
        gpu = _GPU.match(line)
        mig = _MIG.match(line)
        if gpu and all(device.index != int(gpu["index"]) for device in devices):
            device = GpuDevice(
                index=int(gpu["index"]), name=gpu["name"], uuid=gpu["uuid"], sources={"name": source}
            )
            devices.append(device)
        elif mig and devices:
            instance = MigInstance(profile=mig["profile"], uuid=mig["uuid"])
            slices.setdefault(devices[-1].index, []).append(instance)
    return tuple(_with_mig(device, tuple(slices.get(device.index, ())), source) for device in devices)


def _with_capability(devices: tuple[GpuDevice, ...], text: str, origin: str) -> tuple[GpuDevice, ...]:
    """Compute capability of the GPUs that a warning of torch names."""
    by_name, by_index = collect_env_warnings.capabilities(text)
    known = {device.index: by_index.get(device.index) or by_name.get(device.name or "") for device in devices}
    return tuple(
        replace(
            device,
            compute_capability=known[device.index],
            sources={**device.sources, "compute_capability": f"{origin}: warning of torch.cuda"},
        )
        if known[device.index]
        else device
        for device in devices
    )


def _with_mig(device: GpuDevice, instances: tuple[MigInstance, ...], source: str) -> GpuDevice:
    if not instances:
        return device
    return replace(
        device, mig_mode=True, mig_instances=instances, sources={"name": source, "mig_mode": source}
    )


def host_of(dump: Dump, origin: str) -> HostFacts | None:
    """System, kernel and CPUs; None when the dump shows none of them."""
    reading = Reading()
    os_name = dump.value("os")
    if os_name:
        reading.put(
            "os_name", f"{origin}: OS", re.sub(r"\s*\((?:x86_64|aarch64|ppc64le|AMD64)\)$", "", os_name)
        )
        architecture = re.search(r"\((x86_64|aarch64|ppc64le|AMD64|arm64)\)$", os_name)
        if architecture:
            reading.put("architecture", f"{origin}: OS", architecture[1])
    platform = dump.value("platform")
    if platform:
        kernel = re.match(r"Linux-(?P<kernel>.+?)(?:-(?:x86_64|aarch64|ppc64le))?-with-", platform)
        if kernel:
            reading.put("kernel", f"{origin}: Python platform", kernel["kernel"])
        if re.search(r"microsoft", platform, re.IGNORECASE):
            reading.put("virtualisation", f"{origin}: Python platform", "wsl")
    _put_cpu(reading, dump, origin)
    return HostFacts(**reading.fields()) if os_name or platform or reading.get("num_cpus") else None


def _put_cpu(reading: Reading, dump: Dump, origin: str) -> None:
    """The lscpu block: `Model name:  …`, `NUMA node0 CPU(s):  0-31`."""
    source = f"{origin}: CPU"
    nodes: list[NumaNode] = []
    for line in dump.blocks.get("cpu", ()):
        match = _LSCPU.match(line)
        if match is None:
            continue
        key, value = match["key"].strip(), match["value"].strip()
        node = re.fullmatch(r"NUMA node(\d+) CPU\(s\)", key)
        if node:
            try:
                nodes.append(NumaNode(node=int(node[1]), cpus=parse_cpu_list(value)))
            except ValueError:  # a list that a copy cut
                continue
        elif key == "Model name" and reading.get("cpu_model") is None:
            reading.put("cpu_model", source, value)
        elif key in ("CPU(s)", "Socket(s)") and value.isdigit() and len(value) < 7:
            reading.put("num_cpus" if key == "CPU(s)" else "num_sockets", source, int(value))
        elif key == "Hypervisor vendor" and reading.get("virtualisation") is None:
            reading.put("virtualisation", source, value.lower())
    if nodes:
        reading.put("numa_nodes", source, tuple(nodes))

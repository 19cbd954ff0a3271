"""PyTorch's collect_env as text: every layout since 1.0, and vLLM's fork, as facts about one process.

Grammar: `env_info_fmt` of torch/utils/collect_env.py (read at 2.13.0; older ones print Yes/No, no ROCM line and
`[pip]`) and vllm/collect_env.py (sections between rules of `=`, a topology matrix and variables at the end).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from distdoctor.env.cpu_list import parse_cpu_list
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Reading
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, MigInstance, NvmlState
from distdoctor.env.facts.host import HostFacts, NumaNode
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.torch import ProbeState, PythonFacts, TorchFacts, TorchProbe
from distdoctor.env.readers import collect_env_warnings
from distdoctor.report.model import SkipCause

# Label as printed → our key. Older and newer layouts differ in which lines there are, not in their words.
_LABELS = {
    "PyTorch version": "torch",
    "Is debug build": "debug",
    "CUDA used to build PyTorch": "cuda_build",
    "ROCM used to build PyTorch": "hip_build",
    "XPU used to build PyTorch": "xpu_build",
    "OS": "os",
    "GCC version": "gcc",
    "Clang version": "clang",
    "CMake version": "cmake",
    "Libc version": "libc",
    "Python version": "python",
    "Python platform": "platform",
    "Is CUDA available": "cuda_available",
    "Is XPU available": "xpu_available",
    "CUDA runtime version": "toolkit",
    "CUDA_MODULE_LOADING set to": "module_loading",
    "GPU models and configuration": "gpus",
    "Nvidia driver version": "driver",
    "cuDNN version": "cudnn",
    "HIP runtime version": "hip_runtime",
    "MIOpen runtime version": "miopen",
    "Is XNNPACK available": "xnnpack",
    "Caching allocator config": "allocator",
    "Versions of relevant libraries": "libraries",
    "ROCM Version": "vllm_rocm",
    "vLLM Version": "vllm",
    "vLLM Build Flags": "vllm_flags",
    "GPU Topology": "topology",
}
_FIELD = re.compile(
    rf"^[\s|*-]*(?P<label>{'|'.join(map(re.escape, _LABELS))})\s*:\*{{0,2}}[ \t]*(?P<value>.*)$"
)
_START = re.compile(r"^[\s|*-]*(?:Collecting environment information|PyTorch version\s*:)", re.MULTILINE)
# vLLM prints the system before PyTorch.
_VLLM_START = re.compile(r"^\s*System Info\s*$", re.MULTILINE)
_PACKAGE = re.compile(
    r"^\s*\[(?:pip3?|conda)\]\s+(?P<name>[A-Za-z0-9][\w.-]*)(?:==|\s+)\(?(?P<version>[^\s@)]+)"
)
_PIP_LINE = re.compile(r"^\s*\[(?P<which>pip3?|conda)\]\s*(?P<rest>.*)$")
_GPU = re.compile(
    r"^\s*(?:[-*]\s*)?GPU (?P<index>\d+): (?P<name>[^(\n]+?)\s*(?:\(UUID: (?P<uuid>[^)\s]+)\))?\s*$"
)
_MIG = re.compile(r"^\s*MIG (?P<profile>\S+)\s+Device\s+(?P<number>\d+):(?:\s*\(UUID: (?P<uuid>\S+)\))?")
_AMD = re.compile(r"^(?P<name>.*?)\s*\((?P<arch>gfx[0-9a-f]+[^)]*)\)\s*$")
_LSCPU = re.compile(r"^\s*(?P<key>[A-Z][\w ()/-]*?[\w)]):\s+(?P<value>\S.*)$")
_NCCL_TUPLE = re.compile(r"nccl\.version\(\)\D{0,6}\(?\s*(\d+)\s*,\s*(\d+)(?:\s*,\s*(\d+))?")
_NCCL_ENV = re.compile(r"^\s*(?:export )?NCCL_VERSION=['\"]?(\d[\w.]*)", re.MULTILINE)
_TRACEBACK_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
_EXCEPTION = re.compile(
    r"^(?P<type>(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning)?)(?:: (?P<text>.*))?$"
)

# What collect_env prints where it has no value. "No CUDA": nvidia-smi, nvcc and the driver gave nothing, and torch
# saw no GPU.
_NO_VALUE = frozenset({"", "could not collect", "n/a", "none", "no cuda", "unknown", "[n/a]"})

_HOW = "run `python -m torch.utils.collect_env` again on the host, in the job's own environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dump:
    """One dump taken apart: single values by key, and the lines that follow a key."""

    values: Mapping[str, str]
    blocks: Mapping[str, tuple[str, ...]]
    text: str

    def value(self, key: str) -> str | None:
        """The value as printed, or None when it is not there or says that there is none."""
        raw = self.values.get(key)
        return None if raw is None or raw.strip().lower() in _NO_VALUE else raw.strip()


def sniff(text: str) -> bool:
    """True when a dump begins in `text`, or a traceback of collect_env or of `import torch` is in it."""
    return bool(_START.search(text)) or _crash(text.split("\n")) is not None


def read(text: str, origin: str) -> EnvFacts:
    """Facts of the first dump in `text`; never raises for any text. What a dump does not hold stays None."""
    dump = _take_apart(text)
    python = _python(dump, origin)
    nccl = _nccl(dump, python, origin)
    return EnvFacts(
        origin=origin,
        python=python,
        torch=_torch(dump, origin),
        torch_probe=_probe(dump, python, nccl, origin),
        nccl=nccl,
        gpus=_gpus(dump, origin),
        host=_host(dump, origin),
    )


def _take_apart(text: str) -> _Dump:
    """The fields from where the dump begins: issue templates ask for the same labels above it."""
    starts = [match.start() for match in (_START.search(text), _VLLM_START.search(text)) if match]
    values: dict[str, str] = {}
    blocks: dict[str, list[str]] = {}
    key = ""
    for line in text[min(starts, default=0) :].split("\n"):
        field = _FIELD.match(line)
        if field:
            key = _LABELS[field["label"]]
            # The first one counts: text below a dump may quote another.
            values.setdefault(key, field["value"].strip(" `"))
            blocks.setdefault(key, [])
        elif re.match(r"^\s*CPU(?::| Info)\s*$", line):
            key = "cpu"
            blocks.setdefault(key, [])
        elif key:
            blocks[key].append(line)
    return _Dump(values=values, blocks={name: tuple(lines) for name, lines in blocks.items()}, text=text)


def _torch(dump: _Dump, origin: str) -> TorchFacts | None:
    if "torch" not in dump.values:
        return _torch_of_crash(dump, origin)
    reading = Reading()
    version, cuda, hip = dump.value("torch"), dump.value("cuda_build"), dump.value("hip_build")
    cuda = cuda if cuda and cuda[0].isdigit() else None
    hip = hip if hip and hip[0].isdigit() else None
    if version is not None:
        reading.put("found", f"{origin}: PyTorch version", True)
        reading.put("version", f"{origin}: PyTorch version", version)
    else:
        reading.miss("version", SkipCause.FAILED, "collect_env could not import torch")
        if _torch_distributions(dump):
            reading.put("found", f"{origin}: pip list", True)
    reading.put("cuda_build", f"{origin}: CUDA used to build PyTorch", cuda)
    reading.put("hip_build", f"{origin}: ROCM used to build PyTorch", hip)
    if version is not None and "cuda_build" in dump.values:
        # None and "Could not collect" both stand for torch.version.cuda being None; on ROCm it is "N/A".
        other = any(suffix in version for suffix in ("+rocm", "+xpu")) or dump.value("xpu_build") is not None
        is_cpu = cuda is None and hip is None and not other
        reading.put("is_cpu_build", f"{origin}: CUDA used to build PyTorch", is_cpu)
    archs = collect_env_warnings.supported_archs(dump.text)
    if archs:
        reading.put("arch_list", f"{origin}: warning of torch.cuda", archs)
    versions = _torch_distributions(dump)
    if len(versions) > 1:
        reading.put("dist_versions", f"{origin}: pip and conda lists", versions)
    return TorchFacts(**reading.fields())


def _torch_of_crash(dump: _Dump, origin: str) -> TorchFacts | None:
    """What a traceback of collect_env itself tells: only the ROCm branch asks for the HIP runtime."""
    if "hip_runtime_version" not in dump.text and "'HIP Runtime'" not in dump.text:
        return None
    return TorchFacts(
        found=True, is_cpu_build=False, sources={"found": f"{origin}: traceback of collect_env"}
    )


def _torch_distributions(dump: _Dump) -> tuple[str, ...]:
    """Versions that pip itself lists for torch, when it lists it twice; conda and pip may both name the same one."""
    found: list[str] = []
    for line in dump.text.split("\n"):
        match = _PACKAGE.match(line)
        if (
            match
            and match["name"] == "torch"
            and line.lstrip().startswith("[pip")
            and match["version"] not in found
        ):
            found.append(match["version"])
    return tuple(found)


def _probe(dump: _Dump, python: PythonFacts | None, nccl: NcclFacts | None, origin: str) -> TorchProbe | None:
    reading = Reading()
    version = dump.value("torch")
    listed = python.distributions if python is not None else {}
    if version is not None:
        reading.put("state", f"{origin}: PyTorch version", ProbeState.OK)
        reading.put("torch_version", f"{origin}: PyTorch version", version)
    elif dump.values.get("torch", "").upper() == "N/A":
        _put_failed_import(reading, dump, listed, origin)
    _put_crash(reading, dump, origin)
    available = (dump.value("cuda_available") or "").lower()
    if available in ("true", "yes", "false", "no"):
        reading.put("cuda_available", f"{origin}: Is CUDA available", available in ("true", "yes"))
    error = collect_env_warnings.cuda_init_error(dump.text)
    if error is not None:
        reading.put("cuda_init_error", f"{origin}: warning of torch.cuda", error)
    archs = collect_env_warnings.supported_archs(dump.text)
    if archs:
        reading.put("arch_list", f"{origin}: warning of torch.cuda", archs)
    for name in ("cuda_build", "hip_build"):
        value = dump.value(name)
        if value and value[0].isdigit():
            reading.put(name, f"{origin}: used to build PyTorch", value)
    if nccl is not None and nccl.loaded_version is not None:
        reading.put("nccl_version", f"{origin}: torch.cuda.nccl.version()", nccl.loaded_version)
    probe = TorchProbe(**reading.fields())
    known = (probe.state, probe.error_type, probe.cuda_init_error, probe.arch_list, probe.nccl_version)
    return probe if any(known) or probe.cuda_available is not None else None


def _put_failed_import(reading: Reading, dump: _Dump, listed: Mapping[str, str], origin: str) -> None:
    """collect_env prints N/A for everything that it asks torch when `import torch` raised."""
    where = f"{origin}: PyTorch version: N/A"
    if "torch" in listed:
        reading.put("state", where, ProbeState.RAISED)
        reading.put("last_step", where, "import torch")
        reading.put(
            "error_text",
            where,
            "collect_env could not import torch, though the package list has it; it does not say why",
        )
    elif any(key in dump.text for key in ("[pip3] ", "[pip] ")) and listed:
        reading.put("state", where, ProbeState.NOT_FOUND)
    else:
        reading.miss(
            "state", SkipCause.NOT_IN_EVIDENCE, "torch could not be imported; the text does not say why",
            "run `python -c 'import torch'` and give its output",
        )  # fmt: skip


def _put_crash(reading: Reading, dump: _Dump, origin: str) -> None:
    """The traceback that ended collect_env, with the file and line it ended at; a user's own is not taken."""
    crash = _crash(dump.text.split("\n"))
    if crash is None or (dump.value("torch") is not None and "collect_env" not in crash[0]):
        return
    where, error_type, error_text, inside_collect_env = crash
    source = f"{origin}: traceback"
    reading.put("error_type", source, error_type)
    reading.put("error_text", source, error_text)
    reading.put("error_where", source, where)
    if dump.value("torch") is None:
        absent = "No module named 'torch'" in error_text
        reading.put("state", source, ProbeState.NOT_FOUND if absent else ProbeState.RAISED)
        reading.put("last_step", source, "collect_env" if inside_collect_env else "import torch")


def _crash(lines: list[str]) -> tuple[str, str, str, bool] | None:
    """(innermost frame, exception, its text, whether collect_env itself raised) of a relevant traceback."""
    frames: list[str] = []
    inside = False
    for line in lines:
        if line.startswith("Traceback (most recent call"):
            frames, inside = [], True
        elif inside and (frame := _TRACEBACK_FRAME.match(line)):
            frames.append(f"{frame['file']}:{frame['line']}")
        elif inside and line and not line[0].isspace():
            inside = False
            exception = _EXCEPTION.match(line)
            of_dump = any("collect_env" in frame for frame in frames)
            of_import = any(re.search(r"[/\\]torch[/\\]__init__\.py:", frame) for frame in frames)
            is_absent = bool(exception and "No module named 'torch'" in (exception["text"] or ""))
            if exception and frames and (of_dump or of_import or is_absent):
                return frames[-1], exception["type"], exception["text"] or "", "collect_env" in frames[-1]
    return None


def _python(dump: _Dump, origin: str) -> PythonFacts | None:
    reading = Reading()
    version = dump.value("python")
    if version:
        number = re.match(r"\d+(?:\.\d+)+\S*", version)
        reading.put("version", f"{origin}: Python version", number[0] if number else version)
    distributions: dict[str, str] = {}
    for line in dump.text.split("\n"):
        match = _PACKAGE.match(line)
        if match and not line.strip().lower().endswith(("could not collect", "no relevant packages")):
            distributions.setdefault(re.sub(r"[-_.]+", "-", match["name"]).lower(), match["version"])
    if distributions:
        reading.put("distributions", f"{origin}: versions of relevant libraries", distributions)
    if not version and not distributions:
        return None
    return PythonFacts(**reading.fields())


def _nccl(dump: _Dump, python: PythonFacts | None, origin: str) -> NcclFacts | None:
    reading = Reading()
    loaded = _NCCL_TUPLE.search(dump.text)
    if loaded:
        version = ".".join(part for part in loaded.groups() if part is not None)
        reading.put("loaded_version", f"{origin}: torch.cuda.nccl.version()", version)
    image = _NCCL_ENV.search(dump.text)
    if image:
        reading.put("image_version", f"{origin}: NCCL_VERSION", image[1])
    distributions = python.distributions if python is not None else {}
    wheels = [name for name in distributions if re.fullmatch(r"nvidia-nccl(-cu\d+)?", name)]
    if len(wheels) == 1:
        reading.put("expected_version", f"{origin}: {wheels[0]}", distributions[wheels[0]])
    return NcclFacts(**reading.fields()) if loaded or image or len(wheels) == 1 else None


def _gpus(dump: _Dump, origin: str) -> GpuFacts | None:
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


def _put_devices(reading: Reading, dump: _Dump, origin: str) -> None:
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


def _host(dump: _Dump, origin: str) -> HostFacts | None:
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


def _put_cpu(reading: Reading, dump: _Dump, origin: str) -> None:
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

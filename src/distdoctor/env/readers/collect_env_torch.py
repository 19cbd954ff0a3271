"""What a collect_env dump tells about Python, torch and NCCL."""

from __future__ import annotations

import re
from collections.abc import Mapping

from distdoctor.env.facts.base import Reading
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.torch import ProbeState, PythonFacts, TorchFacts, TorchProbe
from distdoctor.env.readers import collect_env_warnings
from distdoctor.env.readers.collect_env_dump import Dump, crash_in
from distdoctor.report.model import SkipCause

_PACKAGE = re.compile(
    r"^\s*\[(?:pip3?|conda)\]\s+(?P<name>[A-Za-z0-9][\w.-]*)(?:==|\s+)\(?(?P<version>[^\s@)]+)"
)
_NCCL_TUPLE = re.compile(r"nccl\.version\(\)\D{0,6}\(?\s*(\d+)\s*,\s*(\d+)(?:\s*,\s*(\d+))?")
_NCCL_ENV = re.compile(r"^[ \t]*(?:export )?NCCL_VERSION=['\"]?(\d[\w.]*)(?=[-\s'\"])", re.MULTILINE)


def torch_of(dump: Dump, origin: str) -> TorchFacts | None:
    """The build of torch; None when the dump does not reach its version."""
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


def _torch_of_crash(dump: Dump, origin: str) -> TorchFacts | None:
    """What a traceback of collect_env itself tells: only the ROCm branch asks for the HIP runtime."""
    if "hip_runtime_version" not in dump.text and "'HIP Runtime'" not in dump.text:
        return None
    return TorchFacts(
        found=True, is_cpu_build=False, sources={"found": f"{origin}: traceback of collect_env"}
    )


def _torch_distributions(dump: Dump) -> tuple[str, ...]:
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


def probe_of(
    dump: Dump, python: PythonFacts | None, nccl: NcclFacts | None, origin: str
) -> TorchProbe | None:
    """How the import of torch ended in the run of collect_env, and what CUDA said; None when nothing is known."""
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


def _put_failed_import(reading: Reading, dump: Dump, listed: Mapping[str, str], origin: str) -> None:
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


def _put_crash(reading: Reading, dump: Dump, origin: str) -> None:
    """The traceback that ended collect_env, with the file and line it ended at; a user's own is not taken."""
    crash = crash_in(dump.text.split("\n"))
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


def python_of(dump: Dump, origin: str) -> PythonFacts | None:
    """The interpreter's version and the packages of the pip and conda lists."""
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


def nccl_of(dump: Dump, python: PythonFacts | None, origin: str) -> NcclFacts | None:
    """NCCL as loaded (printed tuple), as the image says, and as the only NCCL wheel; None when none is there."""
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

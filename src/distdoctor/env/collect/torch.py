"""What the files of the installed torch say: version, CUDA, pins. Nothing is imported and nothing executed."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdoctor.env.collect.python import PACKAGE_FILES, list_folder
from distdoctor.env.collect.world import World
from distdoctor.env.distributions import Distribution, parse_folder_name
from distdoctor.env.facts.base import Reading
from distdoctor.env.facts.torch import PythonFacts, TorchFacts
from distdoctor.env.readers.requirements import Requirement, read_requirements
from distdoctor.report.model import SkipCause

# `cuda: Optional[str] = '12.8'` since 1.10, `cuda = '10.2'` before; `__version__ = '2.9.1+cu128'` always.
_ASSIGNMENT = re.compile(
    r"^(?P<name>\w+)\s*(?::[^=\n]+)?=\s*(?:(?P<none>None)|(['\"])(?P<text>[^'\"\n]*)\3)", re.MULTILINE
)

_LIBRARY = re.compile(
    r"lib(?:torch_cuda|torch_hip|torch_cpu|c10_cuda|c10_hip|nccl|rccl|cudart|cudnn|gomp|iomp5)[-.\w]*\.so[.\w]*"
)
_NATIVE = re.compile(r"_C(?:\.[\w-]+)?\.(?:so|pyd)")
_LEFTOVER = re.compile(r"~(?:orch|orch[-_.].*|vidia.*)", re.IGNORECASE)
_EDITABLE = re.compile(r"__editable__.*torch.*|torch\.egg-link", re.IGNORECASE)

# Expanded once, since it pins what torch up to 2.10 pinned itself.
_META_PACKAGE = "cuda-toolkit"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Installed:
    """One metadata folder of torch."""

    entry: str
    distribution: Distribution

    @property
    def path(self) -> str:
        return f"{self.entry}/{self.distribution.folder_name}"


def collect_torch(world: World, python: PythonFacts) -> TorchFacts:
    """Facts about the torch that `import torch` in `python` would take. Costs file listings and small reads."""
    reading = Reading()
    if not python.search_path:
        unread = python.unread.get("search_path")
        cause = unread.cause if unread else SkipCause.NOT_ASKED
        reason = unread.reason if unread else "the interpreter's search path is not known"
        for name in ("found", "version", "is_cpu_build"):
            reading.miss(name, cause, reason, unread.how if unread else None)
        return TorchFacts(**reading.fields())
    source = f"search path of {python.executable}"
    names = {entry: list_folder(world, entry) for entry in python.search_path}
    installed = _installed(world, names)
    _put_place(world, reading, python.search_path, source, installed)
    reading.put("dist_infos", source, tuple(each.path for each in installed))
    reading.put("dist_versions", source, tuple(each.distribution.version for each in installed))
    leftovers = [
        f"{entry}/{name}" for entry, each in names.items() for name in each if _LEFTOVER.fullmatch(name)
    ]
    reading.put("leftovers", source, tuple(leftovers[:8]))
    path = reading.get("path")
    if path is None:
        if any(_EDITABLE.fullmatch(name) for each in names.values() for name in each):
            reading.miss(
                "found",
                SkipCause.FAILED,
                "torch is installed as editable; only importing it shows where it is",
            )
        else:
            reading.put("found", source, False)
        for name in ("version", "is_cpu_build"):
            reading.miss(
                name, SkipCause.ABSENT, f"torch was not found along the search path of {python.executable}"
            )
        return TorchFacts(**reading.fields())
    reading.put("found", source, True)
    _put_version(world, reading, path, installed)
    own = next((each for each in installed if path == f"{each.entry}/torch"), None)
    if own is not None:
        _put_pins(world, reading, python, own, names)
    else:
        reading.miss("required_nvidia", SkipCause.ABSENT, f"no metadata of torch lies beside {path}")
    return TorchFacts(**reading.fields())


def _put_place(
    world: World, reading: Reading, search_path: Sequence[str], source: str, installed: list[_Installed]
) -> None:
    """The package that wins, and an installed one that it hides."""
    places = [place for entry in search_path if (place := _torch_in(world, entry)) is not None]
    if not places:
        return
    with_metadata = {f"{each.entry}/torch" for each in installed}
    properly = [place for place in places if place in with_metadata or _in_site_packages(place)]
    reading.put("path", source, places[0])
    reading.put("is_local", source, places[0] not in properly)
    if places[0] not in properly and properly:
        reading.put("shadowed_path", source, properly[0])


def _torch_in(world: World, entry: str) -> str | None:
    """What `import torch` would take in one folder: the package folder, or a file torch.py."""
    for name in PACKAGE_FILES:
        if world.exists(f"{entry}/{name}"):
            return f"{entry}/torch" if name.endswith("__init__.py") else f"{entry}/torch.py"
    return None


def _in_site_packages(place: str) -> bool:
    return any(f"/{name}/" in place for name in ("site-packages", "dist-packages"))


def _installed(world: World, names: Mapping[str, list[str]]) -> list[_Installed]:
    """Metadata folders of torch, each folder of the search path once (lib64 is often a link to lib)."""
    found: list[_Installed] = []
    seen: set[str] = set()
    for entry, listed in names.items():
        real = os.path.realpath(world.path(entry))
        if real in seen:
            continue
        seen.add(real)
        for name in listed:
            distribution = parse_folder_name(name) if name.startswith(("torch-", "Torch-")) else None
            if distribution is not None and distribution.name == "torch":
                found.append(_Installed(entry=entry, distribution=distribution))
    return found


def _put_version(world: World, reading: Reading, path: str, installed: list[_Installed]) -> None:
    if path.endswith(".py"):
        for name in ("version", "is_cpu_build"):
            reading.miss(name, SkipCause.ABSENT, f"{path} is a single file, not the package torch")
        return
    source = f"{path}/version.py"
    names = list_folder(world, path)
    reading.put("has_native_code", path, any(_NATIVE.fullmatch(name) for name in names))
    libraries = [name for name in list_folder(world, f"{path}/lib") if _LIBRARY.fullmatch(name)]
    reading.put("bundled_libraries", f"{path}/lib", tuple(libraries))
    try:
        assigned = _assignments(world.read_text(source))
    except (OSError, ValueError) as error:
        reason = f"{source}: {getattr(error, 'strerror', None) or error}"
        reading.miss("is_cpu_build", SkipCause.ABSENT, reason)
        own = [each for each in installed if path == f"{each.entry}/torch"]
        if own:
            reading.put("version", own[0].path, own[0].distribution.version)
        else:
            reading.miss("version", SkipCause.ABSENT, reason)
        return
    reading.put("version", source, assigned.get("__version__"))
    reading.put("git_version", source, assigned.get("git_version"))
    for field, name in (("cuda_build", "cuda"), ("hip_build", "hip"), ("xpu_build", "xpu")):
        reading.put(field, source, assigned.get(name))
    if "cuda" in assigned:
        reading.put("is_cpu_build", source, not any(assigned.get(name) for name in ("cuda", "hip", "xpu")))
    else:
        reading.miss("is_cpu_build", SkipCause.FAILED, f"{source} does not say which CUDA it was built with")


def _assignments(text: str) -> dict[str, str | None]:
    """The top-level assignments of texts and None in version.py; the file is never run."""
    return {match["name"]: match["text"] for match in _ASSIGNMENT.finditer(text[:20_000])}


def _put_pins(
    world: World, reading: Reading, python: PythonFacts, own: _Installed, names: Mapping[str, list[str]]
) -> None:
    """Exact versions of nvidia-* distributions that the winning torch's own metadata asks for."""
    source = f"{own.path}/METADATA"
    environment = _marker_environment(python)
    requirements = reading.take(
        "required_nvidia", source, lambda: read_requirements(world.read_text(source), environment)
    )
    if requirements is None:
        return
    pins = {each.name: each.pin for each in requirements if each.name.startswith("nvidia-") and each.pin}
    meta = next((each for each in requirements if each.name == _META_PACKAGE and each.pin), None)
    if meta is not None:
        for name, pin in _expand(world, meta, environment, names).items():
            pins.setdefault(name, pin)
    reading.put("required_nvidia", source, dict(sorted(pins.items())))


def _expand(
    world: World, meta: Requirement, environment: Mapping[str, str], names: Mapping[str, list[str]]
) -> dict[str, str]:
    """What cuda-toolkit[cublas,cudart,…]==13.0.2 pins, by the metadata of the installed cuda-toolkit of that version."""
    for entry, listed in names.items():
        for name in listed:
            distribution = parse_folder_name(name) if name.startswith("cuda_toolkit-") else None
            if distribution is None or distribution.version != meta.pin:
                continue
            try:
                text = world.read_text(f"{entry}/{name}/METADATA")
            except (OSError, ValueError):
                return {}
            return {
                each.name: each.pin
                for extra in meta.extras
                for each in read_requirements(text, {**environment, "extra": extra})
                if each.pin and each.name.startswith("nvidia-")
            }
    return {}


def _marker_environment(python: PythonFacts) -> dict[str, str]:
    """PEP 508's variables for the job's interpreter on this machine. No extra is asked for."""
    version = python.version or platform.python_version()
    return {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": platform.machine(),
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "python_version": ".".join(version.split(".")[:2]),
        "python_full_version": version,
        "extra": "",
    }

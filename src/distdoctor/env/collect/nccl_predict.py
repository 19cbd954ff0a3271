"""Which NCCL `import torch` would load, by the rules of the loader and of torch/__init__.py."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path, PurePosixPath

from distdoctor.env.collect.loader import LoaderConfig, Resolved, resolve_library
from distdoctor.env.collect.nccl_banner import read_nccl_banner
from distdoctor.env.collect.world import World
from distdoctor.env.elf import read_elf_dynamic
from distdoctor.env.facts.base import UnreadError
from distdoctor.env.facts.torch import PythonFacts, TorchFacts
from distdoctor.report.model import SkipCause

# What torch 2.13's _preload_cuda_deps loads from site-packages before it comes to NCCL, in its order: package
# folder and file pattern. One that is missing ends the list early (torch/__init__.py).
_PRELOADED_BEFORE_NCCL = (
    ("cublas", "libcublasLt.so.*[0-9]"),
    ("cublas", "libcublas.so.*[0-9]"),
    ("cudnn", "libcudnn.so.*[0-9]"),
    ("cuda_nvrtc", "libnvrtc.so.*[0-9]"),
    ("cuda_runtime", "libcudart.so.*[0-9]"),
    ("cuda_cupti", "libcupti.so.*[0-9]"),
    ("cufft", "libcufft.so.*[0-9]"),
    ("curand", "libcurand.so.*[0-9]"),
    ("nvjitlink", "libnvJitLink.so.*[0-9]"),
    ("cusparse", "libcusparse.so.*[0-9]"),
    ("cusparselt", "libcusparseLt.so.*[0-9]"),
    ("cusolver", "libcusolver.so.*[0-9]"),
)
# A call without an argument is the one on the success path, before libtorch_cuda.so is loaded. Older
# versions preload everything only when loading has failed, with the error as argument.
_ALWAYS_PRELOADS = re.compile(r"^[ \t]+_preload_cuda_deps\(\)\s*$", re.MULTILINE)

# The library of torch that needs NCCL, newest layout first.
_NEEDERS = ("libtorch_cuda.so", "libtorch_hip.so", "libtorch_python.so", "libtorch.so")


def predict_nccl(
    world: World, python: PythonFacts | None, torch: TorchFacts | None, config: LoaderConfig
) -> Resolved:
    """The file that `import torch` would take as NCCL.

    A libtorch_cuda.so with NCCL linked in is its own answer. Raises UnreadError when there is nothing to
    predict from.
    """
    if torch is None or not torch.path:
        raise UnreadError(SkipCause.ABSENT, "torch was not found, so nothing would load NCCL")
    needer, soname = _who_needs_nccl(world, f"{torch.path}/lib")
    if soname is None:
        return Resolved(path=needer, why=f"NCCL is linked into {PurePosixPath(needer).name}")
    executable = (python.executable,) if python is not None and python.executable else ()
    by_loader = resolve_library(world, soname, wanted_by=needer, loaded_by=executable, config=config)
    if by_loader is not None and by_loader.why.startswith("LD_PRELOAD"):
        return by_loader
    preloaded = _preloaded_by_torch(world, python, torch, soname)
    if preloaded is not None:
        return Resolved(
            path=preloaded, why="torch/__init__.py loads its wheels' libraries first (_preload_cuda_deps)"
        )
    if by_loader is not None:
        return by_loader
    fallback = _first_in_wheels(world, python, "nccl", f"{soname}*", torch.cuda_build)
    if fallback is not None:
        return Resolved(
            path=fallback, why="torch/__init__.py falls back to its wheels when the loader finds none"
        )
    raise UnreadError(SkipCause.ABSENT, f"{PurePosixPath(needer).name} needs {soname}, and no rule finds it")


def _who_needs_nccl(world: World, folder: str) -> tuple[str, str | None]:
    """The torch library that needs NCCL, and the soname it asks for; None as soname: it is linked in."""
    seen = False
    for name in _NEEDERS:
        path = Path(world.path(f"{folder}/{name}"))
        try:
            dynamic = read_elf_dynamic(path)
        except (OSError, ValueError):
            continue
        seen = True
        for needed in dynamic.needed:
            if needed.startswith(("libnccl.so", "librccl.so")):
                return f"{folder}/{name}", needed
    for name in _NEEDERS[:2]:
        try:
            if read_nccl_banner(Path(world.path(f"{folder}/{name}"))) is not None:
                return f"{folder}/{name}", None
        except (OSError, ValueError):
            continue
    if seen:
        raise UnreadError(SkipCause.ABSENT, f"no library in {folder} needs NCCL")
    raise UnreadError(SkipCause.ABSENT, f"{folder} holds no libtorch_cuda.so")


def _preloaded_by_torch(
    world: World, python: PythonFacts | None, torch: TorchFacts, soname: str
) -> str | None:
    if torch.cuda_build is None:
        return None
    try:
        if not _ALWAYS_PRELOADS.search(world.read_text(f"{torch.path}/__init__.py")):
            return None
    except (OSError, ValueError):
        return None
    for folder, pattern in _PRELOADED_BEFORE_NCCL:
        if _first_in_wheels(world, python, folder, pattern, torch.cuda_build) is None:
            return None
    found = _first_in_wheels(world, python, "nccl", "libnccl.so.*[0-9]", torch.cuda_build)
    return found if found is not None and soname.startswith("libnccl") else None


def _first_in_wheels(
    world: World, python: PythonFacts | None, folder: str, pattern: str, cuda: str | None
) -> str | None:
    """The first match along sys.path, as torch's _get_cuda_dep_paths looks for it."""
    major = (cuda or "").partition(".")[0]
    for site in python.search_path if python is not None else ():
        tails = [f"nvidia/{folder}/lib"] + ([f"nvidia/cu{major}/lib"] if major else []) + [f"{folder}/lib"]
        for tail in tails:
            try:
                names = world.listdir(f"{site}/{tail}")
            except OSError:
                continue
            for name in names:
                if fnmatch.fnmatchcase(name, pattern):
                    return f"{site}/{tail}/{name}"
    return None

"""Every libnccl on disk that a job could meet: where it lies, how it was found, whose it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from distdoctor.env.collect.loader import LoaderConfig
from distdoctor.env.collect.nccl_banner import read_nccl_banner
from distdoctor.env.collect.world import World
from distdoctor.env.facts.nccl import NcclLibrary
from distdoctor.env.facts.torch import PythonFacts, TorchFacts

_LIBRARY_NAME = re.compile(r"lib(?:nccl|rccl)\.so(?:\.\d+)*\Z")
_NCCL_DIST = re.compile(r"(nvidia[_-]nccl[_-]cu\d+)-([^-]+)\.dist-info\Z", re.IGNORECASE)

SYSTEM_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
)
# Folders of vendors' stacks, by the names their installers use.
_VENDOR_ROOTS = (
    ("/opt", "hpcx"),
    ("/usr/local", "nccl"),
    ("/opt", "nccl"),
    ("/opt", "amazon"),
    ("/opt", "rocm"),
)
_VENDOR_TAILS = ("lib", "lib64", "nccl/lib", "nccl_rdma_sharp_plugin/lib", "build/lib")

# More copies than this is no installation but a build farm; the first ones are those that count.
MAX_LIBRARIES = 64
_MAX_FOLDER_ENTRIES = 20000


@dataclass(frozen=True, slots=True)
class Place:
    """A folder to look in and the word for how we came to it."""

    folder: str
    found_by: str


def find_nccl_libraries(
    world: World, python: PythonFacts | None, torch: TorchFacts | None, config: LoaderConfig
) -> tuple[NcclLibrary, ...]:
    """Every libnccl on disk, in the order of the places where it was looked for; one entry for each real file."""
    found: dict[str, NcclLibrary] = {}
    for path, found_by in _candidates(world, python, torch, config):
        real = real_path(world, path)
        if real in found or len(found) >= MAX_LIBRARIES:
            continue
        library = _describe(world, path, real, found_by)
        if library is not None:
            found[real] = library
    return tuple(found.values())


def real_path(world: World, path: str) -> str:
    """`path` with symbolic links followed, as the world itself would name it."""
    try:
        resolved = Path(world.path(path)).resolve() if world.root == Path("/") else Path(world.path(path))
    except OSError:
        return path
    if world.root == Path("/"):
        return str(resolved)
    try:
        return "/" + str(resolved.relative_to(world.root))
    except ValueError:
        return path


def site_folders(python: PythonFacts | None, torch: TorchFacts | None) -> tuple[str, ...]:
    """Folders that hold packages: the one that torch came from first, then the interpreter's."""
    folders = [str(PurePosixPath(torch.path).parent)] if torch is not None and torch.path else []
    folders += [each for each in (python.search_path if python is not None else ()) if each.startswith("/")]
    return tuple(dict.fromkeys(folders))


def wheel_folders(site: str) -> tuple[str, ...]:
    """Where NVIDIA's wheels put libnccl; cu12 and cu13 share the first one."""
    return (f"{site}/nvidia/nccl/lib", f"{site}/nvidia/cu13/lib", f"{site}/nvidia/cu12/lib")


def _candidates(
    world: World, python: PythonFacts | None, torch: TorchFacts | None, config: LoaderConfig
) -> Iterator[tuple[str, str]]:
    for entry in config.preload:
        if "/" in entry and _LIBRARY_NAME.search(PurePosixPath(entry).name):
            yield entry, "LD_PRELOAD"
    for place in _places(world, python, torch, config):
        for name in _names(world, place.folder):
            if _LIBRARY_NAME.match(name):
                yield f"{place.folder.rstrip('/')}/{name}", place.found_by
    for name, paths in config.cache.items():
        if _LIBRARY_NAME.match(name):
            for path in paths:
                yield path, "ldconfig"
    for folder in SYSTEM_FOLDERS:
        for name in _names(world, folder):
            if _LIBRARY_NAME.match(name):
                yield f"{folder}/{name}", folder


def _places(
    world: World, python: PythonFacts | None, torch: TorchFacts | None, config: LoaderConfig
) -> Iterator[Place]:
    for site in site_folders(python, torch):
        for folder in wheel_folders(site):
            yield Place(folder, "site-packages")
    if torch is not None and torch.path:
        yield Place(f"{torch.path}/lib", "torch/lib")
    for folder in config.library_path:
        yield Place(folder, "LD_LIBRARY_PATH")
    conda = (python.conda_prefix if python is not None else None) or world.environ.get("CONDA_PREFIX")
    if conda:
        yield Place(f"{conda}/lib", "conda")
    if python is not None and python.prefix:
        yield Place(f"{python.prefix}/lib", "interpreter's lib")
    for root, prefix in _VENDOR_ROOTS:
        for name in _names(world, root):
            if name.startswith(prefix):
                for tail in _VENDOR_TAILS:
                    yield Place(f"{root}/{name}/{tail}", f"{root}/{name}")


def _names(world: World, folder: str) -> list[str]:
    try:
        return world.listdir(folder)[:_MAX_FOLDER_ENTRIES]
    except OSError:
        return []


def _describe(world: World, path: str, real: str, found_by: str) -> NcclLibrary | None:
    try:
        banner = read_nccl_banner(Path(world.path(path)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        banner = None
    return NcclLibrary(
        path=path,
        real_path=real,
        version=banner.version if banner is not None else None,
        cuda=banner.cuda if banner is not None else None,
        owner=_owner(world, path, real),
        found_by=found_by,
    )


def _owner(world: World, path: str, real: str) -> str | None:
    for each in dict.fromkeys((path, real)):
        owner = _wheel_owner(world, each) or _conda_owner(world, each)
        if owner:
            return owner
        if "/hpcx" in each:
            return "HPC-X"
    return _dpkg_owner(world, {path, real})


def _wheel_owner(world: World, path: str) -> str | None:
    """Distributions whose wheel puts a file there: both, when cu12 and cu13 are installed together."""
    site, mark, _ = path.rpartition("/nvidia/")
    if not mark:
        return None
    owners = []
    for name in _names(world, site):
        match = _NCCL_DIST.match(name)
        if match is not None:
            owners.append(f"{match[1].lower().replace('_', '-')} {match[2]}")
    return " and ".join(owners) or None


def _conda_owner(world: World, path: str) -> str | None:
    prefix, mark, _ = path.rpartition("/lib/")
    if not mark:
        return None
    packages = [
        name for name in _names(world, f"{prefix}/conda-meta") if re.match(r"nccl-\d.*\.json\Z", name)
    ]
    return f"conda nccl {packages[0].split('-')[1]}" if packages else None


def _dpkg_owner(world: World, paths: set[str]) -> str | None:
    folder = "/var/lib/dpkg/info"
    spellings = paths | {each.removeprefix("/usr") for each in paths}
    for name in _names(world, folder):
        if not (name.startswith("libnccl") and name.endswith(".list")):
            continue
        try:
            lines = set(world.read_text(f"{folder}/{name}").splitlines())
        except (OSError, ValueError):
            continue
        if lines & spellings:
            return f"{name.removesuffix('.list').partition(':')[0]} (dpkg)"
    return None

"""Which file the dynamic loader would take for a library, in the order of ld.so(8), without running it."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from distdoctor.env.collect.world import World
from distdoctor.env.elf import ElfDynamic, read_elf_dynamic

LOADER_CACHE = "/etc/ld.so.cache"
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_HEADER_BYTES = 48
_CACHE_ENTRY = struct.Struct("=iIIIQ")
# A cache of a large machine lists a few thousand libraries.
_MAX_CACHE_ENTRIES = 65536

# glibc's built-in folders, with the multiarch ones of Debian and Ubuntu.
DEFAULT_FOLDERS = (
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)
_MAX_CONF_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The file that the loader would take and the rule that chose it."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderConfig:
    """What the loader knows apart from the files themselves."""

    library_path: tuple[str, ...]
    """LD_LIBRARY_PATH, split at ':' and ';'; an empty entry is the working folder and is left out."""
    preload: tuple[str, ...]
    """LD_PRELOAD and /etc/ld.so.preload, split at ':' and spaces."""
    cache: dict[str, tuple[str, ...]]
    """Name → paths in the loader's cache, in its order; from ld.so.conf when there is no cache."""
    cache_source: str


def read_loader_config(world: World) -> LoaderConfig:
    """The loader's variables of the process and the cache of its file system. Never raises."""
    entries = world.environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
    preload = world.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    with contextlib.suppress(OSError, ValueError):  # the file is hardly ever there
        preload += [
            word
            for line in world.read_text("/etc/ld.so.preload").splitlines()
            for word in line.partition("#")[0].replace(":", " ").split()
        ]
    cache, source = _read_cache(world)
    return LoaderConfig(
        library_path=tuple(entry for entry in entries if entry),
        preload=tuple(preload),
        cache=cache,
        cache_source=source,
    )


def resolve_library(
    world: World, name: str, *, wanted_by: str, loaded_by: tuple[str, ...], config: LoaderConfig
) -> Resolved | None:
    """The file that `name` (a soname without '/') would be loaded from.

    wanted_by: path of the library that needs it. loaded_by: paths of those that loaded `wanted_by`, the
    executable last: their DT_RPATH counts as long as the asking library has no DT_RUNPATH.
    Order: LD_PRELOAD; DT_RPATH; LD_LIBRARY_PATH; DT_RUNPATH; the cache; the default folders.
    """
    asking = _read_dynamic(world, wanted_by)
    preloaded = _preloaded(world, name, config)
    if preloaded is not None:
        return preloaded
    asking_name = PurePosixPath(wanted_by).name
    if asking is not None and not asking.runpath:
        for path, dynamic in [
            (wanted_by, asking),
            *((each, _read_dynamic(world, each)) for each in loaded_by),
        ]:
            if dynamic is None or dynamic.runpath:
                continue
            for folder in dynamic.rpath:
                found = _find(world, _expand(folder, path), name, asking)
                if found:
                    return Resolved(path=found, why=f"{PurePosixPath(path).name}'s RPATH")
    for index, folder in enumerate(config.library_path, start=1):
        found = _find(world, folder, name, asking)
        if found:
            return Resolved(path=found, why=f"LD_LIBRARY_PATH entry {index} ({folder})")
    for folder in asking.runpath if asking is not None else ():
        found = _find(world, _expand(folder, wanted_by), name, asking)
        if found:
            return Resolved(path=found, why=f"{asking_name}'s RUNPATH")
    for candidate in config.cache.get(name, ()):
        if _fits(world, candidate, asking):
            return Resolved(path=candidate, why=config.cache_source)
    for folder in DEFAULT_FOLDERS:
        found = _find(world, folder, name, asking)
        if found:
            return Resolved(path=found, why=f"default folder {folder}")
    return None


def parse_loader_cache(data: bytes) -> dict[str, tuple[str, ...]]:
    """Name → paths of a glibc loader cache (format 1.1, also behind the old header of glibc < 2.32).

    Raises ValueError when it is not such a cache or is cut short.
    """
    start = data.find(_CACHE_MAGIC)
    if start < 0:
        raise ValueError("not a glibc loader cache")
    if len(data) < start + _CACHE_HEADER_BYTES:
        raise ValueError("loader cache is cut short")
    count = struct.unpack_from("=I", data, start + 20)[0]
    if count > _MAX_CACHE_ENTRIES or len(data) < start + _CACHE_HEADER_BYTES + count * _CACHE_ENTRY.size:
        raise ValueError("loader cache is cut short")
    libraries: dict[str, list[str]] = {}
    for index in range(count):
        at = start + _CACHE_HEADER_BYTES + index * _CACHE_ENTRY.size
        _, key, value, _, _ = _CACHE_ENTRY.unpack_from(data, at)
        libraries.setdefault(_text_at(data, start + key), []).append(_text_at(data, start + value))
    return {name: tuple(paths) for name, paths in libraries.items()}


def _text_at(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    if end < 0 or at >= len(data):
        raise ValueError("loader cache is cut short")
    return data[at : min(end, at + 4096)].decode("utf-8", "replace")


def _read_cache(world: World) -> tuple[dict[str, tuple[str, ...]], str]:
    try:
        return parse_loader_cache(world.read_bytes(LOADER_CACHE)), LOADER_CACHE
    except (OSError, ValueError):
        return _scan_conf_folders(world), "/etc/ld.so.conf"


def _scan_conf_folders(world: World) -> dict[str, tuple[str, ...]]:
    """What ldconfig would find: libraries in the folders that /etc/ld.so.conf names."""
    libraries: dict[str, list[str]] = {}
    for folder in _conf_folders(world, "/etc/ld.so.conf", budget=[_MAX_CONF_FILES]):
        try:
            names = world.listdir(folder)
        except OSError:
            continue
        for name in names:
            if ".so" in name:
                libraries.setdefault(name, []).append(f"{folder.rstrip('/')}/{name}")
    return {name: tuple(paths) for name, paths in libraries.items()}


def _conf_folders(world: World, path: str, budget: list[int]) -> list[str]:
    budget[0] -= 1
    if budget[0] < 0:
        return []
    try:
        lines = world.read_text(path).splitlines()
    except (OSError, ValueError):
        return []
    folders: list[str] = []
    for line in lines:
        words = line.partition("#")[0].split()
        if len(words) >= 2 and words[0] == "include":
            for pattern in words[1:]:
                folders += [
                    folder
                    for included in _glob(world, str(PurePosixPath(path).parent / pattern))
                    for folder in _conf_folders(world, included, budget)
                ]
        elif words and words[0].startswith("/"):
            folders.append(words[0].partition("=")[0])
    return folders


def _glob(world: World, pattern: str) -> list[str]:
    """Files that match a pattern whose last part alone holds wildcards."""
    parent, name = str(PurePosixPath(pattern).parent), PurePosixPath(pattern).name
    try:
        return [f"{parent}/{each}" for each in world.listdir(parent) if PurePosixPath(each).match(name)]
    except OSError:
        return []


def _preloaded(world: World, name: str, config: LoaderConfig) -> Resolved | None:
    """A preloaded file that carries the soname `name`: the loader asks no further then."""
    for entry in config.preload:
        if "/" in entry:
            candidates = [entry]
        else:
            candidates = [f"{folder}/{entry}" for folder in config.library_path]
            candidates += list(config.cache.get(entry, ())) + [f"{each}/{entry}" for each in DEFAULT_FOLDERS]
        for candidate in candidates:
            dynamic = _read_dynamic(world, candidate)
            if dynamic is None:
                continue
            if (dynamic.soname or PurePosixPath(candidate).name) == name:
                return Resolved(path=candidate, why=f"LD_PRELOAD ({entry})")
            break
    return None


def _find(world: World, folder: str, name: str, asking: ElfDynamic | None) -> str | None:
    candidate = f"{folder.rstrip('/')}/{name}"
    return candidate if _fits(world, candidate, asking) else None


def _fits(world: World, candidate: str, asking: ElfDynamic | None) -> bool:
    """True when the file is there and of the asking library's machine; the loader passes over others."""
    dynamic = _read_dynamic(world, candidate)
    if dynamic is None:
        return False
    return asking is None or (dynamic.machine, dynamic.bits) == (asking.machine, asking.bits)


def _expand(folder: str, origin_file: str) -> str:
    origin = str(PurePosixPath(origin_file).parent)
    text = folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
    return text.replace("${LIB}", "lib64").replace("$LIB", "lib64")


def _read_dynamic(world: World, path: str) -> ElfDynamic | None:
    try:
        return read_elf_dynamic(Path(world.path(path)))
    except (OSError, ValueError):
        return None

"""Which libcuda.so.1 and libnvidia-ml.so.1 would the loader take, and which driver version are they from?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.env.collect.loader import DEFAULT_FOLDERS, read_loader_config
from distdoctor.env.collect.world import World

# Where container runtimes, WSL and NixOS put them, beside the loader's own folders.
ODD_FOLDERS = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib")

# The loader passes over libraries of another machine; the driver installs both.
FOLDERS_OF_32_BIT = ("/i386-linux-gnu/", "/lib32/")

# As many links as the kernel follows.
MAX_LINKS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverLibrary:
    """A library of the driver: as the loader names it, and its real file."""

    path: str
    real_path: str

    @property
    def version(self) -> str | None:
        """From the real file's name: libcuda.so.570.86.15 → "570.86.15". None when the name has none."""
        match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", self.real_path)
        return match.group(1) if match else None


def find_driver_library(world: World, name: str) -> DriverLibrary | None:
    """The first `name` in the loader's order: LD_LIBRARY_PATH, its cache, the usual folders.

    RPATHs of a program are not looked at: CUDA libraries of the driver are opened by bare name.
    """
    config = read_loader_config(world)
    candidates = [f"{folder.rstrip('/')}/{name}" for folder in config.library_path if folder.startswith("/")]
    candidates += config.cache.get(name, ())
    candidates += [f"{folder}/{name}" for folder in (*DEFAULT_FOLDERS, *ODD_FOLDERS)]
    for path in candidates:
        if not any(part in path for part in FOLDERS_OF_32_BIT) and world.exists(path):
            return DriverLibrary(path=path, real_path=_real_path(world, path))
    return None


def _real_path(world: World, path: str) -> str:
    for _ in range(MAX_LINKS):
        try:
            target = world.readlink(path)
        except OSError:
            return path
        path = target if target.startswith("/") else f"{path.rpartition('/')[0]}/{target}"
    return path

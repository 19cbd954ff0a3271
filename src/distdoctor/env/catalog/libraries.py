"""Who supplies a shared library: `libcudart.so.13` → the wheel nvidia-cuda-runtime; `libcuda.so.1` → the driver."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.env.catalog.tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Supplier:
    """Where a library comes from."""

    what: str
    """"CUDA runtime 13"."""
    package: str | None
    """Distribution or Debian package, where there is one."""
    kind: str
    """"wheel", "system", "driver", "rocm", "mpi", "torch", "python", "vendor"."""


def library_supplier(file_name: str, cuda_major: int | None = None) -> Supplier | None:
    """The supplier of a library by its file name; None when we do not know it.

    cuda_major: that of the torch build, which many wheels have in their name (since CUDA 13 only some).
    """
    name = file_name.rpartition("/")[2]
    for row in read_table("libraries")["libraries"]:
        match = re.fullmatch(row["file"], name)
        if match is None:
            continue
        number = match.groupdict().get("n")
        package = row["package"].replace("{n}", number or "")
        if "{cuda}" in package:
            package = _with_cuda(package, cuda_major)
        return Supplier(
            what=row["what"].replace("{n}", number or ""), package=package or None, kind=row["kind"]
        )
    return None


# Since CUDA 13 the toolkit's own wheels have no suffix; those released beside it keep one.
_KEEP_SUFFIX = ("nvidia-nccl", "nvidia-cudnn", "nvidia-cusparselt", "nvidia-nvshmem")


def _with_cuda(package: str, cuda_major: int | None) -> str:
    stem = package.removesuffix("-cu{cuda}")
    if cuda_major is None:
        return f"{stem}-cu12 (or the one of your CUDA major)"
    if cuda_major >= 13 and stem not in _KEEP_SUFFIX:
        return stem
    return f"{stem}-cu{cuda_major}"

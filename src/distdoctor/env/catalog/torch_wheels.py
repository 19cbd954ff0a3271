"""What PyTorch's own wheels are built with: CUDA, NCCL, architectures. Builds by others differ."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.env.catalog.tables import read_table
from distdoctor.env.versions import parse_version

# "2.9.1", "2.6.0+cu126", "2.7.0.dev20250310+cu124", "2.11.0rc2+cu130". Not "2.5.0a0+872d972e41.nv24.8", "2.7.0a0+git3a58512".
_PUBLISHED = re.compile(r"\d+\.\d+\.\d+(?:\.dev\d{8}|rc\d+|\.post\d+)?(?:\+cu\d{2,3})?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelArchs:
    """Architectures of one wheel line."""

    archs: tuple[str, ...]
    confident: bool
    source: str


def is_published_wheel(torch_version: str) -> bool:
    """True when the version's form is that of a wheel which PyTorch publishes, not of a source or vendor build."""
    return bool(_PUBLISHED.match(torch_version))


def wheel_archs(torch_version: str, cuda: str, machine: str = "x86_64") -> WheelArchs | None:
    """Architectures of the published wheel of this torch and CUDA; None when it is no published wheel or unknown.

    Nightly builds ("dev") are left out: their lists changed from night to night.
    """
    version, toolkit = parse_version(torch_version), parse_version(cuda)
    if version is None or toolkit is None or not is_published_wheel(torch_version) or ".dev" in torch_version:
        return None
    for row in read_table("torch_wheels")["architectures"]:
        first, last = parse_version(row["first"]) or (), parse_version(row["last"]) or ()
        fits = first <= version[:2] <= last and any(
            parse_version(each) == toolkit[:2] for each in row["cuda"]
        )
        if fits and row["machine"] == machine:
            return WheelArchs(
                archs=tuple(row["archs"]), confident=row["confidence"] == "high", source=row["source"]
            )
    return None


def default_nccl(torch_version: str) -> str | None:
    """NCCL version that the default wheel of this torch pins ("2.9.1" → "2.27.5"); None when not recorded."""
    version = parse_version(torch_version)
    if version is None or not is_published_wheel(torch_version):
        return None
    for row in read_table("torch_wheels")["default"]:
        if parse_version(row["torch"]) == version[:2]:
            nccl: str = row["nccl"]
            return nccl
    return None

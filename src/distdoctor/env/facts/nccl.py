"""Facts about NCCL: which libraries are on disk, which one a job would load, which one it has loaded."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.env.facts.base import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLibrary:
    """One libnccl.so.2 (or a libtorch_cuda.so with NCCL inside) on disk."""

    path: str
    real_path: str
    version: str | None
    """By its banner, read without running it: "2.28.9"; None when there is no banner."""
    cuda: str | None
    """CUDA version in the banner."""
    owner: str | None
    """Distribution or package: "nvidia-nccl-cu13 2.28.9", "libnccl2 (dpkg)", "conda nccl", "HPC-X"."""
    found_by: str
    """"site-packages", "LD_LIBRARY_PATH", "ldconfig", "conda", "/opt/hpcx", "LD_PRELOAD"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclPlugin:
    """A network, tuner or profiler plugin that NCCL would try."""

    name: str
    """As NCCL asks the loader: "libnccl-net.so"."""
    path: str | None
    """Where it would be found, or None."""
    wanted_by: str
    """"NCCL_NET_PLUGIN", "default name"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclFacts(Section):
    """NCCL as installed, as predicted and as loaded."""

    libraries: tuple[NcclLibrary, ...] = ()
    predicted_path: str | None = None
    """The file that `import torch` would load."""
    predicted_why: str | None = None
    """"libtorch_cuda.so's RPATH", "LD_LIBRARY_PATH entry 2", …"""
    predicted_version: str | None = None
    loaded_path: str | None = None
    """Mapped by the probe child or by the live process (--pid)."""
    loaded_version: str | None = None
    loaded_deleted: bool | None = None
    """True when the mapped file was replaced on disk since."""
    expected_path: str | None = None
    """The one that came with torch's own pins."""
    expected_version: str | None = None
    """Version that torch's metadata pins, or that torch was compiled with."""
    image_version: str | None = None
    """NCCL_VERSION of NVIDIA's images: tells the image's package, not what is loaded."""
    plugins: tuple[NcclPlugin, ...] = ()

    @property
    def version(self) -> str | None:
        """The best known version: loaded, else predicted, else expected."""
        return self.loaded_version or self.predicted_version or self.expected_version

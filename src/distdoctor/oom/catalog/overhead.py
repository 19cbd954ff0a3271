"""What a process holds on a GPU beside torch's tensors: ranges that people measured, with where."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.units import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadRange:
    """The smallest and the largest value that was measured."""

    low_bytes: int
    high_bytes: int
    what: str
    sources: tuple[str, ...]


# One process, one device, CUDA 11.7 or newer: kernels are loaded when they are first used. The low end is a context
# alone, the high end a context with the libraries of a training process. Of Hopper and Blackwell no figure was found,
# so there is one range for all architectures of NVIDIA.
CUDA_CONTEXT = OverheadRange(
    low_bytes=256 * MIB,
    high_bytes=820 * MIB,
    what="CUDA context and libraries of one process on one GPU",
    sources=(
        "256 MiB: RTX 3090, torch 2.7.1 with CUDA 12.8 (InvokeAI#9413)",
        "about 300 MB: with lazy loading, since CUDA 11.7 (pytorch#107667)",
        "0.80 GiB: context and libraries, example message of pytorch#99699",
    ),
)

# The same before kernels were loaded lazily.
CUDA_CONTEXT_BEFORE_LAZY_LOADING = OverheadRange(
    low_bytes=300 * MIB,
    high_bytes=1220 * MIB,
    what="CUDA context of one process on one GPU, CUDA older than 11.7",
    sources=(
        "300 to 400 MB: V100, CUDA 10 (pytorch#20532)",
        "543 MiB: CUDA 11.5 (pytorch#81257)",
        "871 MiB: one context of another rank (pytorch#49481)",
        "1001 MiB: RTX 3090, CUDA 11.1 (pytorch#54564)",
        "1.19 GiB: V100, one context of another rank (returnn#1469)",
    ),
)

# Grows with channels, peers and protocols; a communicator costs nothing before its first collective.
NCCL_COMMUNICATOR = OverheadRange(
    low_bytes=544 * MIB,
    high_bytes=1024 * MIB,
    what="buffers of one NCCL communicator after its first collective",
    sources=(
        "544 MB among 2, 688 MB among 3 or 4 A100 with NVLink (nccl#964)",
        "about 1 GB for each process group (pytorch#153302)",
    ),
)

# All pairs of GPUs get connections of their own, on every channel.
NCCL_ALL_TO_ALL = OverheadRange(
    low_bytes=544 * MIB,
    high_bytes=3300 * MIB,
    what="buffers of one NCCL communicator that exchanges all-to-all or point to point",
    sources=("3.28 GB more after the first all_to_all_single among 8 H100 (nccl#1685)",),
)

# What makes HIP, and not CUDA, the runtime.
_AMD = "cdna"


def context_range(
    architecture: str | None = None, *, cuda: tuple[int, int] | None = None
) -> OverheadRange | None:
    """Memory of a context on a GPU of this architecture (`GpuType.architecture`); None where nobody measured it (AMD).

    `cuda`: (major, minor) of the CUDA version that torch was built with; None is read as 11.7 or newer.
    """
    if architecture == _AMD:
        return None
    if cuda is not None and cuda < (11, 7):
        return CUDA_CONTEXT_BEFORE_LAZY_LOADING
    return CUDA_CONTEXT


def cuda_context_range_bytes(architecture: str | None = None) -> tuple[int, int] | None:
    """(low, high) of `context_range` in bytes; None where nobody measured it."""
    found = context_range(architecture)
    return None if found is None else (found.low_bytes, found.high_bytes)

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

"""What the GPU holds beside what torch has allocated: known as ranges only, and labelled so."""

from __future__ import annotations

from distdoctor.oom.facts.estimate import Range
from distdoctor.oom.job import Job
from distdoctor.oom.settings import DataParallel
from distdoctor.units import GIB

# One context with the libraries of a training process: 0.80 GiB in the message of pytorch pull request 99699, 0.85
# GiB in pytorch issue 49481, 1.19 GiB for each rank in returnn issue 1469; smaller ones are reported for old drivers.
CONTEXT_BYTES = (0.4 * GIB, 1.2 * GIB)

# A communicator that is used: some hundred MiB of channels and buffers; pytorch issue 153302 speaks of 1 GB a group.
NCCL_BYTES = (0.1 * GIB, 1.0 * GIB)

# Reserved over allocated, at the peak: 5 to 25 % between runs of which both are published (llama-cookbook issue 120:
# 42 GB allocated, 58 reserved is beyond it; TorchTitan's 8B eager runs are at 18 to 22 % by simulation).
SLACK = (0.02, 0.25)


def outside_ranges(job: Job) -> tuple[Range, ...]:
    """Context and NCCL for this job's groups."""
    ranges = [
        Range(
            what="CUDA context and libraries",
            low_bytes=CONTEXT_BYTES[0],
            high_bytes=CONTEXT_BYTES[1],
            source="messages and threads: pytorch #99699, #49481, returnn #1469",
        )
    ]
    groups = communicators(job)
    if groups:
        ranges.append(
            Range(
                what=f"NCCL, {len(groups)} communicator{'s' if len(groups) > 1 else ''} ({', '.join(groups)})",
                low_bytes=NCCL_BYTES[0] * len(groups),
                high_bytes=NCCL_BYTES[1] * len(groups),
                source="pytorch #153302; depends on channels and peers",
            )
        )
    return tuple(ranges)


def communicators(job: Job) -> tuple[str, ...]:
    """Groups along which this job's ranks talk, one NCCL communicator each."""
    mesh = job.mesh
    groups = []
    if job.strategy is not DataParallel.NONE and mesh.shard_ranks > 1:
        groups.append("shards")
    if mesh.dp_replicate > 1:
        groups.append("replicas")
    groups += [
        name
        for name, size in (("cp", mesh.cp), ("tp", mesh.tp), ("pp", mesh.pp), ("ep", mesh.ep))
        if size > 1
    ]
    return tuple(groups)


def allocator_slack(peak_bytes: float) -> Range:
    """What the caching allocator reserves above the peak."""
    return Range(
        what="reserved by the allocator, not allocated",
        low_bytes=SLACK[0] * peak_bytes,
        high_bytes=SLACK[1] * peak_bytes,
        source="2 to 25 % in published pairs; fragmentation can exceed it",
    )

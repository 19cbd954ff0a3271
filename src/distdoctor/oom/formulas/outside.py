"""What the GPU holds beside what torch has allocated: known as ranges only, and labelled so."""

from __future__ import annotations

from distdoctor.oom.catalog.overhead import CUDA_CONTEXT, NCCL_ALL_TO_ALL, NCCL_COMMUNICATOR
from distdoctor.oom.facts.estimate import Range
from distdoctor.oom.job import Job
from distdoctor.oom.settings import DataParallel

# Reserved over allocated at the peak, where both were published or simulated: 15 and 18 % (TorchTitan's 8B runs on
# 128 and 8 GPUs, allocated by simulation), 38 % for one badly fragmented run (llama-cookbook issue 120), which is left
# to the advice on fragmentation. The low end is our own: an allocator with expandable segments wastes little.
SLACK = (0.02, 0.25)

# Groups in which every rank sends to every other one: experts.
_EXCHANGING = ("ep",)


def outside_ranges(job: Job) -> tuple[Range, ...]:
    """Context and NCCL for this job's groups."""
    ranges = [
        Range(
            what="CUDA context and libraries",
            low_bytes=CUDA_CONTEXT.low_bytes,
            high_bytes=CUDA_CONTEXT.high_bytes,
            source="; ".join(CUDA_CONTEXT.sources),
        )
    ]
    groups = communicators(job)
    exchanging = tuple(group for group in groups if group in _EXCHANGING)
    for kind, names in (
        (NCCL_COMMUNICATOR, tuple(group for group in groups if group not in exchanging)),
        (NCCL_ALL_TO_ALL, exchanging),
    ):
        if names:
            ranges.append(
                Range(
                    what=f"NCCL: {', '.join(names)}",
                    low_bytes=kind.low_bytes * len(names),
                    high_bytes=kind.high_bytes * len(names),
                    source=f"{len(names)} x {'; '.join(kind.sources)}",
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
        what="reserved, not allocated",
        low_bytes=SLACK[0] * peak_bytes,
        high_bytes=SLACK[1] * peak_bytes,
        source="2 to 25 % of the peak; fragmentation can exceed it",
    )

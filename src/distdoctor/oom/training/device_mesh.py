"""The DeviceMesh of a job: its ranks arranged along the dimensions that have more than one."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from distdoctor.oom.job import Job
from distdoctor.oom.settings import DataParallel

DIMENSIONS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


def build_device_mesh(job: Job, device_type: str) -> DeviceMesh:
    """The DeviceMesh of a job over the default group, outermost dimension first, without those of size 1; `fully_shard`
    wants one to shard over also where that is of size 1."""
    sizes = {
        name: size
        for name in DIMENSIONS
        if (size := getattr(job.mesh, name)) > 1 or (name == "dp_shard" and job.strategy is DataParallel.FSDP)
    } or {"dp_shard": 1}
    return init_device_mesh(device_type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))

"""One rank of a job of any size in a single process: a fake process group, and fake tensors if wanted.

With fake tensors nothing is computed and nothing allocated; with real ones everything is computed but collectives move
nothing. Both run the same code, so that one can check the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from distdoctor.oom.job import Job
from distdoctor.oom.settings import DataParallel
from distdoctor.oom.training.base import CannotRunError, Kernels, World
from distdoctor.torch_private import (
    device_meshes_outside_modes,
    fake_store,
    fake_tensor_mode,
    own_fsdp_chunk_only,
)

DIMENSIONS = ("pp", "dp_replicate", "dp_shard", "cp", "tp")


@contextlib.contextmanager
def fake_world(
    job: Job,
    rank: int,
    *,
    fake_tensors: bool = True,
    kernels: Kernels = Kernels.LIKE_CUDA,
    chunks: tuple[tuple[int, ...], ...] | None = None,
) -> Iterator[World]:
    """The world of `rank` among `job.mesh.num_ranks`. Raises CannotRunError where this torch has no fake group."""
    store = fake_store()
    if store is None:
        raise CannotRunError(f"torch {torch.__version__} has no fake process group")
    dist.init_process_group("fake", store=store, rank=rank, world_size=job.mesh.num_ranks)
    try:
        with device_meshes_outside_modes(), own_fsdp_chunk_only():
            mesh = build_device_mesh(job, "cpu")
            with fake_tensor_mode() if fake_tensors else contextlib.nullcontext():
                yield World(
                    job=job,
                    rank=rank,
                    device=torch.device("cpu"),
                    mesh=mesh,
                    kernels=kernels,
                    communicates=False,
                    chunks=chunks,
                    is_fake=fake_tensors,
                )
    finally:
        dist.destroy_process_group()


def build_device_mesh(job: Job, device_type: str) -> DeviceMesh:
    """The DeviceMesh of a job over the default group, outermost dimension first, without those of size 1; `fully_shard`
    wants one to shard over also where that is of size 1."""
    sizes = {
        name: size
        for name in DIMENSIONS
        if (size := getattr(job.mesh, name)) > 1 or (name == "dp_shard" and job.strategy is DataParallel.FSDP)
    } or {"dp_shard": 1}
    return init_device_mesh(device_type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))

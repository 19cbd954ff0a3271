"""One rank of a job of any size in a single process: a fake process group, and fake tensors if wanted.

With fake tensors nothing is computed and nothing allocated; with real ones everything is computed but collectives move
nothing. Both run the same code, so that one can check the other. Real tensors may be on a GPU; fake ones are on the CPU,
for a process without a GPU cannot run a backward pass over fake tensors of CUDA.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist

from distdoctor.oom.job import Job
from distdoctor.oom.training.base import CannotRunError, Kernels, World
from distdoctor.oom.training.device_mesh import build_device_mesh
from distdoctor.torch_private.distributed import device_meshes_outside_modes, own_fsdp_chunk_only
from distdoctor.torch_private.fake_tensors import (
    fake_store,
    fake_tensor_mode,
    fused_sgd_known,
    kernels_for_real_only_if_small,
)

_CPU = torch.device("cpu")


@contextlib.contextmanager
def fake_world(
    job: Job,
    rank: int,
    *,
    fake_tensors: bool = True,
    kernels: Kernels = Kernels.LIKE_CUDA,
    device: torch.device = _CPU,
    chunks: tuple[tuple[int, ...], ...] | None = None,
) -> Iterator[World]:
    """The world of `rank` among `job.mesh.num_ranks`. Raises CannotRunError where this torch has no fake group, and for
    fake tensors anywhere but on the CPU."""
    if fake_tensors and device.type != "cpu":
        raise CannotRunError("fake tensors are on the CPU; a GPU holds real ones")
    store = fake_store()
    if store is None:
        raise CannotRunError(f"torch {torch.__version__} has no fake process group")
    dist.init_process_group("fake", store=store, rank=rank, world_size=job.mesh.num_ranks)
    try:
        with device_meshes_outside_modes(), own_fsdp_chunk_only():
            mesh = build_device_mesh(job, device.type)
            with _nothing_computed() if fake_tensors else contextlib.nullcontext():
                yield World(
                    job=job,
                    rank=rank,
                    device=device,
                    mesh=mesh,
                    kernels=kernels,
                    communicates=False,
                    chunks=chunks,
                    is_fake=fake_tensors,
                )
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def _nothing_computed() -> Iterator[None]:
    with kernels_for_real_only_if_small(), fused_sgd_known(), fake_tensor_mode():
        yield

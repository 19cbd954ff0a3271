"""Which backend, which device this rank measures on, and how much memory is left there."""

from __future__ import annotations

import torch
import torch.distributed as dist

from distdoctor.errors import UsageError
from distdoctor.ranks.host_memory import host_available_bytes

BACKENDS = ("nccl", "gloo")


def choose_backend(asked: str | None = None) -> str:
    """NCCL where this torch has it and a GPU can be used, else Gloo; what was asked for where it is possible.

    RCCL goes by the name of NCCL. Raises UsageError for a backend that is not known or cannot be used here.
    """
    if asked is None:
        return "nccl" if _why_no_nccl() is None else "gloo"
    if asked not in BACKENDS:
        raise UsageError(f"--backend: `{asked[:40]}` is not known", hint=f"known: {', '.join(BACKENDS)}")
    if asked == "gloo" and not dist.is_gloo_available():
        raise UsageError(f"torch {torch.__version__} was built without Gloo")
    if asked == "nccl":
        why = _why_no_nccl()
        if why is not None:
            raise UsageError(f"--backend nccl: {why}", hint="--backend gloo measures over the CPU")
    return asked


def device_of(backend: str, local_rank: int) -> torch.device:
    """The CPU for Gloo, the GPU of this rank for NCCL: the only visible one, or the one with its local rank's index.

    Raises UsageError when a rank has no GPU. Makes no CUDA context.
    """
    if backend != "nccl":
        return torch.device("cpu")
    count = torch.cuda.device_count()
    # A launcher that shows each task its own GPU alone (Slurm's --gpus-per-task) leaves index 0 to all.
    index = 0 if count == 1 else local_rank
    if index >= count:
        raise UsageError(
            f"local rank {local_rank} has no GPU: {count} are visible here",
            hint="start as many ranks on a host as it has GPUs",
        )
    return torch.device("cuda", index)


def take(device: torch.device) -> None:
    """Make the device this process' current one; before the process group is made."""
    if device.type == "cuda":
        torch.cuda.set_device(device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what was handed in; at once on the CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def available_bytes(device: torch.device) -> int | None:
    """Free memory of the device; of the CPU what the whole host, or the container, has left for all its ranks.

    None where it is not known.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return host_available_bytes()


def _why_no_nccl() -> str | None:
    if not dist.is_nccl_available():
        return f"torch {torch.__version__} was built without NCCL"
    if not torch.cuda.is_available():
        return "torch can use no GPU here"
    return None

"""What a GPU's allocator is told and asked: a limit, peaks, and a snapshot of what was allocated."""

from __future__ import annotations

from pathlib import Path

import torch

from distdoctor.torch_private.memory import dump_memory_snapshot, record_memory_history

ALLOCATOR = "the CUDA allocator, limited to a fraction of the GPU"
OWN_COUNT = "distdoctor's own count of live CPU bytes"
DEVICE = "the GPU, which has no more"
HOST = "the host, which has no more"


def limit_device(device: torch.device, limit_bytes: int) -> None:
    """Let this process' allocator take no more than this."""
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), device)


def reset_device(device: torch.device, *, records_history: bool) -> None:
    """Nothing of the program before counts for the next one."""
    if device.type != "cuda":
        return
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    if records_history:
        record_memory_history()


def device_peaks(device: torch.device) -> tuple[int | None, int | None]:
    """(allocated, reserved) at the peak, by the allocator's own count; None on the CPU, which does not count."""
    if device.type != "cuda":
        return None, None
    return int(torch.cuda.max_memory_allocated(device)), int(torch.cuda.max_memory_reserved(device))


def write_device_snapshot(path: Path) -> str:
    """Write torch's own snapshot, for `oom explain`; why that failed, or an empty text."""
    try:
        written = dump_memory_snapshot(str(path))
    except (OSError, RuntimeError) as error:
        return next(iter(str(error).splitlines()), type(error).__name__)[:200]
    return "" if written else "this torch writes no memory snapshots"

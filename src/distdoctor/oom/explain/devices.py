"""Commands that look at memory, for the kind of device that refused it."""

from __future__ import annotations

from distdoctor.oom.facts.events import Family

_READS_SNAPSHOT = "distdoctor oom explain snapshot.pickle"


def record_history(family: Family) -> str:
    """How to see which tensors hold the memory of this kind of device."""
    match family:
        case Family.MPS:
            return (
                "python -c 'import torch; print(torch.mps.current_allocated_memory(), torch.mps.driver_allocated_memory())'"
                "   # the same two calls after every step"
            )
        case Family.XPU:
            return "python -c 'import torch; print(torch.xpu.memory_summary())'   # the same call after every step"
        case Family.NPU:
            return "python -c 'import torch, torch_npu; print(torch.npu.memory_summary())'   # the same call after every step"
        case _:
            return (
                "python -c 'import torch; help(torch.cuda.memory._record_memory_history)'  # record, dump at the error, then: "
                + _READS_SNAPSHOT
            )

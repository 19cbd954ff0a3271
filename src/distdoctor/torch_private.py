"""Private and unstable APIs of torch, one function each: the versions they were seen in, and None where they are absent."""

from __future__ import annotations


def nccl_premul_sum(factor: float) -> object | None:
    """A ReduceOp that multiplies each contribution by `factor` and adds; NCCL's alone. Seen in torch 1.13 to 2.13."""
    import torch.distributed as dist

    make = getattr(dist, "_make_nccl_premul_sum", None)
    if make is None:
        return None
    made: object = make(factor)
    return made

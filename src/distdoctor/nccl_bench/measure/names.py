"""torch's objects for our names of element types and reductions."""

from __future__ import annotations

import torch
import torch.distributed as dist

from distdoctor.errors import UsageError
from distdoctor.nccl_bench.dtypes import DType, op_named
from distdoctor.nccl_bench.measure.patterns import PREMUL_FACTOR
from distdoctor.torch_private.distributed import nccl_premul_sum


def torch_dtype(dtype: DType) -> torch.dtype:
    """Raises UsageError where this torch is too old for the type."""
    found = getattr(torch, dtype.name, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"torch {torch.__version__} has no {dtype.name}")
    return found


def torch_op(op: str) -> object:
    """The ReduceOp of a name; premul_sum with its factor. Raises UsageError for names that are not known here."""
    name = op_named(op)
    if name == "premul_sum":
        made = nccl_premul_sum(float(PREMUL_FACTOR))
    else:
        made = getattr(dist.ReduceOp, name.upper(), None)
    if made is None:
        raise UsageError(f"torch {torch.__version__} has no reduction {name}")
    return made

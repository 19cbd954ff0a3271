"""Model states by formula: parameters are counted, gradients and optimizer states follow from them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import ModelStates
from distdoctor.oom.formulas.states import moment_bytes
from distdoctor.oom.job import Job
from distdoctor.oom.settings import DataParallel, Optimizer, Precision

_FP32 = 4


def model_states(module: nn.Module, job: Job) -> ModelStates:
    """Bytes on one rank. Tied parameters count once; frozen ones have neither gradients nor states."""
    parameters = list(module.parameters())
    trainable = [each for each in parameters if each.requires_grad]
    shards = job.mesh.shard_ranks if job.strategy is DataParallel.FSDP else 1
    owners = job.mesh.dp if job.strategy is DataParallel.ZERO_REDUNDANCY else shards
    numel = sum(each.numel() for each in trainable)
    master = _FP32 * numel if job.precision is Precision.MASTER else 0
    moments = sum(_moments(each, job) for each in trainable)
    return ModelStates(
        num_params=sum(each.numel() for each in parameters),
        num_trainable=numel,
        by_category={
            Category.PARAMETERS: -(-_bytes(parameters, job) // shards),
            Category.GRADIENTS: -(-_bytes(trainable, job) // shards),
            Category.OPTIMIZER: -(-int(moments + master) // owners),
        },
        how=_how(job, shards, owners),
    )


def _bytes(parameters: Iterable[nn.Parameter], job: Job) -> int:
    return sum(each.numel() * _element_bytes(each, job) for each in parameters)


def _element_bytes(parameter: torch.Tensor, job: Job) -> int:
    """In the type that it has, or is given."""
    short = job.precision in (Precision.MASTER, Precision.PURE16) and parameter.dtype.is_floating_point
    return 2 if short else parameter.element_size()


def _moments(parameter: torch.Tensor, job: Job) -> float:
    """torch's optimizers keep moments in the parameter's type, or in that of its fp32 copy."""
    if job.optimizer is Optimizer.ADAFACTOR:
        # A row and a column for a matrix (arXiv 1804.04235).
        rows, numel = (int(parameter.shape[0]) if parameter.dim() > 1 else 0), int(parameter.numel())
        return float(_FP32 * (rows + numel // rows if rows else numel))
    element = _FP32 if job.precision is Precision.MASTER else _element_bytes(parameter, job)
    return int(parameter.numel()) * element * moment_bytes(job.optimizer, Precision.FP32) / _FP32


def _how(job: Job, shards: int, owners: int) -> str:
    shared = ""
    if shards > 1:
        shared = f", all shared by {shards} ranks"
    elif owners > 1:
        shared = f", optimizer states shared by {owners} ranks"
    return f"model states only: parameters as counted, gradients and {job.optimizer.value} by formula{shared}"

"""Cross entropy over the vocabulary: at once, in chunks, or with the vocabulary cut over ranks."""

from __future__ import annotations

import contextlib

import torch
import torch.nn.functional as F
from torch.distributed.tensor.parallel import loss_parallel

from distdoctor.oom.job import Job


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean loss of (batch, sequence, vocabulary) in fp32, as TorchTitan and transformers compute it."""
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))


def around_loss(job: Job) -> contextlib.AbstractContextManager[object]:
    """Where loss and backward run under loss parallelism."""
    context: contextlib.AbstractContextManager[object] = (
        loss_parallel() if job.loss_parallel else contextlib.nullcontext()
    )
    return context

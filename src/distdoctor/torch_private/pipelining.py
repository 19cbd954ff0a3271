"""torch.distributed.pipelining. Private or unstable in torch; each function says in which versions it was seen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def skip_pipeline_vote(schedule: Any) -> None:
    """Let a pipeline schedule take the shapes that its stages were given. Otherwise ranks vote on whether to infer them
    from the first micro-batch, and where nothing is communicated the vote is lost. Seen in torch 2.13; schedules
    without a vote stay as they are."""
    from torch.distributed.pipelining import stage as stages

    mode = getattr(stages, "InferenceMode", None)
    if mode is None or not hasattr(schedule, "_warmup_p2p"):
        return

    def everybody_is_static(stages: Iterable[Any], *_args: Any, **_kwargs: Any) -> None:
        for stage in stages:
            stage._inference_mode = mode.STATIC

    schedule._warmup_p2p = everybody_is_static


def pipeline_buffers(stage: Any) -> list[torch.Tensor]:
    """The tensors that a pipeline stage keeps to receive activations and gradients of all micro-batches, once its
    schedule has run. Seen in torch 2.13; empty where they are kept elsewhere."""
    received = (
        *getattr(stage, "args_recv_info", {}).values(),
        *getattr(stage, "grad_recv_info", {}).values(),
    )
    buffers = (getattr(each, "buffer", None) for infos in received for each in infos)
    return [each for each in buffers if each is not None]

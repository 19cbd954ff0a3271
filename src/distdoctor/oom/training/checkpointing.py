"""Activation checkpointing around each layer: all of it, or TorchTitan's per-operator selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from distdoctor.oom.job import Job
from distdoctor.oom.settings import Checkpointing
from distdoctor.torch_private.autograd import checkpoint_wrapper, let_checkpoints_ignore_marks


def apply(model: nn.Module, job: Job) -> None:
    """Wrap the layers of `model` (a `layers` ModuleDict) in place."""
    if job.checkpointing is Checkpointing.NONE:
        return
    layers: nn.ModuleDict = model.get_submodule("layers")
    count = job.said.checkpoint_layers
    for number, (name, block) in enumerate(list(layers.items())):
        if count is not None and number >= count:
            break
        layers[name] = checkpointed(block, job.checkpointing)


def checkpointed(block: nn.Module, kind: Checkpointing) -> nn.Module:
    """A module that keeps less of `block` for the backward pass, and computes it again there."""
    if kind is Checkpointing.SELECTIVE:
        let_checkpoints_ignore_marks()
    return checkpoint_wrapper(block, _contexts if kind is Checkpointing.SELECTIVE else None)


def _contexts() -> Any:
    return create_selective_checkpoint_contexts(_policy())


def _policy() -> Callable[..., CheckpointPolicy]:
    """Save attention's output, every second matrix product, and what collectives brought, recompute the rest:
    torchtitan's `selective` with option `op` (torchtitan/distributed/activation_checkpoint.py)."""
    aten = torch.ops.aten
    products = {aten.mm.default, aten.addmm.default, aten.linear.default}
    attention = {
        getattr(aten, name).default
        for name in (
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_efficient_attention",
            "_scaled_dot_product_cudnn_attention",
        )
        if hasattr(aten, name)
    }
    collectives = {
        getattr(torch.ops._c10d_functional, name).default
        for name in ("reduce_scatter_tensor", "all_to_all_single")
        if hasattr(torch.ops._c10d_functional, name)
    }
    counts = {True: 0, False: 0}

    def policy(context: Any, function: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        if function in attention or function in collectives:
            return CheckpointPolicy.MUST_SAVE
        if function in products:
            counts[context.is_recompute] += 1
            if counts[context.is_recompute] % 2:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return policy

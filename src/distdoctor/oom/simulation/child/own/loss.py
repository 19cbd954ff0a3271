"""What is the loss of an output? A scalar, `.loss`, `["loss"]`; else the mean of all that has a gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from distdoctor.oom.simulation.child.own.errors import OwnModuleError

MADE_UP = "the mean of "


def loss_of(output: Any) -> tuple[torch.Tensor, str]:
    """A scalar with a gradient, and how it came about, in words. Any: the output of a user's module. Raises
    OwnModuleError where nothing has a gradient."""
    if _is_loss(output):
        return output, "the output itself"
    named = getattr(output, "loss", None)
    if _is_loss(named):
        return named, "the output's `.loss`"
    if isinstance(output, Mapping) and _is_loss(output.get("loss")):
        return output["loss"], "the output's `loss`"
    if isinstance(output, (tuple, list)):
        scalars = [each for each in output if _is_loss(each)]
        if len(scalars) == 1:
            return scalars[0], f"the scalar among {len(output)} outputs"
    parts = [each.float().mean() for each in _tensors(output) if _has_gradient(each)]
    if not parts:
        raise OwnModuleError(
            "nothing in the output of forward has a gradient",
            advice="return a loss, or tensors that depend on trainable parameters",
        )
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    which = "the output" if len(parts) == 1 else f"{len(parts)} outputs"
    return total, f"{MADE_UP}{which}, for forward gives no scalar: return your loss to have it counted"


def _is_loss(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1 and _has_gradient(value)


def _has_gradient(value: torch.Tensor) -> bool:
    return bool(value.requires_grad and value.dtype.is_floating_point)


def _tensors(output: Any) -> list[torch.Tensor]:
    """Every tensor in it; of an object that is no container, those among its attributes."""
    found = [each for each in tree_leaves(_plain(output)) if isinstance(each, torch.Tensor)]
    if not found and hasattr(output, "__dict__"):
        found = [each for each in vars(output).values() if isinstance(each, torch.Tensor)]
    return found


def _plain(output: Any) -> Any:
    """Mappings of any class as dicts, so that they are looked into."""
    return dict(output) if isinstance(output, Mapping) else output

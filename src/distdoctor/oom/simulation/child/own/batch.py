"""The inputs of a user's module: as they said, as their function gave, or as the module has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from distdoctor.oom.simulation.child.own.errors import OwnModuleError
from distdoctor.oom.simulation.inputs import TensorInput
from distdoctor.torch_private.fake_tensors import active_fake_mode, fake_with_values, is_fake, outside_modes

# Values of larger tensors are not kept: a mask of tokens by tokens is large, and nobody reads it.
MAX_KNOWN = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Arguments of forward. Any: whatever the user passes."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """All tensors in it."""
        return [each for each in tree_leaves((self.args, self.kwargs)) if isinstance(each, torch.Tensor)]

    def with_values(self) -> Batch:
        """The same; whole numbers and masks have values where they had none: 0, and 1 in masks, for models look whether
        a mask leaves anything out. Real tensors keep theirs."""
        args = tree_map(lambda each: _valued(each, ""), self.args)
        kwargs = {name: tree_map(partial(_valued, name=name), each) for name, each in self.kwargs.items()}
        return Batch(args=args, kwargs=kwargs)

    def fresh(self) -> Batch:
        """The same with new tensors, as a loader gives them for each micro-batch."""
        args, kwargs = tree_map(_like, (self.args, self.kwargs))
        return Batch(args=args, kwargs=kwargs)

    def words(self) -> str:
        """`8x1024 int64, mask 8x1024 bool`."""
        named = [("", each) for each in self.args] + list(self.kwargs.items())
        return ", ".join(f"{name} {_shape(value)}".strip() for name, value in named[:8])


def batch_of_shapes(inputs: tuple[TensorInput, ...]) -> Batch:
    """Tensors of these shapes; nothing is known of their values."""
    made = [(each.name, torch.zeros(each.shape, dtype=getattr(torch, each.dtype))) for each in inputs]
    return Batch(
        args=tuple(value for name, value in made if name is None),
        kwargs={name: value for name, value in made if name is not None},
    )


def batch_of_value(value: Any) -> Batch:
    """What a function gave: a tensor, a tuple of arguments, a mapping of named ones, or (tuple, mapping)."""
    if isinstance(value, Mapping):
        return Batch(kwargs={str(name): each for name, each in value.items()})
    if isinstance(value, (tuple, list)):
        if len(value) == 2 and isinstance(value[0], (tuple, list)) and isinstance(value[1], Mapping):
            return Batch(args=tuple(value[0]), kwargs={str(name): each for name, each in value[1].items()})
        return Batch(args=tuple(value))
    return Batch(args=(value,))


def batch_of_module(module: nn.Module) -> Batch | None:
    """Its attribute `example_inputs`, as Lightning calls it `example_input_array`; None where it has none."""
    for name in ("example_inputs", "example_input_array"):
        value = getattr(module, name, None)
        if value is not None:
            return batch_of_value(
                value() if callable(value) and not isinstance(value, torch.Tensor) else value
            )
    return None


def no_inputs(module: nn.Module) -> OwnModuleError:
    """Nobody said what forward takes."""
    return OwnModuleError(
        f"nothing is known of the inputs of {type(module).__name__}",
        advice="give --inputs 8x1024:int64, or let the function return (module, inputs)",
    )


def _like(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if active_fake_mode() is None:
        return value.detach().clone().requires_grad_(value.requires_grad)
    if _can_be_known(value) and not is_fake(value):
        with outside_modes():
            copy = value.detach().clone()
        known = fake_with_values(copy)
        if known is not None:
            return known
    # No op on `value` itself: whoever follows ops would take it for a second tensor of the step.
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")
    return made.requires_grad_(value.requires_grad)


def _valued(value: Any, name: str) -> Any:
    if not isinstance(value, torch.Tensor) or not _can_be_known(value) or not is_fake(value):
        return value
    make = torch.ones if value.dtype is torch.bool or "mask" in name else torch.zeros
    with outside_modes():
        return make(tuple(value.shape), dtype=value.dtype)


def _can_be_known(value: torch.Tensor) -> bool:
    is_whole = not value.dtype.is_floating_point and not value.dtype.is_complex
    return bool(is_whole and value.numel() <= MAX_KNOWN and value.is_contiguous())


def _shape(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    sizes = "x".join(str(int(size)) for size in value.shape) or "scalar"
    return f"{sizes} {str(value.dtype).removeprefix('torch.')}"

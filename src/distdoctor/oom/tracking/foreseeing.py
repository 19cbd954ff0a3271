"""How much would an op allocate? Asked of its shapes alone, on the meta device, before it runs."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map


def foreseen_bytes(func: Any, args: Any, kwargs: Any) -> int | None:
    """Bytes of what `func` gives that is new: neither an input nor a view of one. None: the op cannot be asked, for its
    shapes depend on values, or it has none on the meta device (collectives)."""
    if func.name().partition(".")[0] in _PERHAPS_NEW:
        return None
    if not _makes_something(func) or not _has_memory(args, kwargs):
        return 0
    # No op of a communication library is run twice, not even for its shapes.
    if func.namespace in ("c10d", "_c10d_functional", "_c10d_functional_autograd"):
        return None
    try:
        result = func(*tree_map(_without_memory, args), **tree_map(_without_memory, kwargs))
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return None
    sizes: dict[int, int] = {
        leaf.untyped_storage()._cdata: leaf.untyped_storage().nbytes()
        for leaf in tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and leaf.device.type == "meta"
    }
    return sum(sizes.values())


# Views, or writes into an input, though their schemas do not say so.
_NOTHING_NEW = frozenset({"aten::_unsafe_view", "fsdp::all_gather_copy_in", "aten::lift_fresh"})

# A copy only where one is needed, which the schema does not say.
_PERHAPS_NEW = frozenset({"aten::to", "aten::contiguous", "aten::reshape"})


def _makes_something(func: Any) -> bool:
    """Whether the op gives a tensor that is no alias of an input."""
    if func.name().partition(".")[0] in _NOTHING_NEW:
        return False
    schema = getattr(func, "_schema", None)
    return schema is None or any(each.alias_info is None for each in schema.returns)


def _has_memory(args: Any, kwargs: Any) -> bool:
    """False for what is built on the meta device."""
    device = kwargs.get("device")
    if device is not None:
        return bool(torch.device(device).type != "meta")
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    return not tensors or any(leaf.device.type != "meta" for leaf in tensors)


def _without_memory(value: Any) -> Any:
    """A tensor of the same shape without memory behind it; a device becomes meta."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, torch.device):
        return torch.device("meta")
    return value

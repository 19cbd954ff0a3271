"""The autograd graph, and checkpoints. Private or unstable in torch; each function says in which versions it was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import nn


def checkpoint_wrapper(module: nn.Module, context_fn: Callable[[], Any] | None) -> nn.Module:
    """A module whose forward is checkpointed without reentrance; a state dict keeps its names. In torch 1.12 to 2.13."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper as wrap

    more = {"context_fn": context_fn} if context_fn is not None else {}
    wrapped: nn.Module = wrap(module, preserve_rng_state=False, **more)
    return wrapped


def current_autograd_node() -> Any:
    """The node of the autograd graph whose backward runs in this thread; None outside. In torch 2.1 to 2.13."""
    import torch

    current = getattr(torch._C, "_current_autograd_node", None)
    return None if current is None else current()


def is_in_backward() -> bool:
    """Whether autograd's engine runs a backward pass in this thread. `_current_graph_task_id`, in torch 2.1 to 2.13;
    without it nobody can tell, and the answer is False."""
    import torch

    current = getattr(torch._C, "_current_graph_task_id", None)
    return current is not None and current() != -1


class Holders(NamedTuple):
    """How many hold a tensor: C++ and Python objects, and those of its storage."""

    tensor: int
    python: int
    storage: int


def holders_of_first(tensors: Sequence[torch.Tensor]) -> Holders | None:
    """Who holds the first of these tensors, the caller and this function included: comparable only between calls of the
    same kind. `Tensor._use_count` and `_storage_Use_Count`, seen in torch 2.13; None where they are absent."""
    import sys

    import torch

    count = getattr(torch.Tensor, "_use_count", None)
    count_storage = getattr(torch._C, "_storage_Use_Count", None)
    if count is None or count_storage is None:
        return None
    return Holders(
        tensor=count(tensors[0]),
        python=sys.getrefcount(tensors[0]),
        storage=count_storage(tensors[0].untyped_storage()._cdata),
    )


def next_sequence_number() -> int:
    """The number that the next node of this thread's autograd graph gets. In torch 1.8 to 2.13."""
    from torch.autograd import _get_sequence_nr

    return int(_get_sequence_nr())


def let_checkpoints_ignore_marks() -> None:
    """Let selective checkpointing not count the profiler's marks. FSDP2 sets more of them when it recomputes a module whose
    group is one rank alone than it did in forward, and torch 2.13 then takes the layer for nondeterministic. The set
    `torch.utils.checkpoint.SAC_IGNORED_OPS` was seen in torch 2.13."""
    import torch
    from torch.utils import checkpoint

    ignored = getattr(checkpoint, "SAC_IGNORED_OPS", None)
    if isinstance(ignored, set):
        marks = torch.ops.profiler
        ignored.update(
            (marks._record_function_enter_new.default, marks._record_function_exit._RecordFunction)
        )

"""Sums that autograd makes where two gradients meet: into the memory of the first one, had nobody watched.

Where a value was used twice, autograd's engine adds both gradients, in place if nothing else holds the first
(torch/csrc/autograd/input_buffer.cpp, `can_accumulate_inplace`). While a dispatch mode is active, or tensors are fake, it
never does, for a subclass might not survive it: of a tied embedding that is a whole gradient more. A tracker does for
it what it would have done.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from distdoctor.torch_private.autograd import Holders, holders_of_first, is_in_backward
from distdoctor.torch_private.fake_tensors import outside_modes

# `Tensor.backward` enters the engine here; on a GPU it runs in a thread of its own, without a Python frame below.
_ENGINE = "/torch/autograd/graph.py"
# Stand between an op and its dispatch mode.
_BETWEEN = ("/torch/_dynamo/eval_frame.py", "/torch/_compile.py")


def is_sum_in_place(func: Any, args: Sequence[Any], kwargs: Any, caller: FrameType | None) -> bool:
    """Whether the engine itself asks for this sum, and would have made it in place; `caller`: who called the dispatch."""
    if func is not torch.ops.aten.add.Tensor or kwargs or len(args) != 2 or torch.is_grad_enabled():
        return False
    if not is_in_backward() or not _is_engine(caller):
        return False
    return (
        all(isinstance(each, torch.Tensor) for each in args)
        and args[0].shape == args[1].shape
        and args[0].dtype == args[1].dtype
        and _is_dense(args[0])
        and holders_of_first(args) == of_a_free_gradient()
    )


def _is_engine(caller: FrameType | None) -> bool:
    while caller is not None and caller.f_code.co_filename.endswith(_BETWEEN):
        caller = caller.f_back
    return caller is None or caller.f_code.co_filename.endswith(_ENGINE)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Every byte belongs to one element."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


@functools.cache
def of_a_free_gradient() -> Holders | None:
    """The holders, in this torch, of a gradient that only the engine holds; found by trying, so call it first outside of
    a backward pass. None where this torch does not tell."""
    found: list[Holders | None] = []

    class Probe(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            if func is torch.ops.aten.add.Tensor and is_in_backward():
                found.append(holders_of_first(args))
            return func(*args, **(kwargs or {}))

    with outside_modes(), torch.enable_grad(), Probe():
        twice = torch.ones(2, device="cpu", requires_grad=True) * 2
        (twice * 2).mul(twice * 3).sum().backward()
    return found[0] if found else None

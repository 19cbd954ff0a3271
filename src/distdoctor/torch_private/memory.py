"""What allocators tell of themselves. Private or unstable in torch; each function says in which versions it was seen."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    pass


def record_memory_history(max_entries: int = 200_000) -> bool:
    """Let CUDA's allocator keep a history with stacks, for a snapshot; False where it cannot. In torch 2.1 to 2.13."""
    import torch

    record = getattr(torch.cuda.memory, "_record_memory_history", None)
    if record is None:
        return False
    record(max_entries=max_entries)
    return True


def dump_memory_snapshot(path: str) -> bool:
    """Write the allocator's snapshot, with its history where one was kept; False where it cannot. In torch 2.0 to 2.13."""
    import torch

    dump = getattr(torch.cuda.memory, "_dump_snapshot", None)
    if dump is None:
        return False
    dump(path)
    return True


class CpuAllocation(NamedTuple):
    """One allocation on the CPU, or one that was given back."""

    total: int
    """Bytes that are allocated after it."""
    size: int
    """Its own; negative where it was given back."""
    inside: str
    """The op (`aten::mm`) that took these bytes and gave them back before it ended, so that only its kernel ever had
    them; empty: they outlived the op."""


def cpu_allocations(run: Callable[[], None]) -> list[CpuAllocation] | None:
    """What torch's CPU allocator did while `run` ran, in order. From the profiler's event tree
    (`experimental_event_tree`), in torch 1.12 to 2.13; None where it is absent."""
    from torch.profiler import ProfilerActivity, profile

    try:
        from torch._C._profiler import _EventType
    except ImportError:
        return None

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    tree = getattr(profiler.profiler.kineto_results, "experimental_event_tree", None)
    if tree is None:
        return None

    events = []
    waiting = list(tree())
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.tag == _EventType.Allocation and "cpu" in str(event.extra_fields.device):
            events.append(event)
    events.sort(key=lambda event: event.start_time_ns)
    inside = _inside_ops(events)
    return [
        CpuAllocation(each.extra_fields.total_allocated, each.extra_fields.alloc_size, inside.get(index, ""))
        for index, each in enumerate(events)
    ]


def _inside_ops(events: Sequence[Any]) -> dict[int, str]:
    """The op of each event, by index, whose bytes did not outlive it."""
    alive: dict[int, tuple[int, Any]] = {}
    found = {}
    for index, event in enumerate(events):
        fields = event.extra_fields
        if fields.alloc_size > 0:
            alive[fields.ptr] = (index, _dispatched_op(event))
            continue
        born, op = alive.pop(fields.ptr, (index, None))
        if op is not None and event.start_time_ns <= op.end_time_ns:
            found[born] = found[index] = op.name
    return found


def _dispatched_op(event: Any) -> Any:
    """The op around an event that a dispatch mode would be told of: the outermost that is not made of others, inside the
    innermost tensor subclass."""
    found = None
    event = event.parent
    while event is not None and event.name != "PythonSubclass":
        if "::" in event.name and _is_one_kernel(event.name):
            found = event
        event = event.parent
    return found


@functools.cache
def _is_one_kernel(name: str) -> bool:
    """Whether an op is told to dispatch modes as it is; a composite one is told as the ops that it is made of."""
    import torch

    schemas = torch._C._jit_get_schemas_for_operator(name)
    for each in schemas:
        overload = f"{name}.{each.overload_name}" if each.overload_name else name
        # Overloads for lists and numbers are known to TorchScript alone.
        with contextlib.suppress(RuntimeError):
            if torch._C._dispatch_has_kernel_for_dispatch_key(overload, "CompositeImplicitAutograd"):
                return False
    return bool(schemas)

"""Process groups, DDP, FSDP2, device meshes. Private or unstable in torch; each function says in which versions it was seen."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel


def nccl_premul_sum(factor: float) -> object | None:
    """A ReduceOp that multiplies each contribution by `factor` and adds; NCCL's alone. Seen in torch 1.13 to 2.13."""
    import torch.distributed as dist

    make = getattr(dist, "_make_nccl_premul_sum", None)
    if make is None:
        return None
    made: object = make(factor)
    return made


def keep_buckets_as_built(module: DistributedDataParallel) -> None:
    """Let DDP not rebuild its buckets in the order of the first backward pass: that reads what rank 0 has sent.
    `DistributedDataParallel.reducer` is there in torch 1.0 to 2.13."""

    class Reducer:
        def __init__(self, reducer: Any) -> None:
            self._reducer = reducer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reducer, name)

        def _rebuild_buckets(self) -> bool:
            return False

    module.reducer = Reducer(module.reducer)


@contextlib.contextmanager
def device_meshes_outside_modes() -> Iterator[None]:
    """Let every DeviceMesh be made outside dispatch modes, for its constructor reads values: FSDP2 on top of tensor
    parallelism makes one inside `fully_shard`. `_disable_current_modes` is there in torch 2.0 to 2.13."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.utils._python_dispatch import _disable_current_modes

    original = DeviceMesh.__init__

    @functools.wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        with _disable_current_modes():
            original(self, *args, **kwargs)

    DeviceMesh.__init__ = made
    try:
        yield
    finally:
        DeviceMesh.__init__ = original


def all_to_all_rows(
    rows: torch.Tensor, received: Sequence[int] | None, sent: Sequence[int] | None, group: Any
) -> torch.Tensor:
    """Rows to and from the ranks of a group, with a gradient; None: as many for each. `_functional_collectives` has
    `all_to_all_single_autograd`; seen in torch 2.13."""
    from torch.distributed import _functional_collectives as collectives

    splits = (None if each is None else list(each) for each in (received, sent))
    out: torch.Tensor
    if rows.requires_grad:
        # Who uses the result first waits for it; to wait here would cost older versions the gradient.
        out = collectives.all_to_all_single_autograd(rows, *splits, group)
    else:
        out = collectives.wait_tensor(collectives.all_to_all_single(rows, *splits, group))
    return out


def set_gradient_divisor(module: Any, divisor: float, *, adds_only: bool) -> None:
    """By what FSDP2 divides gradients of `module` when it adds them up, where the group is not that of the other
    parameters. `adds_only`: the backend cannot divide while it adds, as NCCL does. `set_gradient_divide_factor`, its
    deprecated name and `set_force_sum_reduction_for_comms` were seen in torch 2.13."""
    setter = getattr(module, "set_gradient_divide_factor", None) or module.set_reduce_scatter_divide_factor
    setter(divisor)
    if adds_only and hasattr(module, "set_force_sum_reduction_for_comms"):
        module.set_force_sum_reduction_for_comms(True)


def ignore_in_ddp(module: nn.Module, names: list[str]) -> None:
    """Let DDP not reduce these parameters. Seen in torch 2.13."""
    if names:
        from torch.nn.parallel import DistributedDataParallel

        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, names)


def forget_device_meshes() -> None:
    """Let DTensor forget what it worked out for meshes whose process groups are about to go: an equal mesh over new
    groups would be given the old ones. The caches are there in torch 2.4 to 2.13, under these names or others."""
    import importlib

    for module, name in (
        ("torch.distributed.tensor.debug", "_clear_sharding_prop_cache"),
        ("torch.distributed.tensor._redistribute", "clear_redistribute_planner_cache"),
    ):
        with contextlib.suppress(ImportError, AttributeError):
            getattr(importlib.import_module(module), name)()
    with contextlib.suppress(ImportError, AttributeError):
        redistribute: Any = importlib.import_module("torch.distributed.tensor._redistribute")
        redistribute._gen_transform_infos.cache_clear()
    with contextlib.suppress(ImportError, AttributeError):
        collectives: Any = importlib.import_module("torch.distributed.tensor._collective_utils")
        collectives.MeshTopoInfo.build_from_mesh.cache_clear()
    for name in ("_context_parallel._attention", "_attention"):
        with contextlib.suppress(ImportError, AttributeError):
            attention: Any = importlib.import_module(f"torch.distributed.tensor.experimental.{name}")
            attention._replaced_functions.clear()


@contextlib.contextmanager
def own_fsdp_chunk_only() -> Iterator[None]:
    """Let FSDP2 make a view of this rank's part of each parameter only: it makes one for every rank, which takes a
    minute among 10,000 ranks, and looks at its own and the first. `_chunk_with_empty` is there in torch 2.5 to 2.13."""
    import importlib

    try:
        module: Any = importlib.import_module("torch.distributed.fsdp._fully_shard._fsdp_param")
    except ImportError:
        module = None
    original = getattr(module, "_chunk_with_empty", None)
    if original is None:
        yield
        return

    class Chunks:
        def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
            self._tensor, self._count, self._dim = tensor, num_chunks, dim

        def __len__(self) -> int:
            return self._count

        def __getitem__(self, index: int) -> torch.Tensor:
            if not 0 <= index < self._count:
                raise IndexError(index)
            size = self._tensor.size(self._dim)
            each = -(-size // self._count)
            start = index * each
            if index and start >= size:
                return self._tensor.new_empty(0)
            return self._tensor.narrow(self._dim, start, min(each, size - start))

    module._chunk_with_empty = Chunks
    try:
        yield
    finally:
        module._chunk_with_empty = original


def say_device_type(device_type: str) -> None:
    """What torch says is this machine's kind of device, for libraries that ask when they are imported.
    `torch._utils._get_available_device_type`, in torch 2.1 to 2.13; other versions go on saying what they say."""
    from torch import _utils

    if hasattr(_utils, "_get_available_device_type"):
        _utils._get_available_device_type = lambda: device_type

"""Attention kernels, and context parallelism. Private or unstable in torch; each function says in which versions it was seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    dropout: float = 0.0,
    is_causal: bool = True,
    scale: float | None = None,
) -> torch.Tensor:
    """CUDA's flash attention over (batch, heads, sequence, size), as an op that has shapes and a gradient on every
    device: `aten._scaled_dot_product_flash_attention`, in torch 2.1 to 2.13."""
    import torch

    op = torch.ops.aten._scaled_dot_product_flash_attention
    out: torch.Tensor = op(q, k, v, dropout, is_causal, False, scale=scale)[0]
    return out


def context_parallel(mesh: DeviceMesh, **arguments: Any) -> contextlib.AbstractContextManager[None] | None:
    """torch's `context_parallel`, which is experimental: cuts buffers over the ranks of `mesh` in place and lets
    attention run round a ring. Seen in torch 2.13."""
    try:
        from torch.distributed.tensor.experimental import context_parallel as cut
    except ImportError:
        return None
    context: contextlib.AbstractContextManager[None] = cut(mesh, **arguments)
    return _attention_restored(context)


@contextlib.contextmanager
def _attention_restored(context: contextlib.AbstractContextManager[None]) -> Iterator[None]:
    """torch's `context_parallel` leaves its own attention behind when the program inside raises."""
    import torch.nn.functional as functions
    from torch.distributed.tensor import DTensor

    attention = functions.scaled_dot_product_attention
    dispatcher: Any = getattr(DTensor, "_op_dispatcher", None)
    handlers = getattr(dispatcher, "_custom_op_handlers", None)
    try:
        with context:
            yield
    finally:
        functions.scaled_dot_product_attention = attention
        if handlers is not None:
            dispatcher._custom_op_handlers = handlers


def ring_attention_templates() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """torch's ring attention, forward and backward, around an op of choice: both take (mesh, sequence dimension, op,
    tensors...). Seen in torch 2.13, where they want the mesh's group; others have them in `_attention`, or want the mesh."""
    import importlib
    import inspect

    for name in ("_context_parallel._attention", "_attention"):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(f"torch.distributed.tensor.experimental.{name}")
            there = getattr(module, "_templated_ring_attention", None)
            back = getattr(module, "_templated_ring_attention_backward", None)
            if there is None or back is None:
                continue
            wants_group = "group" in inspect.signature(there).parameters

            def over(function: Callable[..., Any], wants_group: bool = wants_group) -> Callable[..., Any]:
                def call(mesh: DeviceMesh, *args: Any, **kwargs: Any) -> Any:
                    return function(mesh.get_group() if wants_group else mesh, *args, **kwargs)

                return call

            return over(there), over(back)
    return None


def attention_of_any_value_size(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = True,
    scale: float | None = None,
) -> torch.Tensor:
    """CUDA's memory-efficient attention over (batch, heads, sequence, size), which takes values of another size than
    keys, and a bias (batch, heads, sequence, sequence); flash attention does not.
    `aten._scaled_dot_product_efficient_attention` has shapes and a gradient on every device. Seen in torch 2.13."""
    import torch

    op = torch.ops.aten._scaled_dot_product_efficient_attention
    out: torch.Tensor = op(q, k, v, bias, True, dropout, is_causal, scale=scale)[0]
    return out


def unfused_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """What `scaled_dot_product_attention` does on CUDA where no fused kernel takes the tensors: scores in memory.
    `aten._scaled_dot_product_attention_math`, in torch 2.0 to 2.13; `enable_gqa` since 2.5."""
    import torch

    more = {"enable_gqa": True} if enable_gqa else {}
    op = torch.ops.aten._scaled_dot_product_attention_math
    out: torch.Tensor = op(q, k, v, bias, dropout, is_causal, scale=scale, **more)[0]
    return out

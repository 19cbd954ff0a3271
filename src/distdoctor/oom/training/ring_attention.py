"""Ring attention: each rank attends with its part of the queries to keys and values that the other ranks send.

Everywhere it is torch's own: on CUDA by the patch of `context_parallel`, under fake tensors by the same handlers over
CUDA's flash op, and on a CPU, whose flash op torch has no rule for, by the same templates in a function of ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from distdoctor.oom.training.base import CannotRunError, Kernels
from distdoctor.torch_private.attention import flash_attention, ring_attention_templates

# Heads come before tokens wherever attention is computed: (batch, heads, tokens, size).
_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Ring:
    """The ranks that share each sequence. Works inside torch's `context_parallel` only."""

    mesh: DeviceMesh
    kernels: Kernels = Kernels.NATIVE

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Causal attention of (batch, heads, this rank's tokens, size) to all tokens; fewer heads of k and v are
        shared by groups of q's."""
        if self.kernels is Kernels.LIKE_CUDA:
            parts = [
                DTensor.from_local(each, self.mesh, [Shard(_TOKENS)], run_check=False) for each in (q, k, v)
            ]
            whole: Any = flash_attention(*parts)
            local: torch.Tensor = whole.to_local()
            return local
        if q.device.type == "cpu":
            out: torch.Tensor = _RingOnCPU.apply(q, k, v, self.mesh)
            return out
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])


class _RingOnCPU(torch.autograd.Function):
    """The CPU's flash op in torch's ring; it saves what the op under CUDA's ring saves."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mesh: DeviceMesh
    ) -> torch.Tensor:
        """The merged output of this rank's queries."""
        there, _ = _templates()
        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, logsumexp, *_rest = there(mesh, _TOKENS, op, q, k, v, is_causal=True, dropout_p=0.0)
        ctx.save_for_backward(q, k, v, out, logsumexp)
        ctx.mesh = mesh
        result: torch.Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of q, k and v; those of k and v travel round the ring with them."""
        q, k, v, out, logsumexp = ctx.saved_tensors
        _, back = _templates()
        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        grads = back(
            ctx.mesh,
            _TOKENS,
            op,
            grad_out,
            "grad_out",
            q,
            k,
            v,
            out,
            logsumexp,
            is_causal=True,
            dropout_p=0.0,
        )
        return (*grads[:3], None)


def _templates() -> tuple[Any, Any]:
    templates = ring_attention_templates()
    if templates is None:
        raise CannotRunError(
            f"torch {torch.__version__} has no ring attention of the kind that is known here"
        )
    return templates


# As torch's own patch it holds for the whole process: a backward pass may run in a thread of autograd's.
_active: list[Ring] = []


def active_ring() -> Ring | None:
    """The ring that attention is to use now; None: sequences are whole."""
    return _active[-1] if _active else None


@contextlib.contextmanager
def attending_in(ring: Ring) -> Iterator[None]:
    """Around forward and backward."""
    _active.append(ring)
    try:
        yield
    finally:
        _active.remove(ring)

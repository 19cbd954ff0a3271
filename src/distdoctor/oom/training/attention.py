"""Self-attention with grouped queries and rotary positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from distdoctor.oom.settings import Attention as AttentionKind
from distdoctor.oom.shape import ModelShape
from distdoctor.oom.training.base import Kernels
from distdoctor.oom.training.norms import make_norm
from distdoctor.oom.training.ring_attention import active_ring
from distdoctor.torch_private.attention import attention_of_any_value_size, flash_attention


class SelfAttention(nn.Module):
    """(batch, sequence, hidden) to the same. Heads are counted from the width of the projections, so that a tensor-
    parallel rank sees its own."""

    def __init__(self, shape: ModelShape, kind: AttentionKind, kernels: Kernels) -> None:
        super().__init__()
        hidden, size = shape.hidden_size, shape.head_size
        self.head_size = size
        self.kind = kind
        self.kernels = kernels
        self.rotates = not shape.learned_positions
        self.wq = nn.Linear(hidden, shape.num_heads * size, bias=shape.has_qkv_bias)
        self.wk = nn.Linear(hidden, shape.num_kv_heads * size, bias=shape.has_qkv_bias)
        self.wv = nn.Linear(hidden, shape.num_kv_heads * size, bias=shape.has_qkv_bias)
        self.wo = nn.Linear(shape.num_heads * size, hidden, bias=shape.has_attention_out_bias)
        self.q_norm = make_norm(shape, kernels, size) if shape.has_qk_norm else None
        self.k_norm = make_norm(shape, kernels, size) if shape.has_qk_norm else None

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """cos, sin: (sequence, head size / 2), fp32."""
        batch, seq, _ = x.shape
        q = self.wq(x).view(batch, seq, -1, self.head_size)
        k = self.wk(x).view(batch, seq, -1, self.head_size)
        v = self.wv(x).view(batch, seq, -1, self.head_size)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rotates:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        out = attend(q, k, v, self.kind, self.kernels)
        merged: torch.Tensor = self.wo(out.reshape(batch, seq, -1))
        return merged


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions on (batch, sequence, heads, size), in fp32 as all implementations compute them."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos[: x.shape[1], None, :], sin[: x.shape[1], None, :]
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).type_as(x)


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kind: AttentionKind, kernels: Kernels
) -> torch.Tensor:
    """Causal attention over (batch, sequence, heads, size); the result in the same layout."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    if kind is AttentionKind.UNFUSED:
        out = _unfused(q, k, v)
    elif (ring := active_ring()) is not None:
        out = ring.attend(q, k, v)
    elif kernels is Kernels.LIKE_CUDA:
        out = flash_attention(q, k, v) if q.shape[-1] == v.shape[-1] else attention_of_any_value_size(q, k, v)
    else:
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])
    return out.transpose(1, 2)


def _unfused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Scores and probabilities written to memory, as transformers' eager attention does it."""
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    mask = torch.full(scores.shape[-2:], float("-inf"), dtype=q.dtype, device=q.device).triu(1)
    return torch.softmax(scores + mask, dim=-1, dtype=torch.float32).to(q.dtype) @ v

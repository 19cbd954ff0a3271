"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): queries, keys and values pass through narrow layers; one
rotated key is shared by all heads. In training keys and values are expanded to all heads, as TorchTitan does it."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial

from distdoctor.oom.job import Job
from distdoctor.oom.settings import Attention as AttentionKind
from distdoctor.oom.shape import LatentAttention, ModelShape
from distdoctor.oom.training.attention import attend, rotate
from distdoctor.oom.training.base import Kernels
from distdoctor.oom.training.norms import make_norm


def why_not(job: Job) -> str | None:
    """Why latent attention cannot run in this job; None: it can."""
    if job.known_shape.mla is not None and job.mesh.cp > 1:
        return (
            "torch's ring attention wants values as wide as keys; latent attention under cp is estimated only"
        )
    return None


class LatentSelfAttention(nn.Module):
    """(batch, sequence, hidden) to the same. Heads are counted from the width of the projections."""

    def __init__(
        self, shape: ModelShape, mla: LatentAttention, kind: AttentionKind, kernels: Kernels
    ) -> None:
        super().__init__()
        hidden, heads = shape.hidden_size, shape.num_heads
        self.mla, self.kind, self.kernels = mla, kind, kernels
        self.query_size = mla.nope_head_size + mla.rope_head_size
        queries = heads * self.query_size
        if mla.q_lora_rank is None:
            self.wq = nn.Linear(hidden, queries, bias=False)
        else:
            self.wq_a = nn.Linear(hidden, mla.q_lora_rank, bias=False)
            self.q_norm = make_norm(shape, kernels, mla.q_lora_rank)
            self.wq_b = nn.Linear(mla.q_lora_rank, queries, bias=False)
        self.wkv_a = nn.Linear(hidden, mla.kv_lora_rank + mla.rope_head_size, bias=False)
        self.kv_norm = make_norm(shape, kernels, mla.kv_lora_rank)
        expanded = heads * (mla.nope_head_size + mla.value_head_size)
        self.wkv_b = nn.Linear(mla.kv_lora_rank, expanded, bias=False)
        self.wo = nn.Linear(heads * mla.value_head_size, hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """cos, sin: (sequence, rotated size / 2), fp32."""
        mla, (batch, seq, _) = self.mla, x.shape
        queries = self.wq(x) if mla.q_lora_rank is None else self.wq_b(self.q_norm(self.wq_a(x)))
        q_nope, q_rope = queries.view(batch, seq, -1, self.query_size).split(
            [mla.nope_head_size, mla.rope_head_size], dim=-1
        )
        q = torch.cat((q_nope, rotate(q_rope, cos, sin)), dim=-1)
        latent, k_rope = self.wkv_a(x).split([mla.kv_lora_rank, mla.rope_head_size], dim=-1)
        k_rope = rotate(_for_own_heads(k_rope).unsqueeze(2), cos, sin)
        expanded = self.wkv_b(self.kv_norm(latent))
        k_nope, v = expanded.view(batch, seq, -1, mla.nope_head_size + mla.value_head_size).split(
            [mla.nope_head_size, mla.value_head_size], dim=-1
        )
        k = torch.cat((k_nope, k_rope.expand(-1, -1, k_nope.shape[2], -1)), dim=-1)
        out = attend(q, k, v, self.kind, self.kernels)
        merged: torch.Tensor = self.wo(out.reshape(batch, seq, -1))
        return merged


def _for_own_heads(shared: torch.Tensor) -> torch.Tensor:
    """What all heads share, for those of this rank: each rank of tp has a part of its gradient."""
    if isinstance(shared, DTensor):
        return shared.to_local(grad_placements=[Partial()])
    return shared

"""A decoder-only transformer of a given shape, in plain torch, named as TorchTitan's Llama names its parts.

One instance is one pipeline stage: it may lack the embedding, the output, or any layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from distdoctor.oom.settings import Attention as AttentionKind
from distdoctor.oom.shape import ModelShape
from distdoctor.oom.training.attention import SelfAttention
from distdoctor.oom.training.base import Kernels
from distdoctor.oom.training.feed_forward import FeedForward, make_feed_forward
from distdoctor.oom.training.norms import make_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What decides the tensors of a model beside its shape."""

    seq_len: int
    kernels: Kernels = Kernels.NATIVE
    attention: AttentionKind = AttentionKind.FLASH
    expert_imbalance: float = 1.0


class Block(nn.Module):
    """One layer: attention and MLP (or experts), each behind its norm, each added to the residual stream."""

    def __init__(self, shape: ModelShape, layer: int, options: ModelOptions) -> None:
        super().__init__()
        self.attention_norm = make_norm(shape, options.kernels)
        self.attention = SelfAttention(shape, options.attention, options.kernels)
        self.ffn_norm = make_norm(shape, options.kernels)
        self.feed_forward: FeedForward = make_feed_forward(shape, layer, options)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) to the same."""
        h: torch.Tensor = x + self.attention(self.attention_norm(x), cos, sin)
        out: torch.Tensor = h + self.feed_forward(self.ffn_norm(h))
        return out


class Transformer(nn.Module):
    """Token ids (batch, sequence) or, without an embedding, hidden states, to logits or hidden states."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(
        self,
        shape: ModelShape,
        options: ModelOptions,
        *,
        layers: Sequence[int],
        has_embedding: bool = True,
        has_output: bool = True,
    ) -> None:
        super().__init__()
        self.options = options
        self.tok_embeddings = nn.Embedding(shape.vocab_size, shape.hidden_size) if has_embedding else None
        self.pos_embeddings = (
            nn.Embedding(shape.learned_positions, shape.hidden_size)
            if has_embedding and shape.learned_positions
            else None
        )
        self.layers = nn.ModuleDict({str(layer): Block(shape, layer, options) for layer in layers})
        self.norm = make_norm(shape, options.kernels) if has_output else None
        self.output = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False) if has_output else None
        if self.output is not None and self.tok_embeddings is not None and shape.ties_embeddings:
            self.output.weight = self.tok_embeddings.weight
        # Rotary tables in fp32, as every implementation keeps them; a model with learned positions has none.
        width = 0 if shape.learned_positions else _rotated(shape) // 2
        for name in ("cos", "sin"):
            self.register_buffer(
                name, torch.empty(options.seq_len, width, dtype=torch.float32), persistent=False
            )

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Through everything that this stage holds."""
        h = self.tok_embeddings(tokens) if self.tok_embeddings is not None else tokens
        if self.pos_embeddings is not None:
            positions = torch.arange(h.shape[1], device=h.device)
            h = h + self.pos_embeddings(positions)
        for block in self.layers.values():
            h = block(h, self.cos, self.sin)
        if self.norm is not None:
            h = self.norm(h)
        return self.output(h) if self.output is not None else h

    def init_weights(self) -> None:
        """Values that train, written in place once storages exist."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith("bias"):
                    parameter.zero_()
                elif "norm" in name:
                    parameter.fill_(1.0)
                else:
                    parameter.normal_(0.0, 0.02)
            if self.cos.numel():
                rows, width = self.cos.shape
                frequencies = 10_000.0 ** (-torch.arange(width, device=self.cos.device) / max(width, 1))
                angles = torch.outer(torch.arange(rows, device=self.cos.device), frequencies)
                self.cos.copy_(angles.cos())
                self.sin.copy_(angles.sin())


def _rotated(shape: ModelShape) -> int:
    """Width of a head that is rotated."""
    return shape.mla.rope_head_size if shape.mla is not None else shape.head_size

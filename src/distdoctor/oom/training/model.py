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
from distdoctor.oom.training.chunked_loss import Output
from distdoctor.oom.training.feed_forward import FeedForward, make_feed_forward
from distdoctor.oom.training.latent_attention import LatentSelfAttention
from distdoctor.oom.training.norms import make_norm

# Norms of a layer: none with weights (OLMo); one before attention and MLP side by side (GPT-J, Cohere); one before each;
# one before and one behind each (Gemma 2).
_NORMS_PER_LAYER = (0, 1, 2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What decides the tensors of a model beside its shape."""

    seq_len: int
    kernels: Kernels = Kernels.NATIVE
    attention: AttentionKind = AttentionKind.FLASH
    expert_imbalance: float = 1.0
    balanced_routing: bool = False
    """Tokens are spread over experts without asking the router: where no value may be read, or nobody answers."""


def why_not(shape: ModelShape) -> str | None:
    """Why this model cannot be built; None: it can."""
    if shape.num_mtp_layers:
        return "multi-token-prediction layers are estimated only"
    if shape.norms_per_layer not in _NORMS_PER_LAYER:
        return f"layers with {shape.norms_per_layer} norms are estimated only"
    return None


class Block(nn.Module):
    """One layer: attention and MLP (or experts), each behind its norm, each added to the residual stream."""

    def __init__(self, shape: ModelShape, layer: int, options: ModelOptions) -> None:
        super().__init__()
        count = shape.norms_per_layer

        def norm(is_there: bool) -> nn.Module | None:
            return make_norm(shape, options.kernels, has_weight=count > 0) if is_there else None

        self.attention_norm = make_norm(shape, options.kernels, has_weight=count > 0)
        self.attention = _attention(shape, options)
        self.attention_post_norm = norm(count == 4)
        self.ffn_norm = norm(count != 1)
        self.feed_forward: FeedForward = make_feed_forward(shape, layer, options)
        self.ffn_post_norm = norm(count == 4)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) to the same."""
        normed = self.attention_norm(x)
        if self.ffn_norm is None:
            side_by_side: torch.Tensor = x + self.attention(normed, cos, sin) + self.feed_forward(normed)
            return side_by_side
        attended = self.attention(normed, cos, sin)
        del normed
        h: torch.Tensor = x + (
            attended if self.attention_post_norm is None else self.attention_post_norm(attended)
        )
        del attended
        added = self.feed_forward(self.ffn_norm(h))
        out: torch.Tensor = h + (added if self.ffn_post_norm is None else self.ffn_post_norm(added))
        return out


def _attention(shape: ModelShape, options: ModelOptions) -> nn.Module:
    if shape.mla is not None:
        return LatentSelfAttention(shape, shape.mla, options.attention, options.kernels)
    return SelfAttention(shape, options.attention, options.kernels)


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
        self.output = Output(shape.hidden_size, shape.vocab_size, bias=False) if has_output else None
        self.keeps_hidden = False
        """True: what stands before the output layer is given, for a loss that calls it."""
        self.is_tied = has_output and has_embedding and shape.ties_embeddings
        self.tie()
        # Rotary tables in fp32, as every implementation keeps them; a model with learned positions has none.
        width = 0 if shape.learned_positions else _rotated(shape) // 2
        for name in ("cos", "sin"):
            self.register_buffer(
                name, torch.empty(options.seq_len, width, dtype=torch.float32), persistent=False
            )

    def tie(self) -> None:
        """Output and embedding share a weight again, once either was replaced; without tied embeddings nothing."""
        if self.is_tied and self.output is not None and self.tok_embeddings is not None:
            self.output.weight = self.tok_embeddings.weight

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Through everything that this stage holds; with labels to the mean loss, of one chunk of tokens at a time."""
        h = self.tok_embeddings(tokens) if self.tok_embeddings is not None else tokens
        if self.pos_embeddings is not None:
            h = h + self.pos_embeddings(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.layers.values():
            h = block(h, self.cos, self.sin)
        if self.norm is not None:
            h = self.norm(h)
        if self.output is None or self.keeps_hidden:
            return h
        out: torch.Tensor = self.output(h) if labels is None else self.output(h, labels)
        return out

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

"""What the attention half of one Megatron-LM layer saves for its backward pass, in bytes for each token.

Read in megatron-core 0.16.1 and Transformer Engine 2.20 (`TE` below). Activations are 16 bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.formulas.layer import SavedBytes
from distdoctor.oom.shape import LatentAttention, ModelShape

ELEMENT = 2
"""Bytes of a bf16 or fp16 value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRun:
    """How attention is computed."""

    unfused: bool
    """Scores are written: TE's UnfusedDotProductAttention, or Megatron's own DotProductAttention."""
    copies_output: bool = False
    """FlashAttention works on (batch, sequence, head): with more than one sequence, its output is copied back to
    Megatron's (sequence, batch, head) and both copies are kept."""
    hidden_dropout: bool = False
    attention_dropout: bool = False
    recomputes_core: bool = False
    """`--recompute-modules core_attn`: from queries, keys and values on."""
    recomputes_norm: bool = False
    """`layernorm`: only where the norm is a module of its own, which TE's LayerNormLinear is not."""
    recomputes_up_projection: bool = False
    """`mla_up_proj`: queries, keys and values of latent attention."""


def residual_saved(shape: ModelShape, *, dropout: bool, keeps_norm: bool = True) -> SavedBytes:
    """What stands around each half of a layer: the norm's input, its output (the input of the linear layer behind
    it), and one byte an element for the mask of bias-dropout-add.

    TE `module/layernorm_linear.py` saves `inputmat` and `ln_out`, the latter as this rank's sequence shard and
    gathered again in backward; masks of dropout are bool (`native_dropout`).
    """
    return SavedBytes(
        split=0, whole=ELEMENT * shape.hidden_size * (1 + keeps_norm) + shape.hidden_size * dropout
    )


def attention_saved(shape: ModelShape, run: AttentionRun) -> SavedBytes:
    """The attention half of a layer: norm, queries, keys, values, attention, output projection, residual."""
    inside = _latent(shape, shape.mla, run) if shape.mla is not None else _grouped(shape, run)
    around = residual_saved(shape, dropout=run.hidden_dropout, keeps_norm=not run.recomputes_norm)
    return around.plus(inside)


def _grouped(shape: ModelShape, run: AttentionRun) -> SavedBytes:
    """Queries, keys and values: TE copies what is no packed layout (`dpa_utils.get_qkv_layout`, then `contiguous`),
    so the mixed projection is freed. Unfused attention repeats keys and values for all heads."""
    queries, keys = shape.num_heads * shape.head_size, shape.num_kv_heads * shape.head_size
    expanded = queries if run.unfused and not run.recomputes_core else keys
    normed = queries + keys if shape.has_qk_norm else 0
    return _core(shape, run, inputs=queries + 2 * expanded + normed, output=queries)


def _latent(shape: ModelShape, mla: LatentAttention, run: AttentionRun) -> SavedBytes:
    """Multi-latent attention (`transformer/multi_latent_attention.py`): outputs of the down-projections and of their
    norms, whole; queries and keys put together from both parts, values made contiguous."""
    queries = shape.num_heads * (mla.nope_head_size + mla.rope_head_size)
    values = shape.num_heads * mla.value_head_size
    low_rank = 2 * mla.kv_lora_rank + mla.rope_head_size + 2 * (mla.q_lora_rank or 0)
    inputs = 0 if run.recomputes_up_projection else 2 * queries + values
    return _core(shape, run, inputs=inputs, output=values).plus(SavedBytes(split=0, whole=ELEMENT * low_rank))


def _core(shape: ModelShape, run: AttentionRun, *, inputs: int, output: int) -> SavedBytes:
    """Attention itself. Fused: log-sum-exp in fp32. Unfused: the fused scale-mask-softmax saves its 16-bit result
    (TE `softmax.py`, Megatron `fusions/fused_softmax.py`); dropout saves a bool mask, and its result is an input
    of the product with the values."""
    keeps_scores = run.unfused and not run.recomputes_core
    scores = ELEMENT + (1 + ELEMENT) * run.attention_dropout
    log_sum_exp = 0 if run.unfused or run.recomputes_core else 4 * shape.num_heads
    outputs = 2 if run.copies_output and not run.unfused and not run.recomputes_core else 1
    return SavedBytes(
        split=ELEMENT * (inputs + outputs * output) + log_sum_exp,
        whole=0,
        scores=scores if keeps_scores else 0,
    )

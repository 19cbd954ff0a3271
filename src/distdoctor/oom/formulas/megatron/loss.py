"""What Megatron-LM's output layer and vocabulary-parallel cross entropy hold.

Source: megatron-core 0.16.1, `tensor_parallel/cross_entropy.py` and `fusions/fused_cross_entropy.py`.
"""

from __future__ import annotations


def loss_bytes(tokens: float, local_vocab: float, *, num_predictions: int = 0) -> float:
    """Bytes at the end of the loss: 16-bit logits, and fp32 logits which become probabilities in place: 6 for each
    logit. Backward is the same: fp32 probabilities become the gradient in place, autograd casts it to 16 bit.

    Each multi-token prediction before it has a loss of its own, whose fp32 probabilities wait: 4 more.
    """
    return tokens * local_vocab * (6 + 4 * num_predictions)


def padded_vocabulary(size: int, *, divisor: int, tp: int) -> int:
    """`size` rounded up to a multiple of divisor x tp (`vocab_size_with_padding`, megatron/training)."""
    multiple = divisor * tp
    return -(-size // multiple) * multiple

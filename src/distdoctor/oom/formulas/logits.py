"""What the loss needs: with a large vocabulary it is often the peak of the whole step."""

from __future__ import annotations

# Pieces into which a chunked loss cuts the tokens (TorchTitan's ChunkedLossWrapper, our reading of its default).
LOSS_CHUNKS = 8


def logits_bytes(
    tokens: float, local_vocab: float, *, compute_bytes: int, frees_logits: bool = False
) -> float:
    """Bytes at the beginning of the loss's backward pass for `tokens` rows of `local_vocab` logits.

    Logits as the model computed them; log-probabilities in fp32; in fp32 the gradient that comes from the loss and
    the one that log-softmax's backward writes (`_log_softmax_backward_data`, which held the peak of every simulated
    8B step): 2 + 4 + 8 = 14 bytes in 16 bit, 16 in fp32. `frees_logits`: the first are dropped before, as in TorchTitan.
    """
    return tokens * local_vocab * ((0 if frees_logits else compute_bytes) + 4 + 8)


def fused_logits_bytes(
    tokens: float, local_vocab: float, *, compute_bytes: int, frees_logits: bool = False
) -> float:
    """The same for a loss that is computed in chunks of tokens."""
    return logits_bytes(
        tokens / LOSS_CHUNKS, local_vocab, compute_bytes=compute_bytes, frees_logits=frees_logits
    )

"""What the loss needs: with a large vocabulary it is often the peak of the whole step."""

from __future__ import annotations

# Pieces into which a chunked loss cuts the tokens (TorchTitan's ChunkedLossWrapper, our reading of its default).
LOSS_CHUNKS = 8


def logits_bytes(
    tokens: float,
    local_vocab: float,
    *,
    compute_bytes: int,
    is_parallel: bool = False,
    frees_logits: bool = False,
    is_chunked: bool = False,
) -> float:
    """Bytes at the beginning of the loss's backward pass for `tokens` rows of `local_vocab` logits.

    Logits as the model computed them (`frees_logits`: dropped before, as in TorchTitan); log-probabilities in fp32; in
    fp32 the gradient that comes from the loss and the one that log-softmax's backward writes
    (`_log_softmax_backward_data`, which held the peak of every simulated 8B step): 2 + 4 + 8 = 14 bytes in 16 bit, 16 in
    fp32. Loss parallelism (`is_parallel`) does both at once and holds one more: `(grad_input + exp(x)) * grad_output`
    (torch/distributed/tensor/parallel/loss.py). Chunked: of one chunk of tokens at a time.
    """
    held = tokens / LOSS_CHUNKS if is_chunked else tokens
    kept = 0 if frees_logits else compute_bytes
    return held * local_vocab * (kept + 4 + (12 if is_parallel else 8))

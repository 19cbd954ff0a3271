"""Is a request the size of logits? Tokens x vocabulary x bytes of one number."""

from __future__ import annotations

from distdoctor.units import GIB, MIB

# Batches times lengths are multiples of this, nearly always. Our own choice.
_TOKENS_STEP = 256
_MIN_BYTES = 128 * MIB

# A size fits some number of tokens by chance as often as the width of what a message may mean covers the distance
# between two such sizes. Above this the match says nothing. Our own threshold.
MAX_CHANCE = 1 / 3


def may_be_logits(requested: int | None) -> bool:
    """Large enough to be looked at: smaller requests are anything."""
    return requested is not None and requested >= _MIN_BYTES


def logits_shape(requested: int | None, vocabularies: tuple[int, ...]) -> str | None:
    """ "8,192 tokens x 128,256 entries in 16 bit"; None when no such size fits, or one would fit by chance too often.

    The allocator rounds large requests up to 2 MiB, and a message prints two decimals: both give the range of tokens.
    """
    if requested is None or requested < _MIN_BYTES or not vocabularies:
        return None
    printed = GIB // 100 if requested >= GIB else MIB // 100
    low, high = requested - 2 * MIB - printed // 2, requested + printed // 2
    chance, found = 0.0, None
    for vocabulary in vocabularies:
        for width in (2, 4):
            step = vocabulary * width * _TOKENS_STEP
            chance += (high - low) / step
            multiple = -(-low // step)
            if found is None and multiple * step <= high:
                tokens = multiple * _TOKENS_STEP
                found = f"{tokens:,} tokens x {vocabulary:,} entries in {8 * width} bit"
    return found if chance <= MAX_CHANCE else None

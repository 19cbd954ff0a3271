"""Is a request the size of logits? Tokens x vocabulary x bytes of one number."""

from __future__ import annotations

from distdoctor.units import GIB, MIB

# Vocabularies of the models that are trained most, as their config.json have them.
COMMON_VOCABULARIES = (
    32000,
    32064,
    50257,
    50304,
    100352,
    128256,
    129280,
    131072,
    151936,
    152064,
    256000,
    262144,
)

# Batches times lengths are multiples of this, nearly always. Our own choice.
_TOKENS_STEP = 256
_MIN_TOKENS = 256
_MIN_BYTES = 128 * MIB


def logits_shape(requested: int | None, vocabularies: tuple[int, ...]) -> str | None:
    """ "8,192 tokens x 128,256 entries in 16 bit", or None. Without known vocabularies the common ones are tried.

    The allocator rounds large requests up to 2 MiB, and a message prints two decimals: both give the range of tokens.
    """
    if requested is None or requested < _MIN_BYTES:
        return None
    printed = GIB // 100 if requested >= GIB else MIB // 100
    low, high = requested - 2 * MIB - printed // 2, requested + printed // 2
    for vocabulary in vocabularies or COMMON_VOCABULARIES:
        for width in (2, 4):
            unit = vocabulary * width
            first = -(-low // unit)
            multiple = -(-first // _TOKENS_STEP) * _TOKENS_STEP
            if multiple >= _MIN_TOKENS and multiple * unit <= high:
                return f"{multiple:,} tokens x {vocabulary:,} entries in {8 * width} bit"
    return None

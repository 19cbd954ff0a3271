"""Sizes of messages as people write them, and the sizes of a sweep. K, M and G are powers of 1024, as in nccl-tests."""

from __future__ import annotations

from distdoctor.errors import UsageError
from distdoctor.units import parse_bytes

# A sweep with more sizes than this was meant otherwise (a step in bytes instead of a factor).
MAX_SIZES = 512

DEFAULT_FACTOR = 4


def parse_sizes(text: str) -> tuple[int, ...]:
    """Sizes of "1K,64K,1M", ascending and each once. Raises UsageError."""
    sizes = sorted({parse_bytes(word) for word in text.split(",") if word.strip()})
    if not sizes:
        raise UsageError("--sizes names no size", hint="write --sizes 1K,1M,64M")
    return tuple(sizes)


def size_sweep(
    smallest: int, largest: int, *, factor: float | None = None, step: int | None = None
) -> tuple[int, ...]:
    """Sizes from `smallest` to `largest` by a factor (4 when neither is given) or a step in bytes.

    As nccl-tests' -b -e -f -i; the largest is in it when the steps meet it. Raises UsageError.
    """
    if smallest > largest:
        raise UsageError(f"the smallest size, {smallest} bytes, is larger than the largest, {largest}")
    if factor is not None and step is not None:
        raise UsageError("--size-factor and --size-step exclude one another")
    if factor is not None and not 1 < factor < float("inf"):
        raise UsageError(f"--size-factor {factor:g} does not grow", hint="write 2 or 4")
    sizes = [smallest]
    while len(sizes) <= MAX_SIZES:
        following = sizes[-1] + step if step is not None else int(sizes[-1] * (factor or DEFAULT_FACTOR))
        if following > largest:
            return tuple(sizes)
        if following == sizes[-1]:
            raise UsageError("the sweep does not advance", hint="take a larger --size-factor")
        sizes.append(following)
    raise UsageError(f"the sweep has more than {MAX_SIZES} sizes", hint="take a larger factor or step")

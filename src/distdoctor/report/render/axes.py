"""Axes that start at zero, and words that fit beside and below them."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Pixels that a character of a label takes, a little more than it does in the usual fonts.
CHARACTER = 6.4
# Of what is beyond a limit, which is bold.
BOLD_CHARACTER = 7.0
MAX_LABEL = 14
# What is less is drawn as zero; powers of ten below it are not exact.
_MIN_STEP = 1e-300


def axis(largest: float) -> tuple[float, list[float]]:
    """The top of an axis from zero that holds `largest`, and its ticks: 1, 2 or 5 times a power of ten apart."""
    rough = largest / 5
    if rough < _MIN_STEP:
        return 1.0, [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    count = math.ceil(largest / step - 1e-9)
    return step * count, [step * index for index in range(count + 1)]


def thinned(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """As many labels as fit without touching, from the left."""
    kept: list[tuple[float, str]] = []
    end = -math.inf
    for x, text in labels:
        half = len(text) * CHARACTER / 2
        if x - half > end + 4:
            kept.append((x, text))
            end = x + half
    return kept


def short(text: str, limit: int = MAX_LABEL) -> str:
    """`text`, cut to `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def rounded(value: float) -> float:
    """`value` to a tenth of a pixel."""
    return round(value, 1)

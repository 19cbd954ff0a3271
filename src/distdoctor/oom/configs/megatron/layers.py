"""Which layers of a Megatron-LM model hold experts: `--moe-layer-freq`."""

from __future__ import annotations

import re

# `2`: every second layer; `([0]*3+[1]*13)`, `[0,1,1]*4`: a pattern of 0 (dense) and 1 (experts).
_TERM = re.compile(r"\[\s*([01](?:\s*,\s*[01])*)\s*\](?:\s*\*\s*(\d{1,4}))?")
MAX_LAYERS = 4096


def expert_pattern(text: str, num_layers: int) -> tuple[bool, ...] | None:
    """For each layer whether it holds experts; None when `text` is no pattern of `num_layers` layers.

    Raises nothing. The pattern is read, never evaluated.
    """
    stripped = text.strip().strip("\"'").strip()
    if stripped.isdigit() and int(stripped) > 0:
        return tuple(layer % int(stripped) == 0 for layer in range(num_layers))
    pattern = _pattern(stripped, depth=0)
    if pattern is None or len(pattern) != num_layers:
        return None
    return pattern


def first_and_every(pattern: tuple[bool, ...]) -> tuple[int, int] | None:
    """(first_dense_layers, every) that give this pattern; None when no such pair does."""
    num = len(pattern)
    if not any(pattern):
        return num, 1
    first = pattern.index(True)
    for every in range(1, num - first + 1):
        if pattern == tuple(layer >= first and (layer - first) % every == 0 for layer in range(num)):
            return first, every
    return None


def _pattern(text: str, *, depth: int) -> tuple[bool, ...] | None:
    if depth > 4 or len(text) > 4 * MAX_LAYERS:
        return None
    while text.startswith("(") and text.endswith(")") and "(" not in text[1:-1]:
        text = text[1:-1].strip()
    layers: list[bool] = []
    for term in map(str.strip, _terms(text)):
        repeat = 1
        group = re.fullmatch(r"\((.*)\)\s*(?:\*\s*(\d{1,4}))?", term, re.DOTALL)
        if group is not None:
            inner = _pattern(group[1], depth=depth + 1)
            repeat = int(group[2] or 1)
        else:
            match = _TERM.fullmatch(term)
            if match is None:
                return None
            inner = tuple(each.strip() == "1" for each in match[1].split(","))
            repeat = int(match[2] or 1)
        if inner is None or len(inner) * repeat + len(layers) > MAX_LAYERS:
            return None
        layers.extend(inner * repeat)
    return tuple(layers)


def _terms(text: str) -> list[str]:
    """Pieces between the plus signs that stand outside parentheses."""
    pieces, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == "+" and depth == 0:
            pieces.append(text[start:place])
            start = place + 1
    return [*pieces, text[start:]]

"""How many parameters a model of a configuration has, where its shape is known, and sizes in names."""

from __future__ import annotations

import re

from distdoctor.oom.shape import Model

_SIZE_IN_NAME = re.compile(r"(?<![A-Za-z0-9.])(\d{1,4}(?:\.\d{1,2})?)\s?([bB])(?![A-Za-z0-9])")


def size_in_name(name: str) -> float | None:
    """Parameters as a name says them: 8e9 of `Qwen3-8B`; None when it names no size, several, or `8x7B`."""
    if re.search(r"\d+x\d", name, re.IGNORECASE):
        return None
    found = {float(number) for number, _ in _SIZE_IN_NAME.findall(name)}
    return found.pop() * 1e9 if len(found) == 1 else None


def parameters_of(model: Model) -> int | None:
    """Number of parameters, from the shape or as stated; None when neither is known."""
    if model.shape is None:
        return model.stated_params
    from distdoctor.oom.parameters import count_parameters

    return count_parameters(model.shape)

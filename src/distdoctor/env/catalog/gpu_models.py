"""Compute capability of a GPU by its model name, for texts that show no more."""

from __future__ import annotations

import functools
import re

from distdoctor.env.catalog.tables import read_table


@functools.cache
def capability_of_model(name: str) -> tuple[int, int] | None:
    """(major, minor) for a model as nvidia-smi prints it ("NVIDIA H100 80GB HBM3" → (9, 0)); None when unknown."""
    for pattern, capability in _models():
        if pattern.search(name):
            return capability
    return None


@functools.cache
def _models() -> tuple[tuple[re.Pattern[str], tuple[int, int]], ...]:
    return tuple(
        (re.compile(rf"(?<![\w-])(?:{row['name']})(?!\w)", re.IGNORECASE), tuple(row["capability"]))
        for row in read_table("gpu_models")["models"]
    )

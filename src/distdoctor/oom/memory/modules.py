"""Whose bytes were alive at the peak? By the module that made them, and what they were for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import ModuleBytes
from distdoctor.oom.memory.log import MemoryLog
from distdoctor.oom.memory.peaks import as_stored

# `layers.7.attention` and `layers.8.attention` are one row.
_NUMBER = re.compile(r"\.\d+(?=\.|$)")
# More rows are no help to a reader. Our own choice.
MAX_ROWS = 60


def bytes_by_module(
    log: MemoryLog,
    categories: Sequence[Category],
    event: int,
    *,
    counted: Callable[[int], int] = as_stored,
    max_rows: int = MAX_ROWS,
) -> tuple[ModuleBytes, ...]:
    """What was alive right after event number `event`, largest first; numbered modules together (`layers.*.mlp`)."""
    alive: dict[int, int] = {}
    made_in: dict[int, str] = {}
    for each in log.events[: event + 1]:
        if each.storage not in made_in:
            storage = log.storages[each.storage]
            made_in[each.storage] = _NUMBER.sub(".*", storage.name or log.places[each.place].module)
        alive[each.storage] = each.num_bytes
    totals: Counter[tuple[str, Category]] = Counter()
    for number, num_bytes in alive.items():
        if num_bytes:
            totals[made_in[number], categories[number]] += counted(num_bytes)
    return tuple(
        ModuleBytes(module=module, category=category, num_bytes=num_bytes)
        for (module, category), num_bytes in totals.most_common(max_rows)
    )

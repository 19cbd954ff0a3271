"""Which files belong to one run? A folder of a rank each is one; the same ranks in another folder are another run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Generic, TypeVar

Item = TypeVar("Item")

# Two folders that share ranks are attempts of one run when they share no more than this share of steps: a run that
# is restarted repeats the few steps since its last checkpoint. Our own threshold.
MAX_REPEATED_SHARE = 0.5


@dataclass(slots=True)
class Run(Generic[Item]):
    """Items of one run, and from which to which step each rank was seen."""

    items: list[Item] = field(default_factory=list)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)


def group_runs(items: Iterable[tuple[Item, str, dict[int, tuple[int, int]]]]) -> list[Run[Item]]:
    """Items as runs; of each item its path and the span of steps of each of its ranks.

    Folders are compared, in the order of their names: one whose ranks are in a run already, with mostly the same
    steps, begins another run.
    """
    folders: dict[str, Run[Item]] = {}
    for item, path, spans in items:
        folder = folders.setdefault(str(PurePath(path).parent), Run())
        folder.items.append(item)
        for rank, span in spans.items():
            folder.spans[rank] = _joined(folder.spans.get(rank), span)
    runs: list[Run[Item]] = []
    for _, folder in sorted(folders.items()):
        run = next((run for run in runs if not _repeats(run, folder)), None)
        if run is None:
            runs.append(folder)
            continue
        run.items += folder.items
        for rank, span in folder.spans.items():
            run.spans[rank] = _joined(run.spans.get(rank), span)
    return runs


def _joined(one: tuple[int, int] | None, other: tuple[int, int]) -> tuple[int, int]:
    return other if one is None else (min(one[0], other[0]), max(one[1], other[1]))


def _repeats(run: Run[Item], folder: Run[Item]) -> bool:
    shared = [rank for rank in folder.spans if rank in run.spans]
    return bool(shared) and overlap(run.spans[shared[0]], folder.spans[shared[0]]) > MAX_REPEATED_SHARE


def overlap(one: tuple[int, int], other: tuple[int, int]) -> float:
    """The share of the shorter of two spans of steps that lies in the longer one; both ends are inside."""
    both = min(one[1], other[1]) - max(one[0], other[0]) + 1
    return both / max(1, min(one[1] - one[0], other[1] - other[0]) + 1)

"""Which files belong to one run? A folder of a rank each is one; the same ranks and steps once more are another run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Generic, TypeVar

Item = TypeVar("Item")

Spans = dict[int, tuple[int, int]]
"""By rank: the first and the last step."""

# Two folders or files that share ranks are attempts of one run when they share no more than this share of steps: a run
# that is restarted repeats the few steps since its last checkpoint. Our own threshold.
MAX_REPEATED_SHARE = 0.5

# A file is compared with so many runs of its folder. Our own bound: nobody reads a report over more.
_MAX_COMPARED = 64

# "bad_rank3.csv" and "bad_rank4.csv" are of one run, "good_rank3.csv" is of another.
_RANK = re.compile(r"rank[_\-=.]?\d{1,7}", re.IGNORECASE)


@dataclass(slots=True)
class Run(Generic[Item]):
    """Items of one run, and from which to which step each rank was seen."""

    items: list[Item] = field(default_factory=list)
    spans: Spans = field(default_factory=dict)
    tellers: dict[int, Item] = field(default_factory=dict)
    """The first item that tells of a rank."""
    families: set[str] = field(default_factory=set)
    """Names of the files without the number of the rank."""

    def add(self, items: Iterable[Item], spans: Spans) -> None:
        """Further items, whose ranks have `spans` together."""
        self.items += items
        for rank, span in spans.items():
            known = self.spans.get(rank)
            self.spans[rank] = span if known is None else (min(known[0], span[0]), max(known[1], span[1]))


def group_runs(
    items: Iterable[tuple[Item, str, Spans]], are_copies: Callable[[Item, Item], bool] | None = None
) -> list[Run[Item]]:
    """Items as runs; of each item its path and the span of steps of each of its ranks.

    Folders are compared, in the order of their names: one whose ranks are in a run already, with mostly the same
    steps, begins another run. With `are_copies`, so are the files of each folder, but for those of which it says that
    they tell the same values.
    """
    folders: dict[str, list[tuple[Item, str, Spans]]] = {}
    for each in items:
        folders.setdefault(str(PurePath(each[1]).parent), []).append(each)
    runs: list[Run[Item]] = []
    for _, files in sorted(folders.items()):
        parts = _whole(files) if are_copies is None else _split(files, are_copies)
        free = list(runs)
        for part in parts:
            run = next((run for run in free if not _repeats(run.spans, part.spans)), None)
            if run is None:
                runs.append(part)
            else:
                run.add(part.items, part.spans)
                # Parts of one folder were told apart already.
                free = [other for other in free if other is not run]
    return runs


def _whole(files: Iterable[tuple[Item, str, Spans]]) -> list[Run[Item]]:
    run: Run[Item] = Run()
    for item, _, spans in files:
        run.add([item], spans)
    return [run]


def _split(
    files: Iterable[tuple[Item, str, Spans]], are_copies: Callable[[Item, Item], bool]
) -> list[Run[Item]]:
    runs: list[Run[Item]] = []
    for item, path, spans in sorted(files, key=lambda each: each[1]):
        family = _RANK.sub("rank", PurePath(path).name)
        fitting = [
            run
            for run in runs[-_MAX_COMPARED:]
            if not _repeats(run.spans, spans) or _is_copy(run, item, spans, are_copies)
        ]
        run = next((run for run in fitting if family in run.families), fitting[0] if fitting else Run())
        if not fitting:
            runs.append(run)
        run.add([item], spans)
        run.families.add(family)
        for rank in spans:
            run.tellers.setdefault(rank, item)
    return runs


def _is_copy(run: Run[Item], item: Item, spans: Spans, are_copies: Callable[[Item, Item], bool]) -> bool:
    tellers = {id(run.tellers[rank]): run.tellers[rank] for rank in spans if rank in run.tellers}
    return all(are_copies(teller, item) for teller in tellers.values())


def _repeats(run: Spans, other: Spans) -> bool:
    shared = next((rank for rank in other if rank in run), None)
    return shared is not None and overlap(run[shared], other[shared]) > MAX_REPEATED_SHARE


def overlap(one: tuple[int, int], other: tuple[int, int]) -> float:
    """The share of the shorter of two spans of steps that lies in the longer one; both ends are inside."""
    both = min(one[1], other[1]) - max(one[0], other[0]) + 1
    return both / max(1, min(one[1] - one[0], other[1] - other[0]) + 1)

"""How notes name ranks: as ranges, the first ones of many, and which ranks of a job have no evidence."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from distdoctor.straggler.facts.reading import Note, NoteKind
from distdoctor.units import fold_ints

# More are not shown in one note. Our own choice: a line or two of a terminal where they do not follow one another.
MAX_SHOWN = 64


def shown_ranks(ranks: Collection[int]) -> str:
    """ "0-3,8", and "…" when there are more than `MAX_SHOWN`."""
    ordered = sorted(set(ranks))
    return fold_ints(ordered[:MAX_SHOWN]) + ("…" if len(ordered) > MAX_SHOWN else "")


def named_ranks(ranks: Collection[int]) -> str:
    """ "rank 3" or "ranks 0-3,8"."""
    return f"rank{'s' if len(set(ranks)) > 1 else ''} {shown_ranks(ranks)}"


def missing_ranks(ranks: Collection[int], world_size: int | None, *, what: str = "file") -> list[Note]:
    """A note of the ranks of a job of `world_size` that are not among `ranks`; none when all are."""
    if world_size is None or world_size <= len(ranks):
        return []
    missing = np.setdiff1d(np.arange(world_size), np.fromiter(ranks, dtype=np.int64, count=len(ranks)))
    return [
        Note(
            kind=NoteKind.MISSING_RANKS,
            text=f"{len(missing)} of {world_size} ranks have no {what} here: {shown_ranks(missing.tolist())}",
            how="give the files of all ranks; who is not seen cannot be ruled out",
        )
    ]

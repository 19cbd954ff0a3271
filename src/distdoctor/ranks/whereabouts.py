"""Which rank is elsewhere, although all of them entered the same step?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from distdoctor.ranks.watchdog import Whereabouts

# Where a rank that waits for its peers is: in torch's call, or in our own loop around it.
_WAITING_IN = frozenset(("torch", "distdoctor"))


def apart_from_others(where: Sequence[Whereabouts]) -> tuple[Whereabouts, ...]:
    """Ranks whose main thread is in other code, while the others wait inside torch or in our loop.

    Empty when all are elsewhere or none is: then nobody stands out. A rank that waits at another place of our loop
    is ahead of the others and not the cause.
    """
    apart = tuple(each for each in where if not _waits(each))
    return apart if apart and len(apart) < len(where) else ()


def words_of(where: Whereabouts) -> str:
    """ "train.py line 72, in load_batch"."""
    return f"{PurePath(where.file).name} line {where.line}, in {where.function}"


def _waits(where: Whereabouts) -> bool:
    return not _WAITING_IN.isdisjoint(PurePath(where.file).parts)

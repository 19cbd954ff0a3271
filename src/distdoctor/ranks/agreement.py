"""Were all ranks of a launch told to do the same? Ranks that were not wait for one another in different places."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from distdoctor.ranks.greeting import decode
from distdoctor.units import fold_ints

# Some sixty options of some characters each. Our own bound.
MAX_TOLD_BYTES = 64 << 10

# Options, and values of each, that get words. Our own bounds.
_MAX_OPTIONS = 4
_MAX_VALUES = 4
_MAX_CHARACTERS = 60


class ToldOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one rank was told to do, as names and short texts."""

    options: dict[str, str]
    """Options as they are typed."""
    follows: dict[str, str] = {}
    """What was made of them and of files beside: it is looked at where the options agree."""


def read_options(told: Mapping[int, bytes]) -> dict[int, ToldOptions]:
    """What ranks told, by rank; what cannot be read is left out, for a peer is not trusted."""
    decoded = {rank: decode(data, ToldOptions, max_bytes=MAX_TOLD_BYTES) for rank, data in told.items()}
    return {rank: options for rank, options in decoded.items() if options is not None}


def difference(told: Mapping[int, ToldOptions]) -> str:
    """`the ranks were started with different options: --model is tiny on ranks 0,2-3, llama3-8b on rank 1`; empty
    where they agree."""
    differing = _differing({rank: each.options for rank, each in told.items()})
    differing = differing or _differing({rank: each.follows for rank, each in told.items()})
    if not differing:
        return ""
    shown = "; ".join(f"{name} is {_values(ranks)}" for name, ranks in differing[:_MAX_OPTIONS])
    left = len(differing) - _MAX_OPTIONS
    more = f"; and {left} more" if left > 0 else ""
    return f"the ranks were started with different options: {shown}{more}"


def _differing(told: Mapping[int, Mapping[str, str]]) -> list[tuple[str, dict[str, list[int]]]]:
    """Names of which ranks told several values → value → its ranks."""
    names = dict.fromkeys(name for each in told.values() for name in each)
    found = []
    for name in names:
        ranks: dict[str, list[int]] = {}
        for rank, each in sorted(told.items()):
            ranks.setdefault(each.get(name, "not known there"), []).append(rank)
        if len(ranks) > 1:
            found.append((name, ranks))
    return found


def _values(ranks: Mapping[str, list[int]]) -> str:
    """The value of most ranks first."""
    largest = sorted(ranks.items(), key=lambda each: (-len(each[1]), each[1][0]))
    shown = ", ".join(f"{_short(value)} on {_who(who)}" for value, who in largest[:_MAX_VALUES])
    left = len(largest) - _MAX_VALUES
    return f"{shown}, and {left} other values" if left > 0 else shown


def _who(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {fold_ints(ranks)}"


def _short(value: str) -> str:
    return value if len(value) <= _MAX_CHARACTERS else f"{value[: _MAX_CHARACTERS - 1]}…"

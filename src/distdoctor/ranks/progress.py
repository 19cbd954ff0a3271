"""How far a run on ranks is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is being done, as number `done` (from 0) of `total`."""

    text: str
    done: int
    total: int
    left_s: float
    """At most this long: the rest of the time limit."""

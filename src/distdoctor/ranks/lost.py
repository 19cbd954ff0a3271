"""What is known of ranks for which the others waited in vain, when the work of a launch ended before its plan."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Lost(str, Enum):
    """What is known of a rank that holds the others up."""

    STOPPED = "is stopped"
    GONE = "is gone"
    FROZEN = "does not answer"
    LATE = "has not arrived, and runs"
    UNKNOWN = "has not arrived"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRank:
    """One rank for which the others waited in vain."""

    rank: int
    state: Lost
    host: str | None = None
    pid: int | None = None
    last_phase: str | None = None
    doing: str | None = None
    """Where its main thread is, "train.py line 72, in load_batch"; None when that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The ranks' work ended before its plan: a fault, Ctrl-C, or the time limit."""

    reason: str
    phase: str | None
    """What was being done."""
    lost: tuple[LostRank, ...] = ()
    """Who is missing or frozen."""
    inside: tuple[int, ...] = ()
    """Ranks that sat in the phase and waited."""
    by_user: bool = False
    """Ctrl-C, or the launcher ended the job though no rank was found at fault."""
    waited_s: float | None = None
    errors: tuple[tuple[int, str], ...] = ()
    """(rank, text) of ranks that could not go on, in the order in which they said so."""
    only_this_rank: bool = False
    """The store was lost, so that one rank speaks for itself alone."""

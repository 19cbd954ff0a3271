"""Point-to-point bandwidth between pairs of ranks, each direction by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTime:
    """One direction of one pair: the best of its repeats, for noise only makes things slower."""

    source: int
    """Global rank that sends."""
    target: int
    best_us: float
    """From the first byte handed in until the acknowledgement is back at the sender."""
    repeats_us: tuple[float, ...] = ()
    concurrent_pairs: int = 1
    """Pairs that ran at the same time, this one included."""
    confirmed: bool = False
    """Measured again in the round that confirms suspects, beside control pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """All pairs that were measured."""

    size_bytes: int
    ranks: tuple[int, ...]
    """Ranks that took part: all, or one for each host and rail."""
    pairs: tuple[PairTime, ...]
    complete: bool = True
    """Every ordered pair of `ranks` that the plan held is there."""
    is_sampled: bool = False
    """Pairing rounds instead of all pairs."""

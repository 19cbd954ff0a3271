"""Each rank's own time and waiting time: who arrives late, without comparing clocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One rank in one group over the isolated iterations at a small size; microseconds.

    The last to arrive waits least, so that waiting and own time together tell who is late. Medians over
    iterations; at small sizes neither depends on a link's bandwidth.
    """

    rank: int
    own_us: float
    """Median of the time from one collective's end until this rank has handed in the next."""
    wait_us: float
    """Median of the time in barrier and collective beyond the shortest of any rank in the same iteration."""
    last_share: float
    """Share of the iterations in which this rank waited least, from 0 to 1."""
    iterations: int
    own_p90_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalsOfGroup:
    """All ranks of one group, one collective at one size."""

    group_label: str
    collective: str
    size_bytes: int
    arrivals: tuple[Arrival, ...]
    """By rank."""
    transfer_us: float
    """Median over iterations of the shortest time in the collective: what the transfer takes."""

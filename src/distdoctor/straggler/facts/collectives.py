"""Times of single collectives: the rank that comes last spends the least time in one.

A collective ends on all ranks at once, within microseconds, so the duration on a rank less the shortest on any rank
of the group is how long it waited; no clocks are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.places import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The ranks of one communicator."""

    name: str
    ranks: tuple[int, ...] | None = None
    """None: the evidence does not list them."""
    size: int | None = None
    what: str | None = None
    """What it is for, as the evidence says: "mesh_dp", "default_pg"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTimings:
    """One row for each collective on each rank; arrays have shape (rows,).

    Rows of equal (group, seq) are one collective. `seq` counts within the group and is the same on all its ranks.
    """

    source: str
    places: tuple[Place, ...]
    groups: tuple[Group, ...]
    ops: tuple[str, ...]
    """Names of collectives: "all_reduce", "all_gather", "send_recv"."""
    rank: NDArray[np.int32]
    group: NDArray[np.int32]
    """Index into `groups`."""
    op: NDArray[np.int32]
    """Index into `ops`."""
    seq: NDArray[np.int64]
    duration_us: NDArray[np.float32]
    step: NDArray[np.int64]
    """Training step; -1: not known."""
    num_bytes: NDArray[np.int64]
    """Size of the message on this rank; -1: not known."""
    end_s: NDArray[np.float64] | None = None
    """When it ended by the host's own clock, seconds since 1970 UTC."""
    world_size: int | None = None

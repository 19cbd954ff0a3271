"""Times of ranks × steps × sections: the evidence from which a slow rank can be named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.sections import Section

Times = NDArray[np.float32]
"""Milliseconds, shape (ranks, steps); NaN: not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimings:
    """What one recording, trace set or log says of each rank and step.

    `sections` may be a mapping that reads a section from files when it is asked for, so that 16,384 ranks of
    5,000 steps fit into memory: ask for one at a time, and let it go.
    """

    source: str
    """The kind of evidence in words: "Kineto traces", "TorchTitan structured logs"."""
    places: tuple[Place, ...]
    """One a row, by rank in ascending order."""
    steps: NDArray[np.int64]
    """Step numbers, ascending, shape (steps,)."""
    sections: Mapping[Section, Times]
    started_s: NDArray[np.float64] | None = None
    """When each step began, seconds since 1970 UTC, shape (steps,); NaN where not known."""
    world_size: int | None = None
    """As the evidence says; None: not said. More than there are places: ranks are missing."""
    told_again: float = 0.0
    """Share of all rows that later rows of the same rank and step took the place of."""

    @property
    def num_ranks(self) -> int:
        """Ranks whose times are here."""
        return len(self.places)

    @property
    def num_steps(self) -> int:
        """Steps of which at least one rank has a time."""
        return len(self.steps)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Global ranks, in the order of rows."""
        return tuple(place.rank for place in self.places)

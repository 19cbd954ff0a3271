"""What the analysis of ranks × steps found, before anybody puts it into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.peers import Peers
from distdoctor.straggler.analysis.ranks.blocks import RankPattern
from distdoctor.straggler.analysis.ranks.bursts import Rhythm
from distdoctor.straggler.analysis.ranks.cost import Cost
from distdoctor.straggler.analysis.ranks.effects import Effects
from distdoctor.straggler.analysis.ranks.hosts import SlowHost
from distdoctor.straggler.analysis.ranks.kinds import TwoKinds
from distdoctor.straggler.analysis.ranks.onset import Stretch
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.analysis.ranks.rotation import Rotation
from distdoctor.straggler.analysis.ranks.stages import HeavyGroup
from distdoctor.straggler.analysis.ranks.standout import Standout
from distdoctor.straggler.analysis.ranks.threshold import Threshold
from distdoctor.straggler.facts.sections import Section


class Pattern(Enum):
    """When a rank is slow."""

    PERSISTENT = "all the time"
    SINCE = "since a step, to the end"
    UNTIL = "from the start to a step"
    STRETCH = "for a stretch"
    INTERMITTENT = "now and then"


class Gate(Enum):
    """What must hold before a rank is accused; the value says what is wrong when it does not."""

    STEPS = "there are too few steps"
    PEERS = "there are too few ranks to compare with"
    NOISE = "its steps are too noisy to be sure"
    LASTING = "it is not so in both halves of the time"
    WAIT = "it waits as long as its peers do, which a slow rank would not"
    SHARE = "it is less than 1 % of the step"
    KIND = "it may be a pipeline stage or another kind of rank: no parallel coordinates are told"
    UNEVEN = "no other rank holds the same experts or the same part of the sequences, which may be more work"
    MATES = "all ranks of its tensor or context parallel group take as long: it may wait for one of them in its own time"
    HALF = "as many of its peers take as long as it does"
    NUMBERING = "it follows its peers in other steps than its own: its steps seem to be counted differently"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A rank that crossed the threshold. Accused only when no gate failed."""

    row: int
    rank: int
    pattern: Pattern
    effect: float
    """Relative to its peers, in the stretch; of an intermittent one in its bursts."""
    excess_ms: float
    """A step; of an intermittent one in its bursts."""
    stretch: Stretch
    """Columns of the steps that were judged."""
    standard_error: float
    wait_deficit_ms: float | None = None
    """How much less than its peers it waits; None: waiting was not measured."""
    wait_is_derived: bool = False
    is_of_step: bool = False
    """`effect` is a share of the step: only a small part of it is own time that was measured."""
    sections: Mapping[Section, float] = field(default_factory=dict)
    """By how many ms a step each section is longer than the peers'."""
    rhythm: Rhythm | None = None
    num_bursts: int = 0
    burst_columns: tuple[int, ...] = ()
    failed: tuple[Gate, ...] = ()

    @property
    def is_accused(self) -> bool:
        """Every gate was passed."""
        return not self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """All that ranks × steps show. Arrays over steps have the length of `steps`, warm-up left out."""

    basis: Basis
    steps: NDArray[np.int64]
    started_s: NDArray[np.float64] | None
    num_warm_up: int
    peers: Peers
    effects: Effects
    threshold: Threshold
    peer_ms: NDArray[np.float32]
    """What ranks of each group took, shape (groups, steps)."""
    suspects: tuple[Suspect, ...] = ()
    """Worst first; accused ones before others."""
    hosts: tuple[SlowHost, ...] = ()
    """Accused instead of their ranks."""
    pattern: RankPattern | None = None
    """Of the slow ranks, where it may be another kind of ranks and no coordinates tell: then nobody is accused."""
    kinds: TwoKinds | None = None
    """Ranks that should be alike and are of two kinds, neither of which is the exception."""
    rounding: float = 0.0
    """Differences up to here may come from how times are rounded; `threshold` is never below it."""
    untold: float | None = None
    """The share of a step that own parts and waiting leave open; None: it cannot be told."""
    parts_even_out: bool = False
    """Own parts differ between ranks and their sum does not: one of them holds waiting."""
    heavy: tuple[HeavyGroup, ...] = ()
    rotation: Rotation | None = None
    standout: Standout | None = None
    """A rank that is not accused and yet cannot be cleared."""
    cost: Cost | None = None
    own_share: float | None = None
    scale_ms: float | None = None
    """What effects are relative to; None: to what the peers took."""
    wait_ms: NDArray[np.float32] | None = None
    """Median waiting of each rank in the steps in which the accused are slow (else in all), shape (ranks,)."""
    own_ms: NDArray[np.float32] | None = None
    """Median own time of each rank in the same steps."""
    wait_is_derived: bool = False
    step_ms: float | None = None
    own_sections: tuple[Section, ...] = ()
    heat: NDArray[np.float32] | None = None
    """Excess for the picture, shape (ranks shown, stretches of steps)."""
    heat_rows: tuple[int, ...] = ()
    heat_edges: tuple[int, ...] = ()
    curves: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    """Own time in each step of the first accused rows, ms, shape (steps,)."""

    @property
    def accused(self) -> tuple[Suspect, ...]:
        """Ranks that passed every gate and are not told by their host."""
        folded = {row for host in self.hosts for row in host.rows}
        return tuple(each for each in self.suspects if each.is_accused and each.row not in folded)

    @property
    def num_steps(self) -> int:
        """Steps judged."""
        return len(self.steps)

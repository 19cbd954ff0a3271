"""One value a step for the whole job, as one rank's log prints it: it can show a change, never a rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray


class SeriesKind(Enum):
    """Whether more is worse."""

    TIME = "time"
    RATE = "rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeries:
    """Step times or a throughput over steps, in the order of steps; arrays have shape (values,)."""

    name: str
    """As the log calls it: "elapsed time per iteration", "throughput"."""
    kind: SeriesKind
    unit: str
    """Of `values`: "ms" for times, "samples/s", "tokens/s" for rates."""
    source: str
    """The kind of log in words."""
    path: str
    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    utc_s: NDArray[np.float64] | None = None
    """When each line was written, seconds since 1970 UTC, NaN where not known."""
    zone_known: bool = False
    """False: the log's clock has no zone, and `utc_s` takes it as UTC."""
    steps_per_value: int | None = None
    """A value is the mean over so many steps; None: not known."""
    printed_by: str | None = None
    """Who printed it, as far as the log says: "rank 0", "the last rank", "each of 8 ranks"."""
    host: str | None = None
    splits: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Parts that the same lines tell, in the unit of a time series: "data", "forward" …; NaN where a line lacks it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extremes:
    """The least and the most that any rank took, at each report: Megatron-LM's `minmax` timers, straggler lines."""

    name: str
    """The timer: "forward-compute", "round trip"."""
    source: str
    path: str
    unit: str
    steps: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    low_rank: NDArray[np.int32] | None = None
    """Who had it; None where only the values are printed, -1 for single ones."""
    high_rank: NDArray[np.int32] | None = None
    more_is_worse: bool = True
    holds_waiting: bool = False
    """Known to hold waiting for all that do the same work, so that it is equal on all of them, whoever is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolClaim:
    """What another tool's log already says of slow ranks; a claim, not a measurement of ours."""

    tool: str
    text: str
    path: str
    line: int | None = None
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    scores: Mapping[int, float] = field(default_factory=dict)
    """By rank, in the tool's own measure."""
    rule: str = ""
    """What the tool's rule can and cannot see, in words."""

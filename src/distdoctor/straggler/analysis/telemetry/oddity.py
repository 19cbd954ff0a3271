"""One GPU that is unlike the others in one respect, and from which difference on it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from distdoctor.straggler.facts.telemetry import Metric

# At most this share of the GPUs may be the odd ones; more are a group with other work, or the way the job runs.
ODD_SHARE = 0.25

# GPUs of one model differ: clocks at the same power limit by up to 8 % in published studies of fleets ("Not All GPUs
# Are Created Equal", SC 2022). Beyond that: our own thresholds.
FLOORS: Mapping[Metric, float] = {
    Metric.SM_CLOCK: 0.10,
    Metric.POWER: 0.15,
    Metric.SM_ACTIVE: 0.15,
    Metric.TENSOR_ACTIVE: 0.15,
}
TEMPERATURE_FLOOR_C = 10.0


class Sign(Enum):
    """What is unlike the others."""

    THROTTLED = "throttled"
    POWER_CAPPED = "power capped"
    SYNC_BOOST = "sync boost"
    HELD_BY_HEAT = "held back by heat"
    LOW_CLOCK = "low clock"
    HELD_BY_POWER = "held back by power"
    HOT = "hot"
    WORKS_MORE = "works while others wait"
    WORKS_LESS = "works less"
    IDLE = "idle"
    LINK_ERRORS = "link errors"
    XID = "Xid"
    ROW_REMAP = "row remapping failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """One GPU in one respect."""

    sign: Sign
    row: int
    """Of the panel."""
    value: float
    """In the unit of the metric; of reasons and of being held back a share of the time from 0 to 1."""
    peers: float
    """The median of the others."""
    metric: Metric
    share: float | None = None
    """In which share of the time."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonReason:
    """A throttle reason that so many GPUs have that it tells none from the others."""

    reason: str
    num_gpus: int
    of: int

"""Where a rank runs, and which part of the model and of the batch it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distdoctor.report.model import GpuRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One rank. None: the evidence does not say."""

    rank: int
    host: str | None = None
    """The machine, never the pod."""
    local_rank: int | None = None
    gpu: GpuRef | None = None
    pod: str | None = None
    coords: Mapping[str, int] = field(default_factory=dict)
    """Parallel coordinates by dimension: `{"pp": 1, "dp": 3, "tp": 0}`. Names are those of the evidence, in lower
    case: pp, dp, dp_replicate, dp_shard, tp, cp, ep. Empty: not known."""

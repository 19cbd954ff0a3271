"""From a failure to the room on its card: who else is there, what a limit leaves, and how far the formula was off."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.catalog.gpus import Cluster, parse_cluster
from distdoctor.oom.facts.estimate import Estimate
from distdoctor.oom.failed import Failure
from distdoctor.oom.search.room import Room
from distdoctor.units import MIB

# Totals of one type differ by ECC and driver; beyond this share it is another card. Our own choice.
SAME_CARD = 0.05
# A measured need so far above the estimate is another job than the one that was described, and stretching the estimate
# to it would only hide that. Our own choice, as for `oom estimate --explained`.
MAX_FACTOR = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A failure beside the estimate of the same job. Bytes."""

    wanted: float
    """Allocated and asked for when it failed: the least that its peak is."""
    estimated: float
    """The estimate's peak."""
    factor: float
    """By which the estimate is stretched; 1: it already covers the failure."""
    is_other_job: bool
    """More than formulas are off by: the job runs with other settings, or is not sharded as intended."""


def cluster_of(failure: Failure) -> Cluster | None:
    """The card that the message tells of, by its size."""
    if not failure.total_bytes:
        return None
    return parse_cluster(f"{failure.total_bytes // MIB}MiB")


def room_of(cluster: Cluster, estimate: Estimate | None = None, failure: Failure | None = None) -> Room:
    """The room on `cluster`'s card; with what a failure on the same type of card shows."""
    capacity = float(cluster.type.total_bytes)
    if failure is None:
        return Room(capacity=capacity)
    factor = 1.0
    if estimate is not None and (measured := measured_of(estimate, failure)) is not None:
        factor = measured.factor
    if not _is_same_card(cluster, failure):
        return Room(capacity=capacity, factor=factor)
    if failure.allowed_bytes:
        capacity = min(capacity, float(failure.allowed_bytes))
    return Room(
        capacity=capacity,
        held_by_others=float(failure.others_bytes or 0),
        factor=factor,
        outside=None if failure.outside_bytes is None else float(failure.outside_bytes),
    )


def measured_of(estimate: Estimate, failure: Failure) -> Measured | None:
    """The two peaks; None where the estimate holds states only."""
    if not estimate.is_whole:
        return None
    peak = estimate.worst.peak.num_bytes
    over = failure.wanted_bytes / peak if peak else 1.0
    is_other = over > MAX_FACTOR
    return Measured(
        wanted=failure.wanted_bytes,
        estimated=peak,
        factor=1.0 if is_other else max(1.0, over),
        is_other_job=is_other,
    )


def _is_same_card(cluster: Cluster, failure: Failure) -> bool:
    if not failure.total_bytes:
        return True
    return abs(failure.total_bytes - cluster.type.total_bytes) <= SAME_CARD * cluster.type.total_bytes

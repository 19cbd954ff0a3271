"""Why the request failed, of the causes that a snapshot can tell apart: exactly one, and it is the critical finding."""

from __future__ import annotations

from enum import Enum

from distdoctor.oom.snapshots.categories import Category
from distdoctor.oom.snapshots.holders import share
from distdoctor.oom.snapshots.pools import PoolUse
from distdoctor.oom.snapshots.view import SnapshotView, bytes_from_driver
from distdoctor.units import GIB, MIB

# Free memory in pieces counts as the cause from this share of what the process could have. The same tenth separates
# fragmentation from capacity in out-of-memory messages; our own threshold.
FRAGMENTED_SHARE = 0.1

# FSDP with resharding holds the unit that computes and the one that is fetched ahead. From this share of live memory
# on, more is unsharded than that for any model of a dozen layers. Our own threshold.
UNSHARDED_SHARE = 0.3

# Growth counts as the cause from this share of live memory. Our own threshold.
GROWN_SHARE = 0.2

# Memory outside torch's allocator that a process takes itself: context, libraries, NCCL, 0.5 to 3 GiB by experience;
# from here on it is something else. Our own threshold.
OUTSIDE_BYTES = 5 * GIB


class Cause(str, Enum):
    """Why the request failed."""

    NO_OOM = "no failure recorded"
    TOO_LARGE = "larger than everything"
    NOT_CAPACITY = "memory was free"
    FRAGMENTED = "free in pieces"
    OTHER_POOL = "free in other pools"
    OUTSIDE = "held outside torch"
    GROWN = "grew from step to step"
    UNSHARDED = "unsharded parameters"
    CAPACITY = "in use"


def cause_of(view: SnapshotView) -> Cause:
    """The one cause, by the first rule that the numbers fulfil."""
    oom, reach = view.moment.oom, view.reach
    if oom is None or reach is None:
        return Cause.NO_OOM
    if oom.device_free >= bytes_from_driver(oom.requested):
        return Cause.NOT_CAPACITY
    if oom.requested > reach:
        return Cause.TOO_LARGE
    own = view.own_pool
    if own is not None and (would_fit_joined(view, own) or is_kept_whole(view, own)):
        return Cause.FRAGMENTED
    if would_fit_elsewhere(view):
        return Cause.OTHER_POOL
    outside = outside_bytes(view)
    if outside is not None and outside >= OUTSIDE_BYTES:
        return Cause.OUTSIDE
    live = view.moment.live_bytes
    if share(sum(each.num_bytes for each in view.steps.growths), live) >= GROWN_SHARE:
        return Cause.GROWN
    if share(view.of(Category.UNSHARDED), live) >= UNSHARDED_SHARE:
        return Cause.UNSHARDED
    return Cause.CAPACITY


def would_fit_joined(view: SnapshotView, own: PoolUse) -> bool:
    """Would the request fit if the free pieces of its own store, and what the driver had left, were one piece?"""
    oom, reach = view.moment.oom, view.reach
    if oom is None or reach is None or own.largest >= oom.requested > 0:
        return False
    if own.free >= oom.requested:
        return True
    return own.free_pages + oom.device_free >= oom.requested and own.free >= FRAGMENTED_SHARE * reach


def is_kept_whole(view: SnapshotView, own: PoolUse) -> bool:
    """Was there a free piece that was large enough, and that max_split_size forbids to split?"""
    oom, limit = view.moment.oom, view.snapshot.settings.max_split_size
    return oom is not None and limit is not None and own.largest >= max(limit, oom.requested)


def is_unexplained(view: SnapshotView) -> bool:
    """Was there a free piece that was large enough and nothing that forbids its use? Then the moment is not exact."""
    oom, own = view.moment.oom, view.own_pool
    if oom is None or own is None or not oom.requested:
        return False
    return own.largest >= oom.requested and not is_kept_whole(view, own)


def would_fit_elsewhere(view: SnapshotView) -> bool:
    """Would the request fit into what other pools and streams hold free, together with what the driver had left?"""
    oom, reach = view.moment.oom, view.reach
    if oom is None or reach is None:
        return False
    free = sum(each.free_pages for each in other_pools(view))
    own = view.own_pool.free_pages if view.own_pool is not None else 0
    return free + own + oom.device_free >= oom.requested and free >= max(
        FRAGMENTED_SHARE * reach, min(oom.requested, 64 * MIB)
    )


def other_pools(view: SnapshotView) -> tuple[PoolUse, ...]:
    """Every store but the one that the request could have been served from."""
    return tuple(each for each in view.pools if each is not view.own_pool)


def outside_bytes(view: SnapshotView) -> int | None:
    """Bytes of the device that neither torch's allocator held nor the driver had left; None when not known."""
    if view.capacity_bytes is None or view.reach is None:
        return None
    return max(0, view.capacity_bytes - view.reach)

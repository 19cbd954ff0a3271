"""Was the memory that was missing free in another pool or stream, which torch never lends?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.snapshot.base import (
    SnapshotCheck,
    evidence,
    not_seen,
    place_of,
    request_evidence,
    scope,
    severity_for,
)
from distdoctor.oom.snapshots.cause import Cause, cause_of, other_pools, would_fit_elsewhere
from distdoctor.oom.snapshots.pools import PoolUse
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.oom.snapshots.words import pool_text
from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Team
from distdoctor.units import format_bytes

# Pools that are named in the evidence.
MAX_POOLS = 3


def check_other_pool(view: SnapshotView) -> Sequence[Outcome]:
    """A finding when other pools and streams held free what the request lacked."""
    if view.moment.unplaced_bytes:
        return [not_seen("this snapshot does not say where its segments lie")]
    others = other_pools(view)
    free = sum(each.free for each in others)
    if view.moment.oom is None:
        reason = f"the history records no request that failed ({format_bytes(free)} are free in all pools)"
        return [not_seen(reason, how="dump the snapshot where the error is caught; docs/memory-snapshots.md")]
    if cause_of(view) is Cause.NOT_CAPACITY or not would_fit_elsewhere(view):
        return [Passed(detail=f"{format_bytes(free)} free in other pools and streams")]
    return [_found(view, sorted(others, key=lambda each: -each.free))]


def _found(view: SnapshotView, others: Sequence[PoolUse]) -> Found:
    free = sum(each.free for each in others)
    is_private = others[0].key.is_private
    return Found(
        key="private" if is_private else "stream",
        title=f"{place_of(view)}: {format_bytes(free)} free in other pools, which torch does not lend",
        severity=severity_for(view, Cause.OTHER_POOL),
        confidence=Confidence.HIGH if view.moment.is_exact else Confidence.MEDIUM,
        evidence=(*request_evidence(view), *(_pool(view, each) for each in others[:MAX_POOLS] if each.free)),
        explanation=(
            "Free memory belongs to the pool and the stream that it was first allocated for. "
            + (
                "Private pools are made by CUDA graphs and torch.cuda.MemPool and keep their memory as long as they live."
                if is_private
                else "Tensors that are made on a side stream (communication, copies) fill that stream's own pool."
            )
        ),
        actions=_actions(is_private=is_private),
        scope=scope(view),
        cause_class="fragmentation:other-pool",
        fault=Fault.USER_CODE,
    )


def _pool(view: SnapshotView, use: PoolUse) -> Evidence:
    text = f"{pool_text(use.key)}: {format_bytes(use.free)} of {format_bytes(use.reserved)} free"
    return evidence(view, text, use.free)


def _actions(*, is_private: bool) -> tuple[Action, ...]:
    if is_private:
        text = (
            "share one pool between graphs (`torch.cuda.graph(..., pool=first.pool())`), capture fewer shapes, "
            "and drop graphs that are not replayed any more"
        )
    else:
        text = (
            "allocate on the stream that computes and hand over with events, or bound how far the side stream runs "
            "ahead (FSDP: limit_all_gathers, fewer prefetched units)"
        )
    return (Action(team=Team.JOB_OWNER, text=text),)


CHECK = SnapshotCheck(
    id="oom-snapshot-other-pool", title="free memory in other pools and streams", run=check_other_pool
)

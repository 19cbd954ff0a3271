"""Was there enough free memory in the request's own pool, only in too small pieces?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.snapshot.base import (
    SnapshotCheck,
    evidence,
    not_seen,
    percent,
    place_of,
    request_evidence,
    scope,
    severity_for,
)
from distdoctor.oom.snapshots.cause import Cause, is_kept_whole, is_unexplained, would_fit_joined
from distdoctor.oom.snapshots.pools import PoolUse, rounding_bytes
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Team
from distdoctor.units import format_bytes


def check_fragmentation(view: SnapshotView) -> Sequence[Outcome]:
    """A finding when the free pieces together would have held the request."""
    if view.moment.unplaced_bytes:
        return [not_seen("this snapshot does not say where its segments lie")]
    oom = view.moment.oom
    pieces = sum(each.in_pieces for each in view.pools)
    reserved = view.moment.reserved
    seen = (
        f"{format_bytes(pieces)} free in pieces, {percent(pieces, reserved)} of {format_bytes(reserved)} held"
    )
    if oom is None:
        reason = f"the history records no request that failed ({seen})"
        return [not_seen(reason, how="dump the snapshot where the error is caught; docs/memory-snapshots.md")]
    own = view.own_pool
    if own is None:
        return [Passed(detail="the pool of the request held nothing")]
    if is_kept_whole(view, own):
        return [_kept_whole(view, own)]
    if is_unexplained(view):
        size = format_bytes(own.largest)
        return [
            not_seen(f"a free piece of {size} would have held the request: the reconstruction is not exact")
        ]
    if not would_fit_joined(view, own):
        return [Passed(detail=f"{seen}; too little for {format_bytes(oom.requested)} even in one piece")]
    return [_found(view, own, oom.requested)]


def _kept_whole(view: SnapshotView, own: PoolUse) -> Found:
    limit = view.snapshot.settings.max_split_size or 0
    return Found(
        key="kept-whole",
        title=f"{place_of(view)}: a free piece of {format_bytes(own.largest)} may not be split",
        severity=severity_for(view, Cause.FRAGMENTED),
        confidence=Confidence.MEDIUM,
        evidence=(
            *request_evidence(view),
            evidence(
                view,
                f"max_split_size is {format_bytes(limit)}: larger pieces serve only requests of about their size",
            ),
        ),
        explanation=(
            "max_split_size_mb keeps large free pieces whole. A request that is smaller by more than 20 MiB does not get "
            "one, and fails although the memory is there."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="take max_split_size_mb out of the allocator's settings; expandable segments do the same work",
                command="export PYTORCH_ALLOC_CONF=expandable_segments:True PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            ),
        ),
        scope=scope(view),
        cause_class="fragmentation",
        fault=Fault.CONFIG,
    )


def _found(view: SnapshotView, own: PoolUse, requested: int) -> Found:
    is_expandable = _is_expandable(view)
    confidence = Confidence.HIGH if view.moment.is_exact and own.free >= requested else Confidence.MEDIUM
    return Found(
        key="own-pool",
        title=f"{place_of(view)}: {format_bytes(own.free)} free, in pieces of {format_bytes(own.largest)} at most",
        severity=severity_for(view, Cause.FRAGMENTED),
        confidence=confidence,
        evidence=(*request_evidence(view), *_pieces(view, own, requested), *_rounding(view)),
        explanation=(
            "The caching allocator held enough free memory for the request, scattered between blocks in use. Sizes "
            "that change from step to step leave such holes. "
            + (
                "Expandable segments are already on, so that holes below a page of 2 MiB, or pages of another pool, remain."
                if is_expandable
                else "With expandable segments a pool is one range that grows, and whole free pages can be moved."
            )
        ),
        actions=_actions(is_expandable=is_expandable),
        scope=scope(view),
        cause_class="fragmentation",
        fault=Fault.CONFIG,
    )


def _pieces(view: SnapshotView, own: PoolUse, requested: int) -> tuple[Evidence, ...]:
    text = (
        f"the request's own pool: {format_bytes(own.free)} free in {len(own.gaps)} pieces of {own.num_segments} segments, "
        f"the largest {format_bytes(own.largest)}"
    )
    return (
        evidence(
            view,
            text,
            own.largest,
            expected=f"a piece of {format_bytes(requested)}",
            expected_source="the failed request",
        ),
    )


def _rounding(view: SnapshotView) -> tuple[Evidence, ...]:
    lost = rounding_bytes(view.moment)
    if not lost:
        return ()
    return (evidence(view, f"{format_bytes(lost)} more are lost by rounding requests up", lost),)


def _is_expandable(view: SnapshotView) -> bool:
    told = view.snapshot.settings.expandable_segments
    return any(each.is_expandable for each in view.moment.ranges) if told is None else told


def _actions(*, is_expandable: bool) -> tuple[Action, ...]:
    even = Action(
        team=Team.JOB_OWNER,
        text="keep sizes alike from step to step: pad to few lengths, drop the last small batch; run evaluation in a loop of its own",
    )
    if is_expandable:
        return (even,)
    return (
        Action(
            team=Team.JOB_OWNER,
            text="turn on expandable segments (torch before 2.9: PYTORCH_CUDA_ALLOC_CONF) and run again",
            command="export PYTORCH_ALLOC_CONF=expandable_segments:True PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
        even,
    )


CHECK = SnapshotCheck(
    id="oom-snapshot-fragmentation",
    title="free memory in the request's own pool",
    run=check_fragmentation,
)

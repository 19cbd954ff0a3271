"""Could the failed request have been served at all, by this device and by what the driver had left?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.snapshot.base import (
    SnapshotCheck,
    evidence,
    not_seen,
    place_of,
    request_evidence,
    scope,
)
from distdoctor.oom.snapshots.cause import Cause, cause_of
from distdoctor.oom.snapshots.stack_text import stack_text
from distdoctor.oom.snapshots.view import SnapshotView, bytes_from_driver
from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import GIB, format_bytes


def check_request(view: SnapshotView) -> Sequence[Outcome]:
    """A finding when the request is larger than everything, or when there was room for it."""
    oom, reach = view.moment.oom, view.reach
    if oom is None or reach is None:
        reason = "the history records no out-of-memory error"
        return [not_seen(reason, how="dump the snapshot where the error is caught; docs/memory-snapshots.md")]
    match cause_of(view):
        case Cause.TOO_LARGE:
            return [_too_large(view, oom.requested, reach)]
        case Cause.NOT_CAPACITY:
            return [_was_free(view, oom.requested, oom.device_free)]
        case _:
            detail = f"{format_bytes(oom.requested)} asked for by `{stack_text(oom.stack)}`; within reach {format_bytes(reach)}"
            return [Passed(detail=detail)]


def _asked_by(view: SnapshotView) -> tuple[Evidence, ...]:
    oom = view.moment.oom
    if oom is None or oom.stack is None or view.asked is None:
        return ()
    return (evidence(view, f"asked by `{stack_text(oom.stack)}` ({view.asked.value}, as its frames tell)"),)


def _too_large(view: SnapshotView, requested: int, reach: int) -> Found:
    return Found(
        key="larger-than-everything",
        title=f"{place_of(view)} asked for {format_bytes(requested)}; {format_bytes(reach)} were within reach",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        evidence=(*request_evidence(view), *_asked_by(view)),
        explanation=(
            "Even with nothing else in memory this one allocation would not fit. A shape is larger than meant "
            "(sequence length, batch, vocabulary, a broadcast), or the tensor must be split."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="print the shapes at the line that asked; split the tensor along batch or sequence",
            ),
        ),
        scope=scope(view),
        cause_class="single-request>capacity",
        fault=Fault.USER_CODE,
    )


def _was_free(view: SnapshotView, requested: int, device_free: int) -> Found:
    # Another process may have let go of memory between the failure and the query.
    clear = device_free >= bytes_from_driver(requested) + GIB
    return Found(
        key="memory-was-free",
        title=f"{place_of(view)}: {format_bytes(requested)} failed with {format_bytes(device_free)} free",
        severity=Severity.CRITICAL,
        confidence=Confidence.MEDIUM if clear else Confidence.LOW,
        evidence=(*request_evidence(view), *_asked_by(view)),
        explanation=(
            "The driver had room for the request when torch asked it. Then the limit is not the device's memory: "
            "torch.cuda.set_per_process_memory_fraction, a limit of the driver or the container, or memory that "
            "another process gave back a moment later."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="look for a memory fraction in the program and its libraries",
                command="grep -rn set_per_process_memory_fraction .",
            ),
            Action(team=Team.PLATFORM, text="which other processes use this GPU", command="nvidia-smi"),
        ),
        scope=scope(view),
        cause_class="not-capacity",
        fault=Fault.CONFIG,
    )


CHECK = SnapshotCheck(
    id="oom-snapshot-request", title="the failed request against the device's memory", run=check_request
)

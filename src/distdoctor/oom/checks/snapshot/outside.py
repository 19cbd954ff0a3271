"""Was the memory held by something that torch's allocator does not see?"""

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
from distdoctor.oom.snapshots.cause import OUTSIDE_BYTES, Cause, outside_bytes
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team
from distdoctor.units import format_bytes


def check_outside(view: SnapshotView) -> Sequence[Outcome]:
    """A finding when much of the device is neither torch's nor free."""
    if view.moment.oom is None:
        return [not_seen("what the driver had left is only recorded with an out-of-memory error")]
    outside, capacity = outside_bytes(view), view.capacity_bytes
    if outside is None or capacity is None:
        how = "give the job's log too: the message of the same failure tells the size of the GPU"
        return [not_seen("a snapshot does not say how large the device is", how=how)]
    if outside < OUTSIDE_BYTES:
        return [Passed(detail=f"{format_bytes(outside)} outside torch: context, libraries, NCCL")]
    return [
        Found(
            key="outside",
            title=f"{place_of(view)}: {format_bytes(outside)} are held outside torch's allocator",
            severity=severity_for(view, Cause.OUTSIDE, otherwise=Severity.WARNING),
            confidence=Confidence.MEDIUM,
            evidence=(
                *request_evidence(view),
                evidence(
                    view,
                    f"{format_bytes(outside)} of {format_bytes(capacity)} ({percent(outside, capacity)}) are neither torch's nor free",
                    outside,
                    expected=f"below {format_bytes(OUTSIDE_BYTES)}: CUDA context, libraries, NCCL buffers",
                    expected_source="our own threshold",
                ),
            ),
            explanation=(
                "Other processes on the same GPU (another job, ranks that all use device 0), NCCL buffers of many "
                "communicators, or libraries with their own allocator. A snapshot cannot tell which."
            ),
            actions=(
                Action(
                    team=Team.PLATFORM, text="who uses this GPU, while the job runs", command="nvidia-smi"
                ),
                Action(
                    team=Team.JOB_OWNER, text="`torch.cuda.set_device(local_rank)` before the first CUDA call"
                ),
            ),
            scope=scope(view),
            cause_class="other-process",
            fault=Fault.UNKNOWN,
        )
    ]


CHECK = SnapshotCheck(id="oom-snapshot-outside", title="memory outside torch's allocator", run=check_outside)

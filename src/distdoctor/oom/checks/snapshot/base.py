"""Checks of a memory snapshot: outcomes of `report.checking` over one device of one snapshot."""

from __future__ import annotations

from distdoctor.oom.snapshots.cause import Cause, cause_of
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report import checking
from distdoctor.report.checking import NotSeen, Unread
from distdoctor.report.model import Evidence, Scope, Severity, SkipCause
from distdoctor.units import format_bytes

__all__ = [
    "RECORD",
    "SnapshotCheck",
    "at",
    "evidence",
    "not_seen",
    "percent",
    "place_of",
    "request_evidence",
    "scope",
    "severity_for",
]

SnapshotCheck = checking.Check[SnapshotView]

RECORD = "torch.cuda.memory._record_memory_history(max_entries=200_000)"
"""The line that records a history, for the start of the program."""


def not_seen(reason: str, *, how: str | None = None, what: str = "") -> NotSeen:
    """The outcome for something that this snapshot does not hold."""
    return NotSeen(unread=Unread(cause=SkipCause.NOT_IN_EVIDENCE, reason=reason, how=how), what=what)


def severity_for(view: SnapshotView, cause: Cause, *, otherwise: Severity = Severity.WARNING) -> Severity:
    """Critical for the one cause of a recorded failure, else `otherwise`."""
    return Severity.CRITICAL if cause_of(view) is cause else otherwise


def place_of(view: SnapshotView) -> str:
    """`rank 3`, `device 1`, `rank 3 device 1`: as far as the snapshot tells. Devices are numbered by the process."""
    several = len(view.snapshot.devices) > 1
    rank = f"rank {view.snapshot.rank}" if view.snapshot.rank is not None else ""
    device = f"device {view.state.device}"
    return f"{rank} {device}" if rank and several else rank or device


def scope(view: SnapshotView) -> Scope:
    """The rank and host that the file's name tells."""
    return Scope(
        ranks=(view.snapshot.rank,) if view.snapshot.rank is not None else (),
        hosts=(view.snapshot.host,) if view.snapshot.host is not None else (),
    )


def at(view: SnapshotView) -> str:
    """`at the failure` or `when the snapshot was taken`."""
    return "at the failure" if view.moment.oom is not None else "when the snapshot was taken"


def percent(part: int, whole: int) -> str:
    """`part` of `whole` in whole per cent."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def evidence(view: SnapshotView, text: str, value: int | None = None, **more: str) -> Evidence:
    """A line of evidence out of the snapshot, with the device that it is about."""
    return Evidence(
        text=text,
        value=value,
        unit="bytes" if value is not None else None,
        source=f"{view.snapshot.path}, device {view.state.device}, {at(view)}",
        **more,
    )


def request_evidence(view: SnapshotView) -> tuple[Evidence, ...]:
    """The failed request beside what was held and left; empty without one."""
    oom = view.moment.oom
    if oom is None:
        return ()
    held = (
        f"torch held {format_bytes(view.moment.reserved)} ({format_bytes(view.moment.live_bytes)} in use), "
        f"the driver had {format_bytes(oom.device_free)} left"
    )
    return (evidence(view, f"{format_bytes(oom.requested)} were asked for; {held}", oom.requested),)

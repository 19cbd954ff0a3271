"""Pictures of snapshots: bars by purpose, and memory in use over the recorded history."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.snapshots.findings import first_failure_first
from distdoctor.oom.snapshots.tables import gib, moment_words, where
from distdoctor.oom.snapshots.timeline import live_over_time
from distdoctor.oom.snapshots.view import SnapshotView
from distdoctor.report.model import Series

# Devices that get pictures: those that failed first.
MAX_PICTURES = 2


def snapshot_series(views: Sequence[SnapshotView]) -> tuple[Series, ...]:
    """For each of the devices that failed first: bars by category, and a line over time where a history was recorded."""
    series: list[Series] = []
    for number, view in enumerate(first_failure_first(views)[:MAX_PICTURES]):
        suffix = f"-{number + 1}" if number else ""
        if view.categories:
            series.append(_bars(view, suffix))
        line = _line(view, suffix)
        if line is not None:
            series.append(line)
    return tuple(series)


def _bars(view: SnapshotView, suffix: str) -> Series:
    asked = [number for number, each in enumerate(view.categories) if each.category is view.asked]
    return Series(
        name=f"oom-live-by-category{suffix}",
        title=f"Memory in use {moment_words((view,))}, {where(view)}",
        kind="bars",
        y_label="GiB",
        x=tuple(each.label for each in view.categories),
        names=("in use",),
        values=(tuple(gib(each.num_bytes) for each in view.categories),),
        hot=tuple(asked),
    )


def _line(view: SnapshotView, suffix: str) -> Series | None:
    events = view.state.events
    points = live_over_time(events, view.moment) if events is not None else ()
    if len(points) < 2:
        return None
    timed = all(point.seconds_before_end is not None for point in points)
    end = "the failure" if view.moment.oom is not None else "the snapshot"
    return Series(
        name=f"oom-live-over-time{suffix}",
        title=f"Requested memory in use up to {end}, {where(view)}",
        kind="lines",
        x_label=f"seconds before {end}" if timed else "event",
        y_label="GiB",
        x=tuple(round(-(point.seconds_before_end or 0.0), 4) if timed else point.event for point in points),
        names=("in use",),
        values=(tuple(gib(point.num_bytes) for point in points),),
    )

"""Live bytes over the recorded history, thinned for a picture."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.oom.facts.snapshot import NO_TIME, EventKind, Events
from distdoctor.oom.snapshots.at_oom import Moment

# As many as a line of a report's picture shows. Our own choice.
MAX_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePoint:
    """Requested bytes that were live, at most, in one stretch of the history."""

    seconds_before_end: float | None
    """None: this snapshot has no times; then points are evenly spaced events."""
    event: int
    num_bytes: int


def live_over_time(events: Events, moment: Moment, *, max_points: int = MAX_POINTS) -> tuple[LivePoint, ...]:
    """The most bytes that were live in each of at most `max_points` stretches up to the moment, the last at its end.

    Bytes are requested ones: events tell no rounding. What was live before the history begins is added, so that the
    line ends at what the moment holds.
    """
    end = moment.oom.index if moment.oom is not None else len(events)
    if not end:
        return ()
    last = sum(each.size if each.requested is None else each.requested for each in moment.live)
    stretch = -(-end // max_points)
    peaks: list[tuple[int, int]] = []
    now, peak = 0, None
    for index in range(end):
        kind = events.kinds[index]
        if kind == EventKind.ALLOC:
            now += events.sizes[index]
        elif kind == EventKind.FREE_COMPLETED:
            now -= events.sizes[index]
        if peak is None or now > peak:
            peak = now
        if (index + 1) % stretch == 0 or index == end - 1:
            peaks.append((index, peak))
            peak = None
    # The line ends at the moment itself, not at the peak of its last stretch.
    peaks[-1] = (end - 1, now)
    base = last - now
    until = _time(events, min(end, len(events) - 1))
    return tuple(
        LivePoint(
            seconds_before_end=_seconds(until, _time(events, index)),
            event=index,
            num_bytes=max(0, base + value),
        )
        for index, value in peaks
    )


def _time(events: Events, index: int) -> int | None:
    value = events.times_us[index]
    return None if value == NO_TIME else value


def _seconds(until: int | None, at: int | None) -> float | None:
    return None if until is None or at is None else (until - at) / 1e6

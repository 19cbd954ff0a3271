"""Memory over time, thinned to what a picture can show: the fullest moment of each stretch of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import TimelinePoint
from distdoctor.oom.memory.log import MemoryLog
from distdoctor.oom.memory.peaks import as_stored

# A bar each; more do not fit a page. Our own choice.
MAX_POINTS = 96


def timeline_of(
    log: MemoryLog,
    categories: Sequence[Category],
    *,
    counted: Callable[[int], int] = as_stored,
    max_points: int = MAX_POINTS,
) -> tuple[TimelinePoint, ...]:
    """At most about `max_points` stretches; a new phase always begins a new one, so that none is lost."""
    length = max(1, -(-len(log.events) // max_points))
    sizes: dict[int, int] = {}
    live: Counter[Category] = Counter()
    points: list[TimelinePoint] = []
    total, best, left = 0, -1, length
    for event in log.events:
        place = log.places[event.place]
        change = counted(event.num_bytes) - sizes.get(event.storage, 0)
        sizes[event.storage] = counted(event.num_bytes)
        total += change
        live[categories[event.storage]] += change
        is_new = not points or points[-1].phase is not place.phase or points[-1].step != place.step
        if is_new or left == 0:
            best, left = -1, length
            points.append(TimelinePoint(step=place.step, phase=place.phase, by_category={}))
        left -= 1
        if total > best:
            best = total
            kept = {category: num_bytes for category, num_bytes in live.items() if num_bytes}
            points[-1] = TimelinePoint(step=place.step, phase=place.phase, by_category=kept)
    return tuple(points)

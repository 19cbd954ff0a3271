"""Memory over time, thinned to what a picture can show: the fullest and the emptiest moments of stretches of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import TimelinePoint
from distdoctor.oom.memory.log import MemoryLog
from distdoctor.oom.memory.peaks import as_stored
from distdoctor.oom.memory.spans import spans_of

# A point every few pixels. Our own choice.
MAX_POINTS = 240
# Short spans, such as the loss, are often the highest; so many stretches show their shape.
_MIN_STRETCHES = 4


def timeline_of(
    log: MemoryLog,
    categories: Sequence[Category],
    *,
    counted: Callable[[int], int] = as_stored,
    max_points: int = MAX_POINTS,
) -> tuple[TimelinePoint, ...]:
    """At most `max_points` moments of a log, in the order of time: the fullest and the emptiest of each stretch.

    A stretch ends where its span does (memory/spans.py), so that the peak of every span is there. `max_points` has to
    be at least twice the number of spans.
    """
    if not log.events:
        return ()
    changes = _changes(log, counted)
    chosen = _chosen(log, list(accumulate(changes)), max_points)
    live: Counter[Category] = Counter()
    points: list[TimelinePoint] = []
    for number, (event, change) in enumerate(zip(log.events, changes, strict=True)):
        live[categories[event.storage]] += change
        if number in chosen:
            place = log.places[event.place]
            kept = {category: num_bytes for category, num_bytes in live.items() if num_bytes}
            points.append(TimelinePoint(step=place.step, phase=place.phase, by_category=kept, event=number))
    return tuple(points)


def _changes(log: MemoryLog, counted: Callable[[int], int]) -> list[int]:
    """By how much each event changes what is allocated."""
    sizes: dict[int, int] = {}
    changes = []
    for event in log.events:
        num_bytes = counted(event.num_bytes)
        changes.append(num_bytes - sizes.get(event.storage, 0))
        sizes[event.storage] = num_bytes
    return changes


def _chosen(log: MemoryLog, totals: Sequence[int], max_points: int) -> set[int]:
    """The fullest and the emptiest event of each stretch; stretches of a span are equally long."""
    places = [log.places[event.place] for event in log.events]
    begins = [begin for begin, _ in spans_of([(place.step, place.phase) for place in places])]
    least = max(1, min(_MIN_STRETCHES, max_points // 2 // len(begins)))
    spare = max(0, max_points // 2 - least * len(begins))
    chosen: set[int] = set()
    for begin, end in zip(begins, [*begins[1:], len(totals)], strict=True):
        for stretch in _stretches(begin, end, least + spare * (end - begin) // len(totals)):
            chosen |= {max(stretch, key=totals.__getitem__), min(stretch, key=totals.__getitem__)}
    return chosen


def _stretches(begin: int, end: int, count: int) -> Iterator[range]:
    """`begin` to `end` in at most `count` parts of about the same length."""
    count = min(count, end - begin)
    edges = [begin + (end - begin) * number // count for number in range(count + 1)]
    yield from (range(first, last) for first, last in pairwise(edges))

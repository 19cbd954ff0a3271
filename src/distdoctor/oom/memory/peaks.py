"""When was most memory allocated, by what, and how close did the other phases come?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.log import MemoryLog, Phase, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most that was allocated within some events."""

    num_bytes: int
    place: Place
    """What was allocated last."""
    event: int
    by_category: dict[Category, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The peak of everything, and of each phase of each step."""

    overall: Peak
    by_phase: dict[tuple[int, Phase], Peak]

    @property
    def second(self) -> Peak | None:
        """The highest phase of another kind than the one with the peak; None where there is no other."""
        others = [peak for (_, phase), peak in self.by_phase.items() if phase is not self.overall.place.phase]
        return max(others, key=lambda peak: peak.num_bytes, default=None)


def as_allocated(num_bytes: int) -> int:
    """Bytes as CUDA's allocator counts them: multiples of 512 (c10/core/AllocatorConfig, kMinBlockSize)."""
    return -(-num_bytes // 512) * 512


def as_stored(num_bytes: int) -> int:
    """Bytes as the storage has them, which is what the CPU's allocator counts."""
    return num_bytes


def peaks_of(
    log: MemoryLog,
    categories: Sequence[Category],
    *,
    counted: Callable[[int], int] = as_stored,
    first_event: int = 0,
) -> Peaks | None:
    """The peaks of a log; None when nothing was ever allocated. `first_event`: what came before counts as there, but
    is not looked at."""
    walk = _Walk()
    for number, event in enumerate(log.events):
        place = log.places[event.place]
        change = counted(event.num_bytes) - walk.sizes.get(event.storage, 0)
        walk.sizes[event.storage] = counted(event.num_bytes)
        walk.total += change
        walk.by_category[categories[event.storage]] += change
        if number >= first_event:
            walk.look((place.step, place.phase), number, place)
    if not walk.best:
        return None
    by_phase = {key: walk.peak(found) for key, found in walk.best.items()}
    overall = max(by_phase.values(), key=lambda peak: peak.num_bytes)
    return Peaks(overall=overall, by_phase=by_phase)


class _Walk:
    """Live bytes event by event, and the best moment of each phase so far."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.total = 0
        self.by_category: Counter[Category] = Counter()
        self.best: dict[tuple[int, Phase], tuple[int, int, Place, Counter[Category]]] = {}

    def look(self, key: tuple[int, Phase], number: int, place: Place) -> None:
        best = self.best.get(key)
        if best is None or self.total > best[0]:
            self.best[key] = (self.total, number, place, self.by_category.copy())

    def peak(self, found: tuple[int, int, Place, Counter[Category]]) -> Peak:
        total, number, place, by_category = found
        kept = {category: num_bytes for category, num_bytes in by_category.items() if num_bytes}
        return Peak(num_bytes=total, place=place, event=number, by_category=kept)

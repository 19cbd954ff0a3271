"""Segments as ranges of addresses, so that what the allocator took and gave back can be undone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from distdoctor.oom.facts.snapshot import PoolId, Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Addresses from `start` up to `end` that torch holds; of an expandable segment, the part that is mapped."""

    start: int
    end: int
    stream: int
    pool: PoolId | None
    is_small: bool
    is_expandable: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


def ranges_of(segments: Iterable[Segment]) -> list[Range]:
    """The segments of a snapshot that say where they are, by address."""
    found = [
        Range(
            start=each.address,
            end=each.address + each.total_size,
            stream=each.stream,
            pool=each.pool,
            is_small=each.is_small,
            is_expandable=each.is_expandable,
        )
        for each in segments
        if each.address is not None
    ]
    return sorted(found, key=lambda each: each.start)


def without(ranges: Sequence[Range], start: int, end: int) -> list[Range]:
    """The ranges with the addresses from `start` up to `end` taken out."""
    left: list[Range] = []
    for each in ranges:
        if each.end <= start or end <= each.start:
            left.append(each)
            continue
        if each.start < start:
            left.append(replace(each, end=start))
        if end < each.end:
            left.append(replace(each, start=end))
    return left


def with_range(ranges: Sequence[Range], new: Range) -> list[Range]:
    """The ranges with `new`, joined with those of the same expandable segment that it touches."""
    left: list[Range] = []
    for each in without(ranges, new.start, new.end):
        same = (each.stream, each.pool, each.is_small) == (new.stream, new.pool, new.is_small)
        if (
            new.is_expandable
            and each.is_expandable
            and same
            and (each.end == new.start or new.end == each.start)
        ):
            new = replace(new, start=min(each.start, new.start), end=max(each.end, new.end))
        else:
            left.append(each)
    return sorted([*left, new], key=lambda each: each.start)

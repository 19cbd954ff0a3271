"""How each pool of the allocator is filled at a moment: in use, free, and in how large pieces.

torch never lends free memory of one pool, stream or size class to another, so each is counted by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from distdoctor.oom.facts.snapshot import ORDINARY_POOL, PoolId
from distdoctor.oom.snapshots.at_oom import SMALL_REQUEST_BYTES, Live, Moment, OomEvent
from distdoctor.oom.snapshots.ranges import Range
from distdoctor.units import MIB

# The driver maps and frees memory in pages of this size; a smaller hole can go to nobody else.
PAGE_BYTES = 2 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKey:
    """One store of memory that torch keeps to itself."""

    pool: PoolId
    stream: int
    is_small: bool

    @property
    def is_private(self) -> bool:
        """Made by a CUDA graph or `torch.cuda.MemPool`."""
        return self.pool != ORDINARY_POOL


@dataclass(slots=True, kw_only=True)
class PoolUse:
    """Bytes of one store."""

    key: PoolKey
    reserved: int = 0
    live: int = 0
    num_segments: int = 0
    gaps: list[int] = field(default_factory=list)
    """Sizes of the free pieces in segments that are partly used."""
    whole: int = 0
    """Bytes of segments that hold nothing."""
    largest_whole: int = 0

    @property
    def free(self) -> int:
        """Bytes held and not in use."""
        return sum(self.gaps) + self.whole

    @property
    def in_pieces(self) -> int:
        """Free bytes in partly used segments: what fragmentation holds back."""
        return sum(self.gaps)

    @property
    def free_pages(self) -> int:
        """Free bytes that make whole pages."""
        return sum(each // PAGE_BYTES * PAGE_BYTES for each in self.gaps) + self.whole

    @property
    def largest(self) -> int:
        """The largest free piece."""
        return max([self.largest_whole, *self.gaps])


def pool_uses(moment: Moment) -> tuple[PoolUse, ...]:
    """Every store at `moment`, the largest first."""
    uses: dict[PoolKey, PoolUse] = {}
    for each, inside in _filled(moment):
        # Before torch 2.1 segments, and before 2.9 events, do not name their pool.
        key = PoolKey(pool=each.pool or ORDINARY_POOL, stream=each.stream, is_small=each.is_small)
        use = uses.setdefault(key, PoolUse(key=key))
        use.reserved += each.size
        use.num_segments += 1
        use.live += sum(block.size for block in inside)
        if not inside:
            use.whole += each.size
            use.largest_whole = max(use.largest_whole, each.size)
        else:
            use.gaps += _gaps(each, inside)
    return tuple(sorted(uses.values(), key=lambda use: -use.reserved))


def store_of_request(uses: tuple[PoolUse, ...], oom: OomEvent) -> PoolUse | None:
    """The store that the failed request could have been served from; None when it holds nothing yet."""
    is_small = oom.requested <= SMALL_REQUEST_BYTES
    for use in uses:
        key = use.key
        if key.pool == (oom.pool or ORDINARY_POOL) and key.stream == oom.stream and key.is_small == is_small:
            return use
    return None


def rounding_bytes(moment: Moment) -> int | None:
    """Bytes lost by rounding requests up; None when the snapshot does not say what was requested."""
    if any(each.requested is None for each in moment.live):
        return None
    return sum(each.size - (each.requested or 0) for each in moment.live)


def _filled(moment: Moment) -> Iterator[tuple[Range, list[Live]]]:
    """Each range with the live blocks inside, by address."""
    ranges = moment.ranges
    starts = [each.start for each in ranges]
    inside: list[list[Live]] = [[] for _ in ranges]
    for block in sorted(moment.live, key=lambda each: each.address):
        place = bisect_right(starts, block.address) - 1
        if place >= 0 and block.address < ranges[place].end:
            inside[place].append(block)
    return zip(ranges, inside, strict=True)


def _gaps(each: Range, inside: list[Live]) -> list[int]:
    gaps = []
    at = each.start
    for block in inside:
        if block.address > at:
            gaps.append(block.address - at)
        at = max(at, block.address + block.size)
    if at < each.end:
        gaps.append(each.end - at)
    return gaps

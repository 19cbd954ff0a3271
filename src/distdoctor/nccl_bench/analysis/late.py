"""Who arrives late at collectives, told from each rank's own time and waiting time, without comparing clocks.

A late rank spends more time of its own between collectives, then waits least of all, while the others wait about
as long as it is late. All three must hold in most of the loops that were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from distdoctor.nccl_bench.definitions import BY_NAME
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.lateness import Arrival, ArrivalsOfGroup

# Own time beyond the others', at least. Without work between collectives a rank on a GPU node needs some tens of
# microseconds; scheduling on a shared CPU makes hundreds. Our own thresholds.
GPU_FLOOR_US = 100.0
CPU_FLOOR_US = 1000.0

# Own time beyond the others' median, in multiples of how much the others differ among themselves. Our own threshold.
SPREADS = 2.0

# Part of the iterations in which the late ranks came last. Four equal ranks have a quarter each. Our own threshold.
LAST_SHARE = 0.8

# The others must wait at least this part of the lateness, or something else is measured. Our own threshold.
WAITED_PART = 0.5

# Fewer iterations tell too little of what is usual. Our own threshold.
MIN_ITERATIONS = 10

# A rank that comes last although its own time is like the others': in nearly all iterations, of at least so many.
# The order in which an algorithm ends may favour one rank by itself. Our own thresholds.
ALWAYS_LAST_SHARE = 0.9
ALWAYS_LAST_ITERATIONS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRank:
    """One rank that arrives late; microseconds, medians of the loop in which it is latest."""

    rank: int
    lateness_us: float
    """Own time beyond the others' median."""
    own_us: float
    others_own_us: float
    last_share: float
    """Of all late ranks of the loop together."""
    others_wait_us: float
    transfer_us: float
    iterations: int
    num_loops: int
    """Loops in which it was late."""
    loop: str
    """ "all_reduce 1024 bytes in job"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRank:
    """One rank that comes last though its own time does not show why."""

    rank: int
    last_share: float
    others_wait_us: float
    transfer_us: float
    iterations: int
    num_collectives: int
    """Different collectives in which it comes last."""
    loop: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """What the loops tell."""

    late: tuple[LateRank, ...]
    """Latest first."""
    last: tuple[LastRank, ...]
    loops: tuple[ArrivalsOfGroup, ...]
    """Those that can tell; empty: none was measured."""
    floor_us: float


def who_is_late(facts: BenchFacts) -> Lateness:
    """Late ranks of a run. Collectives with a root are left out: some ranks may leave them early by nature."""
    floor = floor_us(facts)
    loops = tuple(each for each in facts.arrivals if _tells(each))
    by_rank: dict[int, list[LateRank]] = {}
    for loop in loops:
        for found in _late_in(loop, floor):
            by_rank.setdefault(found.rank, []).append(found)
    late = [
        _over_loops(its)
        for rank, its in by_rank.items()
        if 2 * len(its) > sum(any(each.rank == rank for each in loop.arrivals) for loop in loops)
    ]
    late.sort(key=lambda each: -each.lateness_us)
    last = () if late else _always_last(loops, floor)
    return Lateness(late=tuple(late), last=last, loops=loops, floor_us=floor)


def late_us(facts: BenchFacts) -> dict[int, float]:
    """By rank, how late those are that arrive late: their links are not blamed for it."""
    return {each.rank: each.lateness_us for each in who_is_late(facts).late}


def floor_us(facts: BenchFacts) -> float:
    """The least lateness that counts on this kind of device; the CPU's where it is not known."""
    on_gpu = bool(facts.places) and all(place.device.startswith("cuda") for place in facts.places)
    return GPU_FLOOR_US if on_gpu and facts.backend != "gloo" else CPU_FLOOR_US


def _tells(loop: ArrivalsOfGroup) -> bool:
    definition = BY_NAME.get(loop.collective)
    rooted = definition is not None and definition.has_root
    iterations = min((each.iterations for each in loop.arrivals), default=0)
    return not rooted and len(loop.arrivals) > 1 and iterations >= MIN_ITERATIONS


def _late_in(loop: ArrivalsOfGroup, floor: float) -> list[LateRank]:
    """The late ranks of one loop: the smallest set, at most half of the ranks, for which all three signs hold."""
    slowest = sorted(loop.arrivals, key=lambda each: -each.own_us)
    for number in range(1, len(slowest) // 2 + 1):
        late, others = slowest[:number], slowest[number:]
        if _clearly_later(late, others, floor) and _others_wait(late, others):
            return [_late(loop, each, late, others) for each in late]
    return []


def _clearly_later(late: Sequence[Arrival], others: Sequence[Arrival], floor: float) -> bool:
    own = sorted(each.own_us for each in others)
    middle = median(own)
    edge = len(own) // 10
    jitter = [each.own_p90_us - each.own_us for each in others if each.own_p90_us is not None]
    spread = max(own[len(own) - 1 - edge] - own[edge], median(jitter) if jitter else 0.0)
    excess = min(each.own_us for each in late) - middle
    return excess > max(floor, SPREADS * spread, SPREADS * (own[-1] - middle), middle)


def _others_wait(late: Sequence[Arrival], others: Sequence[Arrival]) -> bool:
    waited = median(each.wait_us for each in others)
    excess = min(each.own_us for each in late) - median(each.own_us for each in others)
    came_last = sum(each.last_share for each in late)
    return (
        came_last >= LAST_SHARE
        and waited >= WAITED_PART * excess
        and min(each.wait_us for each in late) <= WAITED_PART * waited
    )


def _late(
    loop: ArrivalsOfGroup, one: Arrival, late: Sequence[Arrival], others: Sequence[Arrival]
) -> LateRank:
    others_own = median(each.own_us for each in others)
    return LateRank(
        rank=one.rank,
        lateness_us=one.own_us - others_own,
        own_us=one.own_us,
        others_own_us=others_own,
        last_share=min(1.0, sum(each.last_share for each in late)),
        others_wait_us=median(each.wait_us for each in others),
        transfer_us=loop.transfer_us,
        iterations=one.iterations,
        num_loops=1,
        loop=_words(loop),
    )


def _over_loops(found: Sequence[LateRank]) -> LateRank:
    worst = max(found, key=lambda each: each.lateness_us)
    return LateRank(
        rank=worst.rank,
        lateness_us=worst.lateness_us,
        own_us=worst.own_us,
        others_own_us=worst.others_own_us,
        last_share=worst.last_share,
        others_wait_us=worst.others_wait_us,
        transfer_us=worst.transfer_us,
        iterations=worst.iterations,
        num_loops=len(found),
        loop=worst.loop,
    )


def _always_last(loops: Sequence[ArrivalsOfGroup], floor: float) -> tuple[LastRank, ...]:
    """A rank that comes last in nearly all iterations of every loop it is in."""
    ranks = {each.rank for loop in loops for each in loop.arrivals}
    found = []
    for rank in sorted(ranks):
        its = [(loop, one) for loop in loops for one in loop.arrivals if one.rank == rank]
        if not all(_is_last(loop, one, floor) for loop, one in its):
            continue
        loop, one = max(its, key=lambda each: _others_wait_us(*each))
        found.append(
            LastRank(
                rank=rank,
                last_share=min(each.last_share for _, each in its),
                others_wait_us=_others_wait_us(loop, one),
                transfer_us=loop.transfer_us,
                iterations=one.iterations,
                num_collectives=len({each.collective for each, _ in its}),
                loop=_words(loop),
            )
        )
    return tuple(found)


def _is_last(loop: ArrivalsOfGroup, one: Arrival, floor: float) -> bool:
    return (
        one.last_share >= ALWAYS_LAST_SHARE
        and one.iterations >= ALWAYS_LAST_ITERATIONS
        and _others_wait_us(loop, one) >= floor
    )


def _others_wait_us(loop: ArrivalsOfGroup, one: Arrival) -> float:
    return median(each.wait_us for each in loop.arrivals if each.rank != one.rank)


def _words(loop: ArrivalsOfGroup) -> str:
    size = f" of {loop.size_bytes} bytes" if loop.size_bytes else ""
    return f"{loop.collective}{size} in {loop.group_label}"

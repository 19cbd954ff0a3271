"""From what ranks left in the store to the facts of a run: of a complete one, or of one that a fault cut short."""

from __future__ import annotations

from dataclasses import dataclass, field

from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.reproduced import RankPart, Reproduced, ReproduceFacts
from distdoctor.oom.job import resolve
from distdoctor.oom.reproduction.combinations import Combination
from distdoctor.oom.reproduction.options import ReproduceOptions
from distdoctor.ranks.greeting import Layout, decode, places_of
from distdoctor.ranks.stalled import stopped_by
from distdoctor.ranks.store import Store, TimedStore
from distdoctor.ranks.told import read_told
from distdoctor.ranks.watchdog import Stall


@dataclass(slots=True, kw_only=True)
class RunState:
    """What this process knows of the run under way; filled by the main thread, read by whoever reports."""

    options: ReproduceOptions
    world_size: int
    backend: str | None = None
    layout: Layout | None = None
    num_begun: int = 0
    """Combinations that this rank has begun or left out, in their order."""
    not_begun: dict[int, str] = field(default_factory=dict)
    """Number of a combination → why it was left out."""


def part_name(number: int) -> str:
    """Under which name ranks tell their parts in combination `number`."""
    return f"part/{number}"


def gather_facts(state: RunState, store: Store, prefix: str, *, stall: Stall | None = None) -> ReproduceFacts:
    """Everything that is in the store now. Takes seconds at most; a lost store gives what came before."""
    timed = TimedStore(store, prefix=prefix)
    try:
        found = tuple(
            _reproduced(number, combination, state, timed)
            for number, combination in enumerate(state.options.combinations)
        )
    finally:
        timed.close()
    layout = state.layout
    places = places_of(layout) if layout is not None else ()
    return ReproduceFacts(
        num_ranks=state.world_size,
        steps=state.options.steps,
        combinations=found,
        places=places,
        backend=state.backend,
        memory_limit_bytes=state.options.memory_limit_bytes,
        torch=layout.ranks[0].torch if layout is not None and layout.ranks else None,
        stopped=stopped_by(stall) if stall is not None else None,
        shares_gpus=state.options.share_gpus,
    )


def _reproduced(number: int, combination: Combination, state: RunState, store: TimedStore) -> Reproduced:
    job = resolve(combination.settings)
    why = state.not_begun.get(number, "")
    parts: list[RankPart] = []
    if not why:
        # Another rank may have come further than this one.
        told = read_told(store, part_name(number), state.world_size)
        decoded = ((rank, decode(data, RankPart)) for rank, data in sorted(told.items()))
        parts = [part for rank, part in decoded if part is not None and part.rank == rank]
        if not parts:
            why = "the run ended before it"
    return Reproduced(
        name=combination.name, job=job, estimate=estimate(job), parts=tuple(parts), not_begun=why
    )

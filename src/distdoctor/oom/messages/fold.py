"""One event for what was printed several times: by a logger, by Python, and again in torchrun's table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from distdoctor.oom.facts.events import Family, OomEvent, Phase


def fold_events(events: Sequence[OomEvent]) -> tuple[OomEvent, ...]:
    """Each event once, in the order of its first print.

    Equal numbers from the same rank are one event. A print that names no rank belongs to a named one with the same
    numbers; anonymous prints with equal numbers are taken for one event, and counted.
    """
    groups: dict[tuple[object, ...], list[OomEvent]] = defaultdict(list)
    for event in events:
        groups[_numbers(event)].append(event)
    folded = [each for group in groups.values() for each in _fold_equal(group)]
    folded.sort(key=lambda event: event.order)
    return tuple(_without_echoes(folded))


def identity(event: OomEvent) -> tuple[object, ...] | None:
    """Who an event is of, as far as the text tells; None for anonymous ones."""
    if event.rank is not None:
        return ("rank", event.rank)
    if event.pid is not None:
        return ("pid", event.host if event.family is not Family.HOST_KILL else None, event.pid)
    if event.local_rank is not None:
        return ("local", event.host, event.local_rank)
    return None


def _numbers(event: OomEvent) -> tuple[object, ...]:
    if event.family is Family.HOST_KILL:
        return (event.family, event.is_certain_kill and event.pid is None)
    if event.family is Family.NCCL:
        return (event.family, event.gpu)
    if event.requested_bytes is None:
        return (event.family, event.gpu)
    return (
        event.family,
        event.gpu,
        event.requested_bytes,
        event.total_bytes,
        event.free_bytes,
        event.allocated_bytes,
        event.unallocated_bytes,
    )


def _fold_equal(group: Sequence[OomEvent]) -> list[OomEvent]:
    """Events with equal numbers: one for each who is named; anonymous ones join the first."""
    named: dict[tuple[object, ...], OomEvent] = {}
    by_pid: dict[int, tuple[object, ...]] = {}
    anonymous: list[OomEvent] = []
    for event in group:
        who = identity(event)
        if who is None:
            anonymous.append(event)
            continue
        if event.pid is not None and event.family is Family.HOST_KILL:
            who = by_pid.setdefault(event.pid, who)
        named[who] = _join(named[who], event) if who in named else event
    if not anonymous:
        return list(named.values())
    first = anonymous[0]
    for other in anonymous[1:]:
        first = _join(first, other)
    if not named:
        return [first]
    key = next(iter(named))
    earliest = min(named[key].order, first.order)
    named[key] = replace(_join(named[key], first), order=earliest)
    return list(named.values())


def _join(first: OomEvent, second: OomEvent) -> OomEvent:
    """The first with what only the second tells; the longer traceback is kept, and where it was printed first."""
    longer = second if len(second.frames) > len(first.frames) and first.phase is Phase.UNKNOWN else first
    return replace(
        first,
        rank=first.rank if first.rank is not None else second.rank,
        local_rank=first.local_rank if first.local_rank is not None else second.local_rank,
        host=first.host or second.host,
        pid=first.pid or second.pid,
        requested_bytes=first.requested_bytes
        if first.requested_bytes is not None
        else second.requested_bytes,
        allocated_bytes=first.allocated_bytes
        if first.allocated_bytes is not None
        else second.allocated_bytes,
        sentence=first.sentence
        if first.requested_bytes is not None or second.requested_bytes is None
        else second.sentence,
        frames=longer.frames,
        phase=longer.phase,
        phase_why=longer.phase_why,
        nearby=first.nearby if len(first.nearby) >= len(second.nearby) else second.nearby,
        went_on=first.went_on and second.went_on,
        is_certain_kill=first.is_certain_kill or second.is_certain_kill,
        times_seen=first.times_seen + second.times_seen,
    )


def _without_echoes(events: Sequence[OomEvent]) -> list[OomEvent]:
    """Without messages that only repeat that memory was out, where the one with numbers stands beside them."""
    told = {
        identity(each) for each in events if each.requested_bytes is not None and each.total_bytes is not None
    }
    kept = []
    for event in events:
        is_bare = event.requested_bytes is None and event.family is Family.CUDA and not event.is_absurd_size
        who = identity(event)
        if is_bare and told and (who is None or None in told or who in told):
            continue
        kept.append(event)
    return kept

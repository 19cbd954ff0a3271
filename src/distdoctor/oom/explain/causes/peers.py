"""Ranks that ran out on one GPU, each in a message of its own that lists no processes: together they are who fills it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from distdoctor.oom.explain.causes.kinds import Cause, Judged
from distdoctor.oom.facts.events import OomEvent
from distdoctor.report.model import Confidence
from distdoctor.units import GIB

# What one process holds beside its pool: a context and little more (0.3 to 1.2 GiB were seen), with room for NCCL.
_LEAST_BESIDE = GIB // 4
_MOST_BESIDE = 8 * GIB // 5


def with_peers(judged: Sequence[Judged]) -> tuple[Judged, ...]:
    """The same, with "another process" turned into "other ranks" where the ranks' own pools add up to what is used.

    Equal GPU numbers alone prove nothing: where each rank sees one GPU, all call it 0.
    """
    groups: dict[tuple[str | None, int], list[Judged]] = defaultdict(list)
    for each in judged:
        event = each.event
        if each.cause is Cause.OTHER_PROCESS and _who(event) is not None and event.gpu is not None:
            groups[(event.host, event.gpu)].append(each)
    changed = {
        id(each): _as_peer(each, len(group)) for group in groups.values() if _add_up(group) for each in group
    }
    return tuple(changed.get(id(each), each) for each in judged)


def _who(event: OomEvent) -> int | None:
    return event.rank if event.rank is not None else event.local_rank


def _add_up(group: Sequence[Judged]) -> bool:
    """Whether these ranks' pools, each with a context, make what is used of the GPU."""
    pools = {_who(each.event): each.account.pool for each in group}
    if len(pools) < 2 or any(each.account.others for each in group):
        return False
    total, free = group[0].event.total_bytes, group[0].event.free_bytes
    if total is None or free is None or any(each.event.total_bytes != total for each in group):
        return False
    used, held = total - free, sum(pool or 0 for pool in pools.values())
    return held + len(pools) * _LEAST_BESIDE <= used <= held + len(pools) * _MOST_BESIDE


def _as_peer(judged: Judged, number: int) -> Judged:
    why = f"{number} ranks ran out on this GPU, and their pools with a context each make what is used of it"
    return replace(
        judged, cause=Cause.PEER_RANKS, confidence=Confidence.MEDIUM, why=why, alternative=Cause.OTHER_PROCESS
    )

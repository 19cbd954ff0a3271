"""Groups of ranks by where they sit: the ranks of one host, and rails across hosts."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.facts.rows import Group, GroupKind
from distdoctor.ranks.places import Place


def hosts_of(places: Sequence[Place]) -> tuple[Group, ...]:
    """One group a host, in the order of the hosts' lowest ranks."""
    members: dict[str, list[int]] = {}
    for place in sorted(places, key=lambda each: each.rank):
        members.setdefault(place.host, []).append(place.rank)
    return tuple(
        Group(kind=GroupKind.HOST, label=f"host {host}", ranks=tuple(ranks), set_label="hosts")
        for host, ranks in members.items()
    )


def rails_of(places: Sequence[Place]) -> tuple[Group, ...]:
    """One group for each local rank: the ranks that share a network rail where NICs are wired to GPUs in order."""
    members: dict[int, list[int]] = {}
    for place in sorted(places, key=lambda each: each.rank):
        members.setdefault(place.local_rank, []).append(place.rank)
    return tuple(
        Group(kind=GroupKind.RAIL, label=f"rail {local_rank}", ranks=tuple(ranks), set_label="rails")
        for local_rank, ranks in sorted(members.items())
    )

"""Groups of hosts that are fast inside and slow between one another: hosts behind different switches."""

from __future__ import annotations

from collections.abc import Mapping

# Groups of fewer hosts than this are slow hosts or links, and are told as such.
MIN_ISLAND_HOSTS = 2

# With more groups than this the fabric is built so (many racks, thin uplinks). Our own choice.
MAX_ISLANDS = 4

# Between groups, at most this part of the speed inside. Our own threshold: less is how many fabrics are built.
ISLAND_RATIO = 0.5

# Part of the cells inside groups that must be fast, and between groups that must be slow. Our own choice.
CLEAR_PART = 0.9


def islands_of(cells: Mapping[tuple[str, str], float]) -> tuple[tuple[str, ...], ...]:
    """The groups of hosts, or none when the matrix does not fall apart into a few such groups.

    Cells are fast when they reach half of what the upper quarter of the hosts reaches at best; groups are what
    fast pairs, in both directions, hold together.
    """
    hosts = tuple(dict.fromkeys(host for pair in cells for host in pair))
    if len(hosts) < 2 * MIN_ISLAND_HOSTS:
        return ()
    best: dict[str, float] = {}
    for pair, speed in cells.items():
        best[pair[0]] = max(best.get(pair[0], 0.0), speed)
    upper = sorted(best.values(), reverse=True)[(len(best) - 1) // 4]
    fast = {pair for pair, speed in cells.items() if speed >= ISLAND_RATIO * upper}
    groups = _components(hosts, {pair for pair in fast if pair[::-1] in fast})
    if not 2 <= len(groups) <= MAX_ISLANDS or min(map(len, groups)) < MIN_ISLAND_HOSTS:
        return ()
    of = {host: number for number, group in enumerate(groups) for host in group}
    across = [pair in fast for pair in cells if of[pair[0]] != of[pair[1]]]
    within = [pair in fast for pair in cells if of[pair[0]] == of[pair[1]]]
    if not across or sum(across) > (1 - CLEAR_PART) * len(across):
        return ()
    return tuple(groups) if sum(within) >= CLEAR_PART * len(within) else ()


def _components(hosts: tuple[str, ...], joined: set[tuple[str, str]]) -> list[tuple[str, ...]]:
    neighbours: dict[str, list[str]] = {host: [] for host in hosts}
    for source, target in joined:
        neighbours[source].append(target)
    left = dict.fromkeys(hosts)
    groups: list[tuple[str, ...]] = []
    while left:
        reached = {next(iter(left))}
        edge = list(reached)
        while edge:
            new = [host for host in neighbours[edge.pop()] if host not in reached]
            reached.update(new)
            edge += new
        groups.append(tuple(host for host in hosts if host in reached))
        for host in reached:
            del left[host]
    return groups

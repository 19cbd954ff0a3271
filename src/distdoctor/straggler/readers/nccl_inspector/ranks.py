"""Which process is which rank: NCCL Inspector tells ranks inside communicators only.

Processes that share communicators, directly or through others, are one run. The communicator of all its processes, if
there is one, numbers them as the job does. Without one (a world communicator that carries less than 8 KiB at a time is
not recorded) processes are numbered here: PyTorch sorts the ranks of a group, so the order inside each communicator
is that of global ranks; hosts by name and processes by id break ties.

Groups of processes at the same time that share no communicator may be parts of one job, such as data parallel groups
whose tensor parallel ones were not recorded. Then rank 1 of a communicator is not the job's rank 1. So they are one
run, numbered here, unless the communicator of a group is named as that of all ranks.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from distdoctor.straggler.readers.nccl_inspector.records import Member, Records

_Item = TypeVar("_Item", bound=Hashable)

# What PyTorch and others call the communicator of all ranks.
_DEFAULT_NAMES = ("default_pg", "world", "0")

# Processes are gone for longer than this before a restarted job records its first collectives: it starts, meets and
# builds its model. Our own bound.
RESTART_US = 10e6


@dataclass(frozen=True, order=True, slots=True)
class Process:
    """One process; `file` is -1 unless several files claim the same host and id."""

    host: str
    pid: int
    file: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Processes that belong together, and their ranks."""

    ranks: dict[int, int]
    """Index of a member → global rank. Members that cannot be placed are not in it."""
    places: dict[int, Process]
    """By rank."""
    world_size: int | None
    num_processes: int
    is_numbered_here: bool
    """No communicator holds all processes: ranks are not the job's."""
    num_parts: int = 1
    """Groups of processes that share no communicator."""
    contradicted_by: str | None = None
    """A communicator of the same size that numbers the processes differently."""
    first_us: float | None = None
    last_us: float | None = None


def find_runs(records: Records) -> list[Run]:
    """The runs in `records`, the largest first, equal ones in order of time."""
    processes = _processes(records.members)
    parts = [_part(records, indexes, processes) for indexes in _connected(records.members, processes)]
    runs = [
        _joined(records, together, processes) if len(together) > 1 else together[0].run
        for together in _at_once(parts)
    ]
    return sorted(runs, key=lambda run: (-run.num_processes, run.first_us or 0.0))


def _processes(members: list[Member]) -> list[Process]:
    """Each member's process. Containers often have equal host names and ids: then files tell them apart."""
    by_host = [Process(member.host or "", member.pid if member.pid is not None else -1) for member in members]
    seats: dict[tuple[Process, str], dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for member, process in zip(members, by_host, strict=True):
        seats[process, member.comm][member.rank].add(member.file)
    # Several ranks of one communicator: one process drives several GPUs when they are in one file, else they are
    # several processes under one name.
    shared = {
        process
        for (process, _), files_of_rank in seats.items()
        if len(files_of_rank) > 1 and len(set().union(*files_of_rank.values())) > 1
    }
    return [
        Process(process.host, process.pid, member.file) if process in shared else process
        for member, process in zip(members, by_host, strict=True)
    ]


def _connected(members: list[Member], processes: list[Process]) -> list[list[int]]:
    """Members grouped so that processes which share a communicator are together."""
    parent: dict[object, object] = {}

    def root(item: object) -> object:
        top = item
        while parent.setdefault(top, top) != top:
            top = parent[top]
        while parent[item] != top:
            parent[item], item = top, parent[item]
        return top

    for member, process in zip(members, processes, strict=True):
        parent[root(("comm", member.comm))] = root(process)
    groups: dict[object, list[int]] = defaultdict(list)
    for index, process in enumerate(processes):
        groups[root(process)].append(index)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class _Part:
    """Members that belong together, and what they look like as a run of their own."""

    indexes: list[int]
    run: Run
    is_whole: bool
    """A whole job: its communicator is named as that of all ranks, or one process drives several GPUs."""


def _at_once(parts: list[_Part]) -> list[list[_Part]]:
    """Parts that may belong to one job: none is a whole one by name, and no restart lies between them."""
    found = [[part] for part in parts if part.is_whole]
    open_parts = [part for part in parts if not part.is_whole]
    timed = [part for part in open_parts if part.run.first_us is not None]
    timed.sort(key=lambda part: part.run.first_us or 0.0)
    untimed = [part for part in open_parts if part.run.first_us is None]
    last_us = -math.inf
    together: list[list[_Part]] = []
    for part in timed:
        if not together or (part.run.first_us or 0.0) > last_us + RESTART_US:
            together.append([])
        together[-1].append(part)
        last_us = max(last_us, part.run.last_us or 0.0)
    # Without a time of day nothing says that they ran one after another.
    if untimed and len(together) == 1:
        together[0] += untimed
    elif untimed:
        together.append(untimed)
    return found + together


def _joined(records: Records, parts: list[_Part], processes: list[Process]) -> Run:
    """One run of parts whose ranks in the job nobody tells."""
    indexes = [index for part in parts for index in part.indexes]
    num_expected = sum(part.run.world_size or part.run.num_processes for part in parts)
    run = _numbered_here(records, indexes, processes)
    # Ranks of these communicators that have no file are of the job too.
    lacks_some = num_expected > run.num_processes
    return replace(run, num_parts=len(parts), world_size=num_expected if lacks_some else None)


def _numbered_here(records: Records, indexes: list[int], processes: list[Process]) -> Run:
    comms = _comms(records.members, indexes, processes)
    everybody = {processes[index] for index in indexes}
    first_us, last_us = _span(records, everybody)
    rank_of = {process: rank for rank, process in enumerate(_in_order(everybody, comms.values()))}
    # A process that drives several GPUs has no one rank.
    several = _several(comms)
    ranks = {index: rank_of[processes[index]] for index in indexes if processes[index] not in several}
    return Run(
        ranks=ranks,
        places={rank_of[process]: process for process in everybody if process not in several},
        world_size=None,
        num_processes=len(everybody),
        is_numbered_here=True,
        first_us=first_us,
        last_us=last_us,
    )


def _comms(
    members: list[Member], indexes: list[int], processes: list[Process]
) -> dict[str, dict[int, Process]]:
    """Who has which rank in each communicator."""
    comms: dict[str, dict[int, Process]] = defaultdict(dict)
    for index in indexes:
        comms[members[index].comm][members[index].rank] = processes[index]
    return comms


def _part(records: Records, indexes: list[int], processes: list[Process]) -> _Part:
    members = records.members
    comms = _comms(members, indexes, processes)
    sizes = {members[index].comm: members[index].num_ranks for index in indexes}
    everybody = {processes[index] for index in indexes}
    world = _world(comms, sizes, everybody, records.comm_names)
    if world is None:
        return _Part(indexes, _numbered_here(records, indexes, processes), is_whole=False)
    is_whole = _is_named_world(records.comm_names.get(world, "")) or bool(_several(comms))
    return _Part(
        indexes, _run(records, indexes, processes, comms=comms, sizes=sizes, world=world), is_whole=is_whole
    )


def _run(
    records: Records,
    indexes: list[int],
    processes: list[Process],
    *,
    comms: dict[str, dict[int, Process]],
    sizes: dict[str, int],
    world: str,
) -> Run:
    """The run as its communicator of all ranks numbers it."""
    members = records.members
    everybody = {processes[index] for index in indexes}
    first_us, last_us = _span(records, everybody)
    seats = comms[world]
    only: dict[Process, int | None] = {}
    for rank, process in seats.items():
        only[process] = None if process in only else rank
    ranks = {}
    for index in indexes:
        place = members[index].rank if members[index].comm == world else only.get(processes[index])
        if place is not None:
            ranks[index] = place
    return Run(
        ranks=ranks,
        places=dict(seats),
        world_size=sizes[world],
        num_processes=max(len(everybody), len(seats)),
        is_numbered_here=False,
        contradicted_by=next(
            (comm for comm in sorted(comms) if sizes[comm] == sizes[world] and _differs(comms[comm], only)),
            None,
        ),
        first_us=first_us,
        last_us=last_us,
    )


def _world(
    comms: dict[str, dict[int, Process]],
    sizes: dict[str, int],
    everybody: set[Process],
    names: dict[str, str],
) -> str | None:
    """The communicator that holds every process. Of several the one named so, then one whose hosts are in a row."""
    largest = max(sizes.values())
    found = [comm for comm, size in sizes.items() if size == largest >= len(everybody)]
    # One that lacks files of half of its ranks, while others hold processes outside it, places too few of them.
    found = [comm for comm in found if 2 * len(set(comms[comm].values())) >= len(everybody)]
    if not found:
        return None
    return min(
        found,
        key=lambda comm: (
            -len(set(comms[comm].values())),
            not _is_named_world(names.get(comm, "")),
            _host_changes(comms[comm]),
            comm,
        ),
    )


def _is_named_world(name: str) -> bool:
    return any(word in _DEFAULT_NAMES for word in name.lower().split(":"))


def _host_changes(seats: dict[int, Process]) -> int:
    """How often the host changes from rank to rank: launchers number the processes of one host in a row."""
    hosts = [seats[rank].host for rank in sorted(seats)]
    return sum(before != after for before, after in pairwise(hosts))


def _differs(seats: dict[int, Process], rank_of: dict[Process, int | None]) -> bool:
    return any(rank_of.get(process) not in (None, rank) for rank, process in seats.items())


def _several(comms: dict[str, dict[int, Process]]) -> set[Process]:
    found: set[Process] = set()
    for seats in comms.values():
        seen: set[Process] = set()
        for process in seats.values():
            (found if process in seen else seen).add(process)
    return found


def _span(records: Records, everybody: Iterable[Process]) -> tuple[float | None, float | None]:
    spans = [
        records.dumped_us[key]
        for process in everybody
        if (key := (process.host or None, process.pid if process.pid >= 0 else None)) in records.dumped_us
    ]
    if not spans:
        return None, None
    return min(first for first, _ in spans), max(last for _, last in spans)


def _in_order(everybody: set[Process], comms: Iterable[dict[int, Process]]) -> list[Process]:
    """All processes in an order that agrees with that inside every communicator, if there is such an order."""
    pairs: set[tuple[Process, Process]] = set()
    for seats in comms:
        chain = [seats[rank] for rank in sorted(seats)]
        pairs.update((a, b) for a, b in pairwise(chain) if a != b)
    hosts = sorted({process.host for process in everybody}, key=_natural)
    host_pairs = {(a.host, b.host) for a, b in pairs if a.host != b.host}
    host_at = {host: at for at, host in enumerate(_sorted_by(hosts, host_pairs))}
    processes = sorted(everybody, key=lambda process: (host_at[process.host], process.pid, process.file))
    inside = {(a, b) for a, b in pairs if a.host == b.host}
    return _sorted_by(processes, inside)


def _sorted_by(items: list[_Item], before: set[tuple[_Item, _Item]]) -> list[_Item]:
    """`items` so that each pair of `before` keeps its order, otherwise as they come; as they come when pairs clash."""
    at = {item: position for position, item in enumerate(items)}
    followers: dict[int, list[int]] = defaultdict(list)
    waits = [0] * len(items)
    for first, second in before:
        followers[at[first]].append(at[second])
        waits[at[second]] += 1
    ready = [position for position, count in enumerate(waits) if count == 0]
    ordered: list[int] = []
    while ready:
        position = heapq.heappop(ready)
        ordered.append(position)
        for follower in followers[position]:
            waits[follower] -= 1
            if waits[follower] == 0:
                heapq.heappush(ready, follower)
    return list(items) if len(ordered) < len(items) else [items[position] for position in ordered]


def _natural(name: str) -> list[tuple[int, str]]:
    """ "host-2" before "host-10"."""
    return [
        (int(part) if part.isdigit() and len(part) < 18 else -1, part) for part in re.split(r"(\d+)", name)
    ]

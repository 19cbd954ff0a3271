"""Which communicator a collective used, as one name for all ranks; and one number for each such name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdoctor.straggler.facts.collectives import Group
from distdoctor.straggler.readers.kineto.gather import P2P_OPS, GroupKey
from distdoctor.straggler.readers.kineto.header import MAX_RANKS, Header

# Different communicators of one job. 16,384 ranks in pairs of pipeline neighbours are 16,384; our own choice.
MAX_GROUPS = 200_000

_RANKS = re.compile(r"\[\s*\d{1,7}(?:\s*,\s*\d{1,7})*\s*\]")


@dataclass(slots=True)
class Registry:
    """Groups and collectives of all traces, each once."""

    groups: dict[Group, int]
    ops: dict[str, int]

    @classmethod
    def new(cls) -> Registry:
        """An empty one."""
        return cls({}, {})

    def group(self, group: Group) -> int | None:
        """Its number; None when there are too many."""
        known = self.groups.get(group)
        if known is None and len(self.groups) < MAX_GROUPS:
            known = self.groups[group] = len(self.groups)
        return known

    def op(self, name: str) -> int:
        """The number of a collective's name; all beyond a thousand share one."""
        if name not in self.ops and len(self.ops) >= 1000:
            name = "other"
        return self.ops.setdefault(name, len(self.ops))


def name_groups(keys: Sequence[GroupKey], header: Header, rank: int) -> Mapping[GroupKey, Group | None]:
    """The communicator behind each key; None where it cannot be the same on all ranks.

    Without metadata (torch before 2.2) each stream of NCCL is one communicator; its ranks are known only when all
    groups of the trace have the same.
    """
    only = _only_ranks(header)
    streams = sorted(
        {key.stream for key in keys if key.name is None and key.ranks is None and key.stream is not None}
    )
    named: dict[GroupKey, Group | None] = {}
    for key in dict.fromkeys(keys):
        if key.name is None and key.ranks is None:
            nth = streams.index(key.stream) + 1 if key.stream is not None and len(streams) > 1 else 0
            named[key] = _unnamed(only, nth)
        elif key.op in P2P_OPS:
            named[key] = _pair(key, header, rank)
        else:
            ranks = _ranks(key, header)
            named[key] = Group(
                name=key.name or "unnamed", ranks=ranks, size=len(ranks) if ranks else key.size, what=key.what
            )
    return named


def _only_ranks(header: Header) -> tuple[int, ...] | None:
    """The ranks of every communicator of the trace, when all have the same."""
    several = [group for group in header.groups if group.size != 1]
    different = {group.ranks for group in several}
    return next(iter(different)) if len(different) == 1 else None


# What a communicator is called that the trace does not name.
_UNNAMED = "all"


def _unnamed(ranks: tuple[int, ...] | None, nth: int) -> Group:
    suffix = f", stream {nth}" if nth else ""
    return Group(name=_UNNAMED + suffix, ranks=ranks, size=len(ranks) if ranks else None)


def is_unnamed(group: Group) -> bool:
    """Whether no trace names this communicator."""
    return group.what is None and (group.name == _UNNAMED or group.name.startswith(f"{_UNNAMED}, stream "))


def _ranks(key: GroupKey, header: Header) -> tuple[int, ...] | None:
    """The list in the arguments, else first rank and stride, else what the trace's head says of this group."""
    if key.ranks and _RANKS.fullmatch(key.ranks.strip()):
        ranks = tuple(int(rank) for rank in re.findall(r"\d+", key.ranks))
        if max(ranks) < MAX_RANKS and (key.size is None or key.size == len(ranks)):
            return ranks
    if key.first_rank is not None and key.rank_stride is not None and key.size is not None:
        last = key.first_rank + key.rank_stride * (key.size - 1)
        if last < MAX_RANKS:
            return tuple(range(key.first_rank, last + 1, key.rank_stride))
    return next((group.ranks for group in header.groups if group.name == key.name), None)


def _pair(key: GroupKey, header: Header, rank: int) -> Group | None:
    """Sender and receiver: a communicator of their own in what they wait for."""
    source, destination = key.source, key.destination
    if key.op == "send":
        source = rank
    elif key.op == "recv":
        destination = rank
    ranks = _ranks(key, header)
    if ranks is not None and len(ranks) == 2 and rank in ranks:
        other = ranks[0] if ranks[1] == rank else ranks[1]
        if key.op == "send_recv":
            return Group(name=f"{key.name}", ranks=ranks, size=2, what=key.what)
        source = other if source is None else source
        destination = other if destination is None else destination
    if source is None or destination is None or source == destination:
        return None
    return Group(
        name=f"{key.name}: {source} to {destination}", ranks=(source, destination), size=2, what=key.what
    )

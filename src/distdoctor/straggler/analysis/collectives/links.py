"""Does one group take longer than others of its kind for equal transfers, although its ranks come together?

The shortest time that any rank spends in a collective is the transfer: the last rank to come waits for nobody. Where
one group's transfers are slow and nobody comes late, the path between its ranks is suspected and no rank: a link, a
port, a switch, or something that slows all of the group's ranks alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.analysis.collectives.group_kinds import GroupKinds, kinds_of
from distdoctor.straggler.analysis.collectives.match import Matched, State
from distdoctor.straggler.analysis.collectives.value_order import medians_by

# So many groups of one kind, each with so many collectives of one operation and size, before one is called slow.
MIN_GROUPS = 4
MIN_COLLECTIVES = 20

# A slow group's median transfer is beyond that of the others by this share, by so many median absolute deviations of
# groups, and by more than ends of one collective differ between ranks (1 to 7 us measured). Our own thresholds.
SLOW_SHARE = 0.2
SLOW_MADS = 5.0
SLOW_US = 20.0

# Its ranks come together when the middle one waits no longer than this share of what the transfer is slower by, or
# no longer than it waits in other groups. Our own threshold.
WAIT_SHARE = 0.5

# Of the sizes and operations in which a group could be compared, this share must show it slow. Our own threshold.
AGREEING_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSuspect:
    """A path that is slow. Several groups: all of them are slow and share `hosts`."""

    groups: tuple[str, ...]
    kind: str
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    op: str
    num_bytes: int
    """The size class: messages of at least this many bytes and less than twice as many."""
    ratio: float
    """Median time per byte over that of the other groups of the kind: 1.5 is half as long again."""
    transfer_us: float
    """Median transfer of the group; of several, of the slowest."""
    peers_us: float
    """What the other groups of the kind would have taken for as many bytes."""
    n: int
    """Collectives of the group in this class."""
    num_peers: int
    """Groups of the kind that were compared, the slow ones among them."""
    agreeing: int
    """Of `classes` operations and sizes that could be compared: in how many the group is slow."""
    classes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Suspected paths, slowest first, and why others could not be judged."""

    suspects: tuple[LinkSuspect, ...]
    compared: int
    """Groups that were compared with others of their kind."""
    cannot_tell: str | None
    """Why no group, or not all, could be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """One group's collectives of one operation and size class."""

    group: int
    kind: int
    op: int
    size_class: int
    n: int
    us_per_byte: float
    transfer_us: float
    wait_us: float


def slow_links(matched: Matched, kinds: GroupKinds | None = None) -> Links:
    """Groups whose transfers are slow beside those of their kind, operation and size; nobody late inside them."""
    kinds = kinds or kinds_of(matched)
    cells, reason = _cells(matched, kinds)
    compared: dict[int, int] = {}
    suspects: dict[int, list[LinkSuspect]] = {}
    late_instead = set()
    for _, of_class in groupby(cells, key=lambda each: (each.kind, each.op, each.size_class)):
        peers = list(of_class)
        if len(peers) < MIN_GROUPS:
            continue
        for cell in peers:
            compared[cell.group] = compared.get(cell.group, 0) + 1
        for cell, usual in _slow(peers):
            if _come_together(cell, peers, usual):
                suspects.setdefault(cell.group, []).append(_suspect(matched, kinds, cell, usual, len(peers)))
            else:
                late_instead.add(cell.group)
    chosen = {
        group: replace(max(each, key=lambda one: one.num_bytes), agreeing=len(each), classes=compared[group])
        for group, each in suspects.items()
        if len(each) >= AGREEING_SHARE * compared[group]
    }
    if not compared:
        return Links(suspects=(), compared=0, cannot_tell=reason or _too_few(cells))
    cannot_tell = None
    if late_instead - chosen.keys():
        cannot_tell = (
            f"{len(late_instead - chosen.keys())} groups have slow transfers and ranks that come late: which of the "
            "two is the cause is not told by their times"
        )
    return Links(
        suspects=_narrowed(matched, kinds, chosen, compared),
        compared=len(compared),
        cannot_tell=cannot_tell,
    )


def _cells(matched: Matched, kinds: GroupKinds) -> tuple[list[_Cell], str | None]:
    """Those with enough collectives, by kind, operation, size; and why there is none."""
    whole = matched.has(State.COMPLETE) & (np.diff(matched.start) > 1)
    if not whole.any():
        return [], "no collective has all of its ranks here"
    chosen = np.flatnonzero(whole & (matched.num_bytes > 0))
    if not len(chosen):
        return [], "the evidence does not tell the size of messages"
    num_bytes = matched.num_bytes[chosen]
    size_class = np.floor(np.log2(num_bytes)).astype(np.int64)
    key = np.stack((matched.group[chosen].astype(np.int64), matched.op[chosen].astype(np.int64), size_class))
    distinct, index = np.unique(key, axis=1, return_inverse=True)
    index, num = index.reshape(-1), distinct.shape[1]
    count = np.bincount(index, minlength=num)
    per_byte = medians_by(index, (matched.shortest_us[chosen] / num_bytes).astype(np.float32), num)
    transfer = medians_by(index, matched.shortest_us[chosen], num)
    wait = medians_by(index, matched.median_us[chosen] - matched.shortest_us[chosen], num)
    cells = [
        _Cell(
            group=int(distinct[0, i]),
            kind=int(kinds.kind_of[distinct[0, i]]),
            op=int(distinct[1, i]),
            size_class=int(distinct[2, i]),
            n=int(count[i]),
            us_per_byte=float(per_byte[i]),
            transfer_us=float(transfer[i]),
            wait_us=float(wait[i]),
        )
        for i in np.flatnonzero(count >= MIN_COLLECTIVES)
    ]
    cells.sort(key=lambda each: (each.kind, each.op, each.size_class, each.group))
    return cells, None if cells else f"no group has {MIN_COLLECTIVES} collectives of one operation and size"


def _too_few(cells: Sequence[_Cell]) -> str:
    kinds = {each.kind: set[int]() for each in cells}
    for each in cells:
        kinds[each.kind].add(each.group)
    most = max((len(groups) for groups in kinds.values()), default=0)
    return (
        f"at most {most} groups of one kind have {MIN_COLLECTIVES} collectives of the same operation and size, and "
        f"{MIN_GROUPS} are needed to tell which is slow"
    )


def _slow(peers: Sequence[_Cell]) -> list[tuple[_Cell, float]]:
    """Cells that are slow, with what is usual per byte."""
    values: NDArray[np.float64] = np.asarray([each.us_per_byte for each in peers])
    usual = float(np.median(values))
    mad = float(np.median(np.abs(values - usual)))
    slow = []
    for each in peers:
        beyond = each.us_per_byte - usual
        if beyond < max(SLOW_SHARE * usual, SLOW_MADS * mad):
            continue
        if each.transfer_us * (1 - usual / each.us_per_byte) >= SLOW_US:
            slow.append((each, usual))
    return slow


def _come_together(cell: _Cell, peers: Sequence[_Cell], usual: float) -> bool:
    slower_by_us = cell.transfer_us * (1 - usual / cell.us_per_byte)
    elsewhere_us = float(np.median([each.wait_us for each in peers if each.group != cell.group]))
    return cell.wait_us <= max(WAIT_SHARE * slower_by_us, elsewhere_us)


def _suspect(matched: Matched, kinds: GroupKinds, cell: _Cell, usual: float, num_peers: int) -> LinkSuspect:
    ranks = tuple(matched.ranks[matched.members[cell.group]].tolist())
    return LinkSuspect(
        groups=(matched.timings.groups[cell.group].name,),
        kind=kinds.names[cell.kind],
        ranks=ranks,
        hosts=_hosts(matched, ranks),
        op=matched.timings.ops[cell.op],
        num_bytes=1 << cell.size_class,
        ratio=cell.us_per_byte / usual,
        transfer_us=cell.transfer_us,
        peers_us=cell.transfer_us * usual / cell.us_per_byte,
        n=cell.n,
        num_peers=num_peers,
        agreeing=1,
        classes=1,
    )


def _narrowed(
    matched: Matched, kinds: GroupKinds, chosen: dict[int, LinkSuspect], compared: dict[int, int]
) -> tuple[LinkSuspect, ...]:
    """Slow groups of one kind that share some of their hosts, and no others, become one suspect with those hosts.

    Not where groups of the kind lie on the same hosts (one a rail): what they share says nothing then.
    """
    told: list[LinkSuspect] = []
    for kind in sorted({int(kinds.kind_of[group]) for group in chosen}):
        slow = [group for group in chosen if kinds.kind_of[group] == kind]
        normal = [group for group in compared if kinds.kind_of[group] == kind and group not in chosen]
        hosts = {
            group: set(_hosts(matched, matched.ranks[matched.members[group]].tolist())) for group in slow
        }
        shared = set.intersection(*hosts.values()) if len(slow) > 1 else set[str]()
        cleared: set[str] = set()
        for group in normal:
            cleared.update(_hosts(matched, matched.ranks[matched.members[group]].tolist()))
        narrower = shared and all(shared < each for each in hosts.values())
        if not narrower or shared <= cleared:
            told += [chosen[group] for group in slow]
            continue
        told.append(_joined(matched, [chosen[group] for group in slow], shared))
    return tuple(sorted(told, key=lambda each: (-each.ratio, each.groups)))


def _joined(matched: Matched, slow: Sequence[LinkSuspect], shared: set[str]) -> LinkSuspect:
    slowest = max(slow, key=lambda each: each.ratio)
    host_of = {place.rank: place.host for place in matched.timings.places}
    ranks = sorted({rank for each in slow for rank in each.ranks if host_of.get(rank) in shared})
    return replace(
        slowest,
        groups=tuple(name for each in slow for name in each.groups),
        ranks=tuple(ranks),
        hosts=tuple(sorted(shared)),
        n=sum(each.n for each in slow),
        agreeing=min(each.agreeing for each in slow),
        classes=max(each.classes for each in slow),
    )


def _hosts(matched: Matched, ranks: Sequence[int]) -> tuple[str, ...]:
    host_of = {place.rank: place.host for place in matched.timings.places}
    return tuple(dict.fromkeys(host for rank in ranks if (host := host_of.get(rank)) is not None))

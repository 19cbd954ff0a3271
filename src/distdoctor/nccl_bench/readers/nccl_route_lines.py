"""NCCL's lines about channels: which ranks are joined by what, and in which order the rings visit them.

Formats: NVIDIA/nccl 2.4 to 2.30 (src/transport/p2p.cc, shm.cc, net.cc, coll_net.cc, src/graph/rings.cc); RCCL adds
" comm 0x… nRanks 08".
"""

from __future__ import annotations

import re

from distdoctor.nccl_bench.facts.nccl_log import Route
from distdoctor.nccl_bench.readers.nccl_lines import LogLine
from distdoctor.nccl_bench.readers.nccl_notes import Notes

_ROUTE = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? ?: ?(\d{1,7})(?:\[[0-9a-fA-F]+\])? -> (\d{1,7})(?:\[[0-9a-fA-F]+\])? "
    r"(?:\[(send|receive)\] )?via (\S.{0,120})$"
)
_COLLNET = re.compile(r"CollNet \d+/\d+ : (\d{1,7}) \[(send|receive)\] via (COLLNET/\S.{0,100})$")
_NET = re.compile(r"(?:NET|COLLNET)/(.{1,60}?)/(\d{1,4})(?:\((\d{1,7})\))?((?:/[^/\s]+)*)$")
_GPUDIRECT_FLAG = re.compile(r"/GDRDMA(?:\(\w+\))?")
_RING = re.compile(r"Channel \d+/\d+ ?:((?:\s+\d{1,7})+)\s*(?:\.\.\.|…|comm\b.*)?$")
_EDGE_RING = re.compile(r"use ring PXN \d+ GDR (\d)")

# A ring of up to 8 ranks may be one host's, with GPUs in two groups (hybrid cube mesh), so blocks mean nothing.
_MIN_RANKS_FOR_BLOCKS = 9

# No host, and no NVLink domain, has more GPUs.
_MAX_BLOCK = 72


def read_route_line(line: LogLine, notes: Notes) -> bool:
    """Note a channel's route or ring; False when the message is neither."""
    text = line.text
    if " via " in text:
        route = _route(line, notes)
        if route is not None:
            notes.route(route, line)
            return True
    elif text.startswith("Channel "):
        found = _RING.search(text)
        if found:
            _ring([int(rank) for rank in found[1].split()], line, notes)
            return True
    if "use ring PXN" in text:
        gpudirect = _EDGE_RING.search(text)
        if gpudirect:
            notes.flag("ring gdr off" if gpudirect[1] == "0" else "ring gdr on", line)
            return True
    return False


def _route(line: LogLine, notes: Notes) -> Route | None:
    found = _ROUTE.search(line.text)
    collective = None if found else _COLLNET.search(line.text)
    where = notes.where(line)
    if collective:
        return _net_route(collective[3], (int(collective[1]), None), collective[2], line, where)
    if not found:
        return None
    source, target, direction = int(found[1]), int(found[2]), found[3]
    how = found[4].split(" comm ", 1)[0].strip()
    if how.startswith("NET/"):
        return _net_route(how, (source, target), direction, line, where)
    for transport in ("P2P", "SHM"):
        if how.startswith(transport):
            detail = how[len(transport) :].lstrip("/")
            return Route(
                transport=transport,
                detail=detail,
                source=source,
                target=target,
                line=line.number,
                where=where,
            )
    if "shared memory" in how:
        return Route(transport="SHM", detail=how, source=source, target=target, line=line.number, where=where)
    return None


def _net_route(
    how: str, ends: tuple[int, int | None], direction: str | None, line: LogLine, where: str
) -> Route | None:
    found = _NET.search(how)
    if not found:
        return None  # cut within the word
    gpudirect = bool(_GPUDIRECT_FLAG.search(found[4]))
    if line.unfinished and not gpudirect:
        return None  # the text ends here, perhaps just before /GDRDMA
    return Route(
        transport="COLLNET" if how.startswith("COLLNET") else "NET",
        detail=found[1],
        source=ends[0],
        target=ends[1],
        gpudirect=gpudirect,
        device=found[2],
        pxn=found[3] is not None,
        is_send=None if direction is None else direction == "send",
        line=line.number,
        where=where,
    )


def _ring(ranks: list[int], line: LogLine, notes: Notes) -> None:
    notes.highest("ring ranks", max(*ranks, len(ranks) - 1) + 1, line)
    block = _block(ranks)
    if block:
        notes.highest("ring block", block, line)


def _block(ranks: list[int]) -> int | None:
    """Smallest number of ranks that a ring visits as one aligned group before the next; None when it tells nothing.

    A ring enters and leaves each host once, so hosts show as groups: 0 7 6 … 1 | 8 15 14 … 9. Rings in plain order
    fit any group size and say nothing.
    """
    if len(ranks) < _MIN_RANKS_FOR_BLOCKS or ranks == sorted(ranks):
        return None
    for size in range(2, min(len(ranks) // 2, _MAX_BLOCK) + 1):
        starts = range(0, len(ranks) - size + 1, size)
        if all(_is_aligned(ranks[start : start + size], size) for start in starts):
            in_order = all(
                ranks[start : start + size] == sorted(ranks[start : start + size]) for start in starts
            )
            return None if in_order and size == 2 else size
    return None


def _is_aligned(group: list[int], size: int) -> bool:
    low = min(group)
    return low % size == 0 and set(group) == set(range(low, low + size))

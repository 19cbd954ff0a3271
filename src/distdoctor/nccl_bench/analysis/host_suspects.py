"""Hosts, groups of hosts and links between hosts that the matrix makes suspicious."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from distdoctor.nccl_bench.analysis.candidate import Candidate, Kind
from distdoctor.nccl_bench.analysis.matrix_cells import Board, host_cells
from distdoctor.nccl_bench.analysis.pairing import Pair
from distdoctor.nccl_bench.analysis.slow_ends import Direction, SlowCell, SlowEnd

# More of the hosts than this, and at least two: a cause that they share is likelier than as many faults. Our own choice.
GROUP_PART = 1 / 3


def of_two_hosts(board: Board, first: str, second: str) -> Candidate | None:
    """One direction far slower than the other: nothing else can be told of two hosts."""
    there = _pairs(board, lambda source, target: (source, target) == (first, second))
    back = _pairs(board, lambda source, target: (source, target) == (second, first))
    if not there or not back:
        return None
    for slow, fast, ends in ((there, back, (first, second)), (back, there, (second, first))):
        best = max(board.between[pair].gbps for pair in slow)
        others = sorted(board.between[pair].gbps for pair in fast)
        reference = others[len(others) // 2]
        if best < board.slow_ratio * reference:
            return Candidate(
                kind=Kind.DIRECTION,
                hosts=ends,
                ranks=(),
                direction=None,
                ratio=best / reference,
                gbps=best,
                others_gbps=reference,
                pairs=slow,
                controls=fast,
                only_two_hosts=True,
            )
    return None


def of_hosts(board: Board, ends: Sequence[SlowEnd[str]], links: Sequence[SlowCell[str]]) -> list[Candidate]:
    """Slow hosts, each or as one group, and slow links between hosts."""
    slow = {each.end for each in ends}
    bad_links = {(each.source, each.target) for each in links}
    controls = _pairs(
        board,
        lambda source, target: not slow & {source, target} and (source, target) not in bad_links,
    )
    found: list[Candidate] = []
    if len(ends) > 1 and len(ends) > GROUP_PART * len(board.hosts):
        found.append(_group(board, ends, controls))
    else:
        found += [_host(board, each, controls) for each in ends]
    return found + _links(board, links, controls)


def _host(board: Board, end: SlowEnd[str], controls: tuple[Pair, ...]) -> Candidate:
    return Candidate(
        kind=Kind.HOST,
        hosts=(end.end,),
        ranks=_ranks_of(board, (end.end,)),
        direction=end.direction,
        ratio=end.ratio,
        gbps=end.gbps,
        others_gbps=end.others_gbps,
        pairs=_fastest_pairs(board, end.cells),
        controls=controls,
    )


def _group(board: Board, ends: Sequence[SlowEnd[str]], controls: tuple[Pair, ...]) -> Candidate:
    worst = ends[0]
    directions = {each.direction for each in ends}
    hosts = tuple(host for host in board.hosts if any(each.end == host for each in ends))
    # First pairs of members, which would be fast if the fault lay between them and the rest; then the pairs of
    # each member in turn, so that a few stand for all.
    cells = [pair for pair in host_cells(board) if set(pair) <= set(hosts)][:1]
    longest = max(len(each.cells) for each in ends)
    cells += [each.cells[index] for index in range(longest) for each in ends if index < len(each.cells)]
    return Candidate(
        kind=Kind.GROUP,
        hosts=hosts,
        ranks=_ranks_of(board, hosts),
        direction=directions.pop() if len(directions) == 1 else Direction.BOTH,
        ratio=worst.ratio,
        gbps=worst.gbps,
        others_gbps=worst.others_gbps,
        pairs=_fastest_pairs(board, cells),
        controls=controls,
    )


def of_islands(board: Board, groups: tuple[tuple[str, ...], ...]) -> Candidate:
    """Groups of hosts that are slow with one another."""
    of = {host: number for number, group in enumerate(groups) for host in group}
    across = _pairs(board, lambda source, target: of[source] != of[target])
    within = _pairs(board, lambda source, target: of[source] == of[target])
    slow = median(board.between[pair].gbps for pair in across)
    fast = median(board.between[pair].gbps for pair in within)
    hosts = tuple(host for group in groups for host in group)
    return Candidate(
        kind=Kind.ISLANDS,
        hosts=hosts,
        ranks=_ranks_of(board, hosts),
        direction=None,
        ratio=slow / fast,
        gbps=slow,
        others_gbps=fast,
        pairs=across,
        controls=within,
        islands=groups,
    )


def _links(board: Board, links: Sequence[SlowCell[str]], controls: tuple[Pair, ...]) -> list[Candidate]:
    """Both directions of one pair as a link, one as a direction."""
    by_ends = {(each.source, each.target): each for each in links}
    found = []
    for (source, target), each in by_ends.items():
        back = by_ends.get((target, source))
        if back is not None and (back.ratio, back.source) < (each.ratio, each.source):
            continue
        cells = ((source, target), (target, source)) if back is not None else ((source, target),)
        found.append(
            Candidate(
                kind=Kind.LINK if back is not None else Kind.DIRECTION,
                hosts=tuple(sorted((source, target), key=board.hosts.index)) if back else (source, target),
                ranks=(),
                direction=Direction.BOTH if back is not None else None,
                ratio=each.ratio,
                gbps=each.gbps,
                others_gbps=each.others_gbps,
                pairs=_fastest_pairs(board, cells),
                controls=controls,
            )
        )
    return found


def _pairs(board: Board, wanted: Callable[[str, str], bool]) -> tuple[Pair, ...]:
    """Pairs of ranks whose hosts (source, target) are wanted."""
    return tuple(pair for pair in board.between if wanted(board.host(pair[0]), board.host(pair[1])))


def _fastest_pairs(board: Board, cells: Sequence[tuple[str, str]]) -> tuple[Pair, ...]:
    """For each cell of hosts its fastest pair of ranks: that one stands for the cell."""
    fastest: dict[tuple[str, str], Pair] = {}
    for pair, cell in board.between.items():
        key = board.host(pair[0]), board.host(pair[1])
        if key not in fastest or cell.gbps > board.between[fastest[key]].gbps:
            fastest[key] = pair
    return tuple(fastest[each] for each in cells)


def _ranks_of(board: Board, hosts: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted(rank for rank, place in board.places.items() if place.host in hosts))

"""Single NICs, rails and GPUs that the matrix makes suspicious: ranks whose host is fine otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from distdoctor.nccl_bench.analysis.candidate import Candidate, Kind
from distdoctor.nccl_bench.analysis.matrix_cells import SLOW_RATIO, Board, alike_inside
from distdoctor.nccl_bench.analysis.pairing import Pair
from distdoctor.nccl_bench.analysis.slow_ends import Direction, SlowCell, SlowEnd, slow_cells, slow_ends

# A rail is slow when its ranks are on at least this part of the hosts. Our own choice.
RAIL_PART = 2 / 3

# Pairs that a rail must have in the matrix, and the part of them that must be slow. Our own choice: three hosts
# have six; one pair in ten may be lucky.
MIN_RAIL_PAIRS = 6
NEARLY_ALL = 0.9


def of_ranks(
    board: Board,
    slow_hosts: frozenset[str],
    slow_links: frozenset[tuple[str, str]],
    *,
    with_links: bool,
) -> list[Candidate]:
    """Ranks whose host is fine otherwise, folded into rails and hosts; single pairs of ranks where asked for."""
    cells = {
        pair: cell.gbps
        for pair, cell in board.between.items()
        if not {board.host(rank) for rank in pair} & slow_hosts
        and (board.host(pair[0]), board.host(pair[1])) not in slow_links
    }
    members: dict[str, set[int]] = {}
    for rank in {rank for pair in cells for rank in pair}:
        members.setdefault(board.host(rank), set()).add(rank)
    several = {host for host, ranks in members.items() if len(ranks) > 1}
    if not several:
        return []
    rails = _rails(board, cells)
    of_slow_rail = {pair for each in rails for pair in each.pairs}
    cells = {pair: gbps for pair, gbps in cells.items() if pair not in of_slow_rail}
    ends = [each for each in slow_ends(cells, board.slow_ratio) if board.host(each.end) in several]
    slow = {each.end for each in ends}
    links = slow_cells(cells, ends, board.slow_ratio) if with_links else []
    bad = {(each.source, each.target) for each in links}
    controls = tuple(pair for pair in cells if not slow & set(pair) and pair not in bad)
    found = _fold_ranks(board, ends, members, controls)
    return rails + found + [_rank_direction(board, each, controls) for each in links]


def _rails(board: Board, cells: Mapping[Pair, float]) -> list[Candidate]:
    """Rails on which nearly every pair is slow beside the other rails of the same hosts; at most half of them."""
    by_rail: dict[int, list[Pair]] = {}
    for pair in cells:
        source, target = board.places[pair[0]].local_rank, board.places[pair[1]].local_rank
        if source == target:
            by_rail.setdefault(source, []).append(pair)
    if len(by_rail) < 2 or any(len(pairs) < MIN_RAIL_PAIRS for pairs in by_rail.values()):
        return []
    speeds = {rail: sorted(cells[pair] for pair in pairs) for rail, pairs in by_rail.items()}
    best = {rail: each[int((len(each) - 1) * NEARLY_ALL)] for rail, each in speeds.items()}
    # With two rails the faster one is the measure; it shows what these hosts can do.
    upper = sorted((median(each) for each in speeds.values()), reverse=True)[(len(speeds) - 1) // 4]
    slow = [rail for rail, speed in best.items() if speed < board.slow_ratio * upper]
    if len(slow) > len(speeds) / 2:
        return []
    good = [pair for rail, pairs in by_rail.items() if rail not in slow for pair in pairs]
    return [_rail(board, by_rail[rail], good, cells) for rail in slow]


def _rail(
    board: Board, pairs: Sequence[Pair], good: Sequence[Pair], cells: Mapping[Pair, float]
) -> Candidate:
    ranks = tuple(sorted({rank for pair in pairs for rank in pair}))
    speed, others = median(cells[pair] for pair in pairs), median(cells[pair] for pair in good)
    return Candidate(
        kind=Kind.RAIL,
        hosts=tuple(dict.fromkeys(board.host(rank) for rank in ranks)),
        ranks=ranks,
        direction=Direction.BOTH,
        ratio=speed / others,
        gbps=speed,
        others_gbps=others,
        pairs=tuple(pairs),
        controls=tuple(good),
    )


def _fold_ranks(
    board: Board,
    ends: Sequence[SlowEnd[int]],
    members: Mapping[str, set[int]],
    controls: tuple[Pair, ...],
) -> list[Candidate]:
    found: list[Candidate] = []
    rest = list(ends)
    for rail in sorted({board.places[each.end].local_rank for each in ends}):
        of_rail = [each for each in ends if board.places[each.end].local_rank == rail]
        on_hosts = [
            host
            for host, ranks in members.items()
            if any(board.places[rank].local_rank == rail for rank in ranks)
        ]
        if len(of_rail) > 1 and len(of_rail) >= RAIL_PART * len(on_hosts):
            found.append(_of_ends(board, Kind.RAIL, of_rail, controls))
            rest = [each for each in rest if each not in of_rail]
    for host in dict.fromkeys(board.host(each.end) for each in rest):
        of_host = [each for each in rest if board.host(each.end) == host]
        found.append(_of_ends(board, Kind.RANK, of_host, controls))
    return found


def _of_ends(
    board: Board,
    kind: Kind,
    ends: Sequence[SlowEnd[int]],
    controls: tuple[Pair, ...],
    *,
    is_inside: bool = False,
) -> Candidate:
    worst = min(ends, key=lambda each: each.ratio)
    directions = {each.direction for each in ends}
    ranks = tuple(sorted(each.end for each in ends))
    return Candidate(
        kind=kind,
        hosts=tuple(dict.fromkeys(board.host(rank) for rank in ranks)),
        ranks=ranks,
        direction=directions.pop() if len(directions) == 1 else Direction.BOTH,
        ratio=worst.ratio,
        gbps=worst.gbps,
        others_gbps=worst.others_gbps,
        pairs=tuple(dict.fromkeys(pair for each in ends for pair in each.cells)),
        controls=controls,
        is_inside=is_inside,
    )


def _rank_direction(board: Board, cell: SlowCell[int], controls: tuple[Pair, ...]) -> Candidate:
    pair = (cell.source, cell.target)
    return Candidate(
        kind=Kind.DIRECTION,
        hosts=tuple(board.host(rank) for rank in pair),
        ranks=pair,
        direction=None,
        ratio=cell.ratio,
        gbps=cell.gbps,
        others_gbps=cell.others_gbps,
        pairs=(pair,),
        controls=controls,
        is_inside=board.host(cell.source) == board.host(cell.target),
    )


def inside_host(board: Board, host: str) -> list[Candidate]:
    """Ranks of one host that exchange data slowly with all its others, and single directions.

    A slow pair in both directions is not suspected: GPUs of one host are not all joined alike. One direction that
    is far slower than the way back is.
    """
    cells = alike_inside(board, host)
    # Whatever the noise: sockets and switches of one host make differences that no other host is there to show.
    slow_ratio = min(board.slow_ratio, SLOW_RATIO)
    ends = slow_ends(cells, slow_ratio)
    slow = {each.end for each in ends}
    one_way = [
        each
        for each in slow_cells(cells, ends, slow_ratio)
        if each.gbps < slow_ratio * cells.get((each.target, each.source), 0.0)
    ]
    bad = {(each.source, each.target) for each in one_way}
    good = tuple(pair for pair in cells if not slow & set(pair) and pair not in bad)
    found = [_of_ends(board, Kind.RANK, [each], good, is_inside=True) for each in ends]
    found += [_rank_direction(board, each, good) for each in one_way]
    return [_in_gbps(board, each) for each in found]


def _in_gbps(board: Board, candidate: Candidate) -> Candidate:
    """With GB/s as measured, where cells were compared over hosts by their position."""
    raw = board.inside[candidate.hosts[0]]
    return Candidate(
        kind=candidate.kind,
        hosts=candidate.hosts[:1],
        ranks=candidate.ranks,
        direction=candidate.direction,
        ratio=candidate.ratio,
        gbps=median(raw[pair].gbps for pair in candidate.pairs),
        others_gbps=median(raw[pair].gbps for pair in candidate.controls or candidate.pairs),
        pairs=candidate.pairs,
        controls=candidate.controls,
        is_inside=True,
    )

"""What a matrix makes suspicious: hosts, NICs, rails, groups of hosts, links and single directions. Nothing is named
before `matrix_score` has seen it confirmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from distdoctor.nccl_bench.analysis.islands import islands_of
from distdoctor.nccl_bench.analysis.matrix_cells import SLOW_RATIO, Board, alike_inside, host_cells
from distdoctor.nccl_bench.analysis.pairing import Pair
from distdoctor.nccl_bench.analysis.slow_ends import (
    Direction,
    SlowCell,
    SlowEnd,
    slow_cells,
    slow_ends,
)

# More of the hosts than this, and at least two: a cause that they share is likelier than as many faults. Our own choice.
GROUP_PART = 1 / 3

# A rail is slow when its ranks are on at least this part of the hosts. Our own choice.
RAIL_PART = 2 / 3

# Pairs that a rail must have in the matrix, and the part of them that must be slow. Our own choice: three hosts
# have six; one pair in ten may be lucky.
MIN_RAIL_PAIRS = 6
NEARLY_ALL = 0.9

# Suspects that are followed up: so many hosts, ranks and rails, and so many single links. Our own bound: each costs
# some eight pairs in the confirmation round. Links have their own, for in a large noisy matrix some always look slow.
MAX_SUSPECTS = 4


class Kind(str, Enum):
    """What is suspected."""

    HOST = "host"
    """All pairs of a host with others."""
    RANK = "rank"
    """Some ranks of a host, its others are fine: their NICs or GPUs."""
    RAIL = "rail"
    """The same local rank on most hosts: a switch, or how the rail is wired."""
    GROUP = "group"
    """A third of the hosts or more: what they share."""
    ISLANDS = "islands"
    """Groups of hosts, fast inside and slow between: the uplinks between them."""
    LINK = "link"
    """Both directions between two ends that are fine with others."""
    DIRECTION = "direction"
    """One direction between two ends that are fine otherwise; with two hosts, either end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One suspicion, with the pairs that show it and those to compare with."""

    kind: Kind
    hosts: tuple[str, ...]
    """For a direction: source, target."""
    ranks: tuple[int, ...]
    """The ranks at fault; all of a host. For a direction between ranks: source, target."""
    direction: Direction | None
    ratio: float
    """What its pairs reach over what comparable others reach."""
    gbps: float
    others_gbps: float
    pairs: tuple[Pair, ...]
    """Slow pairs of ranks that were measured."""
    controls: tuple[Pair, ...]
    """Comparable pairs that touch no suspect."""
    is_inside: bool = False
    """Inside one host: not the network."""
    only_two_hosts: bool = False
    """No third host tells which end it is."""
    islands: tuple[tuple[str, ...], ...] = ()


def candidates_of(board: Board) -> list[Candidate]:
    """Suspicions, slowest first: at most `MAX_SUSPECTS` of single links and as many others."""
    found = [*_between_hosts(board)]
    for host in board.inside:
        found += _inside(board, host)
    found.sort(key=lambda each: each.ratio)
    links = [each for each in found if each.kind in (Kind.LINK, Kind.DIRECTION)]
    others = [each for each in found if each.kind not in (Kind.LINK, Kind.DIRECTION)]
    return others[:MAX_SUSPECTS] + links[:MAX_SUSPECTS]


# --- between hosts ---


def _between_hosts(board: Board) -> list[Candidate]:
    hosts = board.hosts
    if len(hosts) < 2:
        return []
    if len(hosts) == 2:
        one_way = _of_two_hosts(board, hosts[0], hosts[1])
        if one_way is not None:
            return [one_way]
        return _of_ranks(board, frozenset(), frozenset(), with_links=True)
    cells = host_cells(board)
    ends = slow_ends(cells, board.slow_ratio)
    links = slow_cells(cells, ends, board.slow_ratio)
    slow_hosts = frozenset(each.end for each in ends)
    if not ends and (groups := islands_of(cells)):
        return [_islands(board, groups)]
    found = _of_hosts(board, ends, links)
    touched = frozenset((each.source, each.target) for each in links)
    return found + _of_ranks(board, slow_hosts, touched, with_links=False)


def _of_two_hosts(board: Board, first: str, second: str) -> Candidate | None:
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


def _of_hosts(board: Board, ends: Sequence[SlowEnd[str]], links: Sequence[SlowCell[str]]) -> list[Candidate]:
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


def _islands(board: Board, groups: tuple[tuple[str, ...], ...]) -> Candidate:
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


# --- ranks of different hosts ---


def _of_ranks(
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


# --- inside one host ---


def _inside(board: Board, host: str) -> list[Candidate]:
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


# --- pairs ---


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

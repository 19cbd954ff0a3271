"""What a matrix makes suspicious, the slowest first. Nothing is named before `matrix_score` has seen it confirmed."""

from __future__ import annotations

from distdoctor.nccl_bench.analysis.candidate import Candidate, Kind
from distdoctor.nccl_bench.analysis.host_suspects import of_hosts, of_islands, of_two_hosts
from distdoctor.nccl_bench.analysis.islands import islands_of
from distdoctor.nccl_bench.analysis.matrix_cells import Board, host_cells
from distdoctor.nccl_bench.analysis.rank_suspects import inside_host, of_ranks
from distdoctor.nccl_bench.analysis.slow_ends import slow_cells, slow_ends

# Suspects that are followed up: so many hosts, ranks and rails, and so many single links. Our own bound: each costs
# some eight pairs in the confirmation round. Links have their own, for in a large noisy matrix some always look slow.
MAX_SUSPECTS = 4

__all__ = ["MAX_SUSPECTS", "Candidate", "Kind", "candidates_of"]


def candidates_of(board: Board) -> list[Candidate]:
    """Suspicions, slowest first: at most `MAX_SUSPECTS` of single links and as many others."""
    found = [*_between_hosts(board)]
    for host in board.inside:
        found += inside_host(board, host)
    found.sort(key=lambda each: each.ratio)
    links = [each for each in found if each.kind in (Kind.LINK, Kind.DIRECTION)]
    others = [each for each in found if each.kind not in (Kind.LINK, Kind.DIRECTION)]
    return others[:MAX_SUSPECTS] + links[:MAX_SUSPECTS]


def _between_hosts(board: Board) -> list[Candidate]:
    hosts = board.hosts
    if len(hosts) < 2:
        return []
    if len(hosts) == 2:
        one_way = of_two_hosts(board, hosts[0], hosts[1])
        if one_way is not None:
            return [one_way]
        return of_ranks(board, frozenset(), frozenset(), with_links=True)
    cells = host_cells(board)
    ends = slow_ends(cells, board.slow_ratio)
    links = slow_cells(cells, ends, board.slow_ratio)
    slow_hosts = frozenset(each.end for each in ends)
    if not ends and (groups := islands_of(cells)):
        return [of_islands(board, groups)]
    found = of_hosts(board, ends, links)
    touched = frozenset((each.source, each.target) for each in links)
    return found + of_ranks(board, slow_hosts, touched, with_links=False)

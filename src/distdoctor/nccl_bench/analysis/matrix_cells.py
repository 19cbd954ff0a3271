"""The matrix as cells that may be compared with one another: between hosts, and inside each host.

Pairs inside a host (NVLink, PCIe, loopback) and pairs between hosts (the network) are never compared. A cell
between two hosts is the fastest of its pairs of ranks, so that one slow NIC does not make its whole host look slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from distdoctor.nccl_bench.analysis.pairing import Pair
from distdoctor.nccl_bench.facts.matrix import Matrix
from distdoctor.ranks.places import Place

# What part of the others' speed is slow, by how much visits of the same pair differ: on a fabric of its own (typical
# visit within 10 % of the best), as a rule, and on a loaded machine (more than 1.5-fold). There scores of hosts
# without a fault were 0.47 to 1.38, that of a host shaped to 200 Mbit/s 0.04; with one bad node of five pairs of
# nodes ran at 0.56 (NVIDIA/nccl-tests issue 106). Our own thresholds.
QUIET_FOLD, QUIET_RATIO = 1.1, 0.75
SLOW_RATIO = 0.5
NOISY_FOLD, NOISY_RATIO = 1.5, 0.4

# Noise is that of nearly the noisiest pairs: nine in ten are steadier.
NOISE_PART = 0.9

# A position inside the host is compared over hosts when at least so many have it. Our own choice.
MIN_HOSTS_ALIKE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One direction of one pair of ranks."""

    gbps: float
    """GB/s of 10^9 bytes, best of all repeats."""
    confirmed_us: tuple[float, ...] = ()
    """Times of all its visits, when it was measured again beside controls; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All cells of a matrix, by what joins them."""

    places: Mapping[int, Place]
    between: Mapping[Pair, Cell]
    """Between ranks of different hosts; of one rail only, where three hosts or more have several ranks."""
    inside: Mapping[str, Mapping[Pair, Cell]]
    """By host."""
    unplaced: int = 0
    """Pairs left out because the host of a rank is not known."""
    slow_ratio: float = SLOW_RATIO
    """Slower than this part of what the others reach is slow."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts with pairs to others, in the order of their lowest ranks."""
        ranks = sorted({rank for pair in self.between for rank in pair})
        return tuple(dict.fromkeys(self.places[rank].host for rank in ranks))

    def host(self, rank: int) -> str:
        """Host of a rank that is on the board."""
        return self.places[rank].host


def board_of(matrix: Matrix, places: Iterable[Place], late_us: Mapping[int, float] | None = None) -> Board:
    """The cells of a matrix.

    `late_us`: how much later than others a rank acts, in microseconds; it is taken off the times of its pairs, so
    that a link is not blamed for the process at its end.
    """
    place_of = {place.rank: place for place in places}
    between: dict[Pair, Cell] = {}
    inside: dict[str, dict[Pair, Cell]] = {}
    unplaced = 0
    for pair, cell in _cells(matrix, late_us or {}, place_of).items():
        source, target = place_of.get(pair[0]), place_of.get(pair[1])
        if source is None or target is None:
            unplaced += 1
        elif source.host == target.host:
            inside.setdefault(source.host, {})[pair] = cell
        else:
            between[pair] = cell
    return Board(
        places=place_of,
        between=_of_one_rail(between, place_of),
        inside=inside,
        unplaced=unplaced,
        slow_ratio=slow_ratio(matrix),
    )


def slow_ratio(matrix: Matrix) -> float:
    """What part of the others' speed counts as slow in this matrix; see `QUIET_RATIO`, `SLOW_RATIO`, `NOISY_RATIO`."""
    folds = sorted(
        median(each.repeats_us) / min(each.repeats_us)
        for each in matrix.pairs
        if len(each.repeats_us) > 1 and min(each.repeats_us) > 0
    )
    if not folds:
        return SLOW_RATIO
    fold = folds[int((len(folds) - 1) * NOISE_PART)]
    if fold <= QUIET_FOLD:
        return QUIET_RATIO
    return NOISY_RATIO if fold > NOISY_FOLD else SLOW_RATIO


def host_cells(board: Board) -> dict[tuple[str, str], float]:
    """GB/s from host to host: the fastest of their pairs of ranks."""
    cells: dict[tuple[str, str], float] = {}
    for (source, target), cell in board.between.items():
        key = board.host(source), board.host(target)
        cells[key] = max(cells.get(key, 0.0), cell.gbps)
    return cells


def alike_inside(board: Board, host: str) -> dict[Pair, float]:
    """Speeds inside one host, each over the median of the same two local ranks on all hosts where three have them.

    GPUs of one host are not all joined alike (bridges, two sockets), but hosts of one kind are wired alike. With
    fewer hosts the speeds are GB/s as measured.
    """
    raw = {pair: cell.gbps for pair, cell in board.inside.get(host, {}).items()}
    over_hosts: dict[tuple[int, int], list[float]] = {}
    for cells in board.inside.values():
        for pair, cell in cells.items():
            over_hosts.setdefault(_local(board, pair), []).append(cell.gbps)
    if any(len(over_hosts[_local(board, pair)]) < MIN_HOSTS_ALIKE for pair in raw):
        return raw
    return {pair: gbps / median(over_hosts[_local(board, pair)]) for pair, gbps in raw.items()}


def _local(board: Board, pair: Pair) -> tuple[int, int]:
    return board.places[pair[0]].local_rank, board.places[pair[1]].local_rank


def _cells(matrix: Matrix, late_us: Mapping[int, float], place_of: Mapping[int, Place]) -> dict[Pair, Cell]:
    """Each ordered pair once, from however many entries."""
    times: dict[Pair, list[float]] = {}
    again: set[Pair] = set()
    for each in matrix.pairs:
        pair = each.source, each.target
        if each.best_us <= 0 or each.source == each.target:
            continue
        samples = [sample for sample in each.repeats_us if sample > 0] or [each.best_us]
        times.setdefault(pair, []).extend(samples)
        if each.confirmed:
            again.add(pair)
    if late_us:
        times = _without_lateness(times, late_us, place_of)
    return {
        pair: Cell(
            gbps=matrix.size_bytes / min(samples) / 1e3,
            confirmed_us=tuple(samples) if pair in again else (),
        )
        for pair, samples in times.items()
    }


def _without_lateness(
    times: Mapping[Pair, list[float]], late_us: Mapping[int, float], place_of: Mapping[int, Place]
) -> dict[Pair, list[float]]:
    """Times of late ranks' pairs less their lateness, but no shorter than those of the others: how much of a time
    lateness is, is not known, and whoever is made faster than all would make them look slow.
    """

    def is_inside(pair: Pair) -> bool:
        source, target = place_of.get(pair[0]), place_of.get(pair[1])
        return source is not None and target is not None and source.host == target.host

    usual: dict[bool, list[float]] = {}
    for pair, samples in times.items():
        if not late_us.keys() & set(pair):
            usual.setdefault(is_inside(pair), []).append(min(samples))
    left: dict[Pair, list[float]] = {}
    for pair, samples in times.items():
        late = max(late_us.get(pair[0], 0.0), late_us.get(pair[1], 0.0))
        others = usual.get(is_inside(pair))
        floor = median(others) if others else 0.0
        left[pair] = [max(us - late, min(us, floor)) if late and floor else us for us in samples]
    return left


def _of_one_rail(cells: Mapping[Pair, Cell], place_of: Mapping[int, Place]) -> dict[Pair, Cell]:
    """Without the pairs that cross rails, which may take a longer way; all pairs with fewer than three hosts.

    Of two hosts every rank has one partner on its rail, which does not tell which of the two is slow.
    """
    hosts = {place_of[rank].host for pair in cells for rank in pair}
    if len(hosts) < MIN_HOSTS_ALIKE:
        return dict(cells)
    of_one_rail = {
        pair: cell
        for pair, cell in cells.items()
        if place_of[pair[0]].local_rank == place_of[pair[1]].local_rank
    }
    covered = {place_of[rank].host for pair in of_one_rail for rank in pair}
    return of_one_rail if covered == hosts else dict(cells)

"""Who is slow in the matrix: scores of every end, suspects that stayed slow beside controls, and what to measure again.

Two passes. The first makes candidates (`matrix_suspects`); their pairs are then measured again in turn with control
pairs that touch no candidate. Named is only whose best visit, over all its pairs, is still slow beside the controls'
median visit (how slow depends on the noise: `matrix_cells.slow_ratio`) and slower than every control pair's best.
Noise makes single visits slow, not all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from distdoctor.nccl_bench.analysis.end_scores import EndScore, end_scores
from distdoctor.nccl_bench.analysis.matrix_cells import Board, Cell, board_of, host_cells
from distdoctor.nccl_bench.analysis.matrix_suspects import Candidate, Kind, candidates_of
from distdoctor.nccl_bench.analysis.pairing import Pair
from distdoctor.nccl_bench.analysis.slow_ends import Direction
from distdoctor.nccl_bench.facts.matrix import Matrix
from distdoctor.ranks.places import Place

__all__ = [
    "Confirmation",
    "Direction",
    "EndScore",
    "Kind",
    "MatrixScore",
    "State",
    "Suspect",
    "needs_confirmation",
    "score_matrix",
]

# Pairs of one suspect that are measured again in each pass, and controls; a single pair comes as often. Our own choice.
PAIRS_AGAIN = 4

# Visits that a suspect's pairs must have had together, those of the first pass included. A busy host makes one visit
# in three twice as slow as the median: all of 12 once in 500,000. Our own choice.
MIN_SAMPLES = 12

# Visits of the controls together: fewer, for they are a median. Our own choice.
MIN_CONTROL_SAMPLES = 6


class State(str, Enum):
    """What the confirmation round made of a candidate."""

    CONFIRMED = "confirmed"
    NOT_CLEAR = "not clearly slower when measured again"
    OPEN = "not measured again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """One candidate with what became of it."""

    candidate: Candidate
    state: State
    num_confirmed: int
    """Its pairs that were measured again."""
    num_controls: int
    margin: float | None
    """How many times slower its best visit is than the controls' median visit; None without both."""

    @property
    def kind(self) -> Kind:
        """What is suspected."""
        return self.candidate.kind

    @property
    def hosts(self) -> tuple[str, ...]:
        """Its hosts; source and target of a direction."""
        return self.candidate.hosts

    @property
    def ranks(self) -> tuple[int, ...]:
        """Its ranks."""
        return self.candidate.ranks

    @property
    def direction(self) -> Direction | None:
        """Which way."""
        return self.candidate.direction

    @property
    def ratio(self) -> float:
        """What its pairs reach over what comparable others reach."""
        return self.candidate.ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixScore:
    """All that the matrix tells."""

    suspects: tuple[Suspect, ...]
    """Confirmed first, slowest first."""
    scores: tuple[EndScore, ...]
    num_hosts: int
    """Hosts with pairs to others; 0 when all pairs are inside hosts."""
    num_between: int
    """Pairs of ranks between hosts that were compared."""
    num_inside: int
    unplaced: int
    was_confirmed: bool
    """Some pairs were measured again."""
    slow_ratio: float
    """Slower than this part of what the others reach is slow."""

    @property
    def confirmed(self) -> tuple[Suspect, ...]:
        """Those that may be named."""
        return tuple(each for each in self.suspects if each.state is State.CONFIRMED)

    @property
    def open(self) -> tuple[Suspect, ...]:
        """Those that nobody has looked at again."""
        return tuple(each for each in self.suspects if each.state is State.OPEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Ordered pairs of ranks to measure again; empty when nothing is suspected."""

    suspects: tuple[Pair, ...]
    """`PAIRS_AGAIN` for each suspicion; pairs come again where it has fewer."""
    controls: tuple[Pair, ...]


def score_matrix(
    matrix: Matrix, places: Iterable[Place], *, late_us: Mapping[int, float] | None = None
) -> MatrixScore:
    """Scores and suspects. `late_us`: lateness of ranks, which their links are not blamed for."""
    board = board_of(matrix, places, late_us)
    suspects = [_follow_up(board, each) for each in candidates_of(board)]
    suspects.sort(key=lambda each: (each.state is not State.CONFIRMED, each.ratio))
    return MatrixScore(
        suspects=tuple(suspects),
        scores=_scores(board),
        num_hosts=len(board.hosts),
        num_between=len(board.between),
        num_inside=sum(map(len, board.inside.values())),
        unplaced=board.unplaced,
        was_confirmed=any(each.confirmed for each in matrix.pairs),
        slow_ratio=board.slow_ratio,
    )


def needs_confirmation(
    matrix: Matrix, places: Iterable[Place], *, late_us: Mapping[int, float] | None = None
) -> Confirmation:
    """Which pairs to measure again, suspects and controls: `pairing.confirmation_rounds` puts them in turn."""
    board = board_of(matrix, places, late_us)
    suspects: list[Pair] = []
    controls: dict[Pair, None] = {}
    for candidate in candidates_of(board):
        if not candidate.controls:
            continue
        again = _spread(candidate.pairs, PAIRS_AGAIN)
        suspects += [again[index % len(again)] for index in range(PAIRS_AGAIN)]
        controls.update(dict.fromkeys(_spread(candidate.controls, PAIRS_AGAIN)))
    return Confirmation(
        suspects=tuple(suspects), controls=tuple(each for each in controls if each not in suspects)
    )


def _follow_up(board: Board, candidate: Candidate) -> Suspect:
    own = _measured_again(board, candidate.pairs)
    controls = _measured_again(board, candidate.controls)
    samples = [us for cell in own for us in cell.confirmed_us]
    control_samples = [us for cell in controls for us in cell.confirmed_us]
    margin = min(samples) / median(control_samples) if samples and control_samples else None
    enough_pairs = len(own) >= min(2, len(candidate.pairs))
    enough = len(samples) >= MIN_SAMPLES and len(control_samples) >= MIN_CONTROL_SAMPLES
    if margin is None or not enough_pairs or not enough:
        state = State.OPEN
    elif margin > 1 / board.slow_ratio and min(samples) > max(min(cell.confirmed_us) for cell in controls):
        state = State.CONFIRMED
    else:
        state = State.NOT_CLEAR
    return Suspect(
        candidate=candidate,
        state=state,
        num_confirmed=len(own),
        num_controls=len(controls),
        margin=margin,
    )


def _measured_again(board: Board, pairs: Sequence[Pair]) -> list[Cell]:
    found = []
    for pair in pairs:
        cell = board.between.get(pair) or board.inside.get(board.host(pair[0]), {}).get(pair)
        if cell is not None and cell.confirmed_us:
            found.append(cell)
    return found


def _spread(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """At most `count` of the pairs, evenly over their order."""
    if len(pairs) <= count:
        return list(pairs)
    return [pairs[index * len(pairs) // count] for index in range(count)]


def _scores(board: Board) -> tuple[EndScore, ...]:
    """Of hosts when there are several, else of the ranks of the only one."""
    if board.between:
        return end_scores(host_cells(board), {host: host for host in board.hosts})
    cells = {pair: cell.gbps for inside in board.inside.values() for pair, cell in inside.items()}
    ranks = sorted({rank for pair in cells for rank in pair})
    return end_scores(cells, {rank: f"rank {rank}" for rank in ranks})

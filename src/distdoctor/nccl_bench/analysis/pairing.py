"""Which pairs of ranks are measured together: all pairs, sampled rounds for many ranks, confirmation of suspects.

Pure and deterministic: every rank computes the same plan. A pair is ordered, (source, target); a round is a tuple
of pairs that share no rank and may run at the same time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.groups import hosts_of
from distdoctor.ranks.places import Place

Pair = tuple[int, int]
Round = tuple[Pair, ...]

# Up to this many ranks every ordered pair is measured (240 of them), one by one: pairs that run at once share the
# NICs of their hosts unevenly. Beyond it sampled rounds, in which every host carries the same load. Our own choice:
# some seconds at a few milliseconds a transfer and a few repeats.
MAX_ALL_PAIRS_RANKS = 16

# Beyond this many ranks one rank a host stands for all: it bounds what one rank scores. Our own choice.
MAX_MATRIX_RANKS = 4096

# Rounds beyond log2(n): with as many partners a single slow one does not make a good rank look slow. Our own choice.
EXTRA_ROUNDS = 2

# Times that suspects and controls are gone through: with the four pairs that `matrix_score` asks for a suspicion and
# the first pass, more visits than it needs. Our own choice.
CONFIRMATION_REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPlan:
    """The first pass."""

    ranks: tuple[int, ...]
    rounds: tuple[Round, ...]
    is_sampled: bool
    is_concurrent: bool


def plan_matrix(places: Sequence[Place], *, all_ranks: bool = False, seed: int = 0) -> MatrixPlan:
    """The first pass for the ranks of a job: all pairs when they are few, sampled rounds when they are many.

    `all_ranks` measures every ordered pair whatever their number; n ranks have n(n-1) of them.
    """
    ranks = tuple(sorted(place.rank for place in places)) if all_ranks else representatives(places)
    concurrent = len(ranks) > MAX_ALL_PAIRS_RANKS
    if all_ranks or len(ranks) <= MAX_ALL_PAIRS_RANKS:
        rounds = all_pairs_rounds(ranks, concurrent=concurrent)
        return MatrixPlan(ranks=ranks, rounds=rounds, is_sampled=False, is_concurrent=concurrent)
    rounds = sampled_rounds(ranks, seed=seed, places=places)
    return MatrixPlan(ranks=ranks, rounds=rounds, is_sampled=True, is_concurrent=True)


def all_pairs_rounds(ranks: Sequence[int], *, concurrent: bool) -> tuple[Round, ...]:
    """Every ordered pair once: in rounds of disjoint pairs (circle method), or one pair a round.

    n(n-1) pairs; concurrent, 2(n-1) rounds for even n and 2n for odd n, in which one rank sits out.
    """
    matchings = circle_rounds(tuple(dict.fromkeys(ranks)))
    rounds = _both_directions(matchings)
    if concurrent:
        return rounds
    return tuple((pair,) for each in rounds for pair in each)


def representatives(places: Sequence[Place]) -> tuple[int, ...]:
    """Ranks for the matrix: all while they are at most `MAX_MATRIX_RANKS`, else the lowest rank of each host.

    All ranks of a host count because each has its rail. Beyond `MAX_MATRIX_RANKS` hosts, hosts evenly spread.
    """
    if len(places) <= MAX_MATRIX_RANKS:
        return tuple(sorted(place.rank for place in places))
    firsts = tuple(group.ranks[0] for group in hosts_of(places))
    step = -(-len(firsts) // MAX_MATRIX_RANKS)
    return firsts[::step]


def num_sampled_rounds(num_ranks: int) -> int:
    """log2(n) + 2 matchings, and never more than there are partners."""
    return min(_num_matchings(num_ranks), max(1, num_ranks - 1).bit_length() + EXTRA_ROUNDS)


def sampled_rounds(
    ranks: Sequence[int],
    *,
    seed: int,
    num_rounds: int | None = None,
    places: Sequence[Place] = (),
) -> tuple[Round, ...]:
    """Matchings with different partners in each, both directions of each: 2 x `num_rounds` rounds.

    Every rank is in each matching (one sits out when their number is odd). With `places` of several hosts the
    hosts are matched, and rank k of one host goes with rank k of the other: every host then carries the same
    load in every round, and pairs of one rail are compared with their like.
    """
    members = tuple(dict.fromkeys(ranks))
    hosts = _ranks_by_host(members, places)
    if len(hosts) < 2:
        matchings = _some_matchings(members, seed, num_rounds)
        return _both_directions(matchings)
    chosen = _some_matchings(tuple(range(len(hosts))), seed, num_rounds)
    by_rail = [
        tuple(
            (hosts[left][rail], hosts[right][rail])
            for left, right in matching
            for rail in sorted(hosts[left].keys() & hosts[right].keys())
        )
        for matching in chosen
    ]
    return _both_directions(by_rail)


def confirmation_rounds(
    suspects: Sequence[Pair], controls: Sequence[Pair], *, repeats: int = CONFIRMATION_REPEATS
) -> tuple[Round, ...]:
    """Suspect and control pairs one by one in turn (A B A B …), the whole sequence `repeats` times.

    One pair a round, so that nothing disturbs it; in turn, so that a busy moment of a host meets both alike. When
    there are fewer controls than suspects they come again. No suspect: no rounds.
    """
    if not suspects:
        return ()
    once: list[Round] = []
    for index, pair in enumerate(suspects):
        once.append((pair,))
        if controls:
            once.append((controls[index % len(controls)],))
    once += [(pair,) for pair in controls[len(suspects) :]]
    return tuple(once) * repeats


def circle_rounds(members: Sequence[int]) -> list[list[Pair]]:
    """A round-robin tournament: matchings in which every two members meet exactly once (circle method).

    For an odd number one member sits out in each matching, each time another.
    """
    return [_matching(members, index) for index in range(_num_matchings(len(members)))]


def _num_matchings(num_members: int) -> int:
    if num_members < 2:
        return 0
    return num_members - 1 + num_members % 2


def _matching(members: Sequence[int], index: int) -> list[Pair]:
    """Matching `index` of the tournament: the last seat is fixed, the others turn; an empty seat gives a pause."""
    count = len(members) + len(members) % 2
    turning = count - 1
    seats = [(index, count - 1)]
    seats += [((index + step) % turning, (index - step) % turning) for step in range(1, count // 2)]
    # Without the turn of every second pair the lower seats would always send first.
    ordered = [(b, a) if (a + b + index) % 2 else (a, b) for a, b in seats]
    return [(members[a], members[b]) for a, b in ordered if max(a, b) < len(members)]


def _some_matchings(members: Sequence[int], seed: int, num_rounds: int | None) -> list[list[Pair]]:
    """Matchings of a shuffled tournament, chosen at random: no two members meet twice."""
    available = _num_matchings(len(members))
    wanted = num_sampled_rounds(len(members)) if num_rounds is None else num_rounds
    generator = random.Random(seed)  # noqa: S311 - a plan that every rank computes alike, no secret
    shuffled = list(members)
    generator.shuffle(shuffled)
    indexes = generator.sample(range(available), min(wanted, available))
    return [_matching(shuffled, index) for index in indexes]


def _both_directions(matchings: Sequence[Sequence[Pair]]) -> tuple[Round, ...]:
    rounds: list[Round] = []
    for matching in matchings:
        if matching:
            rounds.append(tuple(matching))
            rounds.append(tuple((target, source) for source, target in matching))
    return tuple(rounds)


def _ranks_by_host(members: Sequence[int], places: Sequence[Place]) -> list[Mapping[int, int]]:
    """For each host its ranks among `members`, by local rank; empty when a member's place is not known."""
    place_of = {place.rank: place for place in places}
    hosts: dict[str, dict[int, int]] = {}
    for rank in members:
        place = place_of.get(rank)
        if place is None:
            return []
        hosts.setdefault(place.host, {})[place.local_rank] = rank
    return list(hosts.values())

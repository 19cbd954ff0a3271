"""Made-up clusters for tests: places, and matrices with noise that only makes transfers slower, and with faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from distdoctor.nccl_bench.analysis.matrix_score import needs_confirmation
from distdoctor.nccl_bench.analysis.pairing import Pair, confirmation_rounds, plan_matrix
from distdoctor.nccl_bench.facts.matrix import Matrix, PairTime
from distdoctor.ranks.places import Place

SIZE_BYTES = 2 << 20

# As a run measures: passes over the matrix, and over the pairs that are confirmed.
SCAN_VISITS = 3
CONFIRMING_VISITS = 1

Noise = Callable[[random.Random], float]
"""A factor of at least 1 on the time of one visit."""


def make_places(*, num_hosts: int, ranks_per_host: int = 1) -> tuple[Place, ...]:
    """Ranks in order, hosts host-0, host-1 …"""
    return tuple(
        Place(rank=host * ranks_per_host + local_rank, host=f"host-{host}", local_rank=local_rank)
        for host in range(num_hosts)
        for local_rank in range(ranks_per_host)
    )


def quiet(generator: random.Random) -> float:
    """A fabric of its own: 2 %."""
    return 1 + abs(generator.gauss(0, 0.02))


def loaded(generator: random.Random) -> float:
    """A loaded box: log-normal."""
    return max(1.0, 1 + generator.lognormvariate(-1.0, 0.8))


def heavy_tail(generator: random.Random) -> float:
    """Pareto: mostly small, sometimes a hundredfold."""
    return generator.paretovariate(1.3)


def bursts(generator: random.Random) -> float:
    """One transfer in three meets a burst of other traffic."""
    return generator.uniform(2, 15) if generator.random() < 0.3 else 1 + generator.random() * 0.2


NOISES: dict[str, Noise] = {"quiet": quiet, "loaded": loaded, "heavy_tail": heavy_tail, "bursts": bursts}


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Hosts whose network carries `gbps` each, inside `inside_gbps`; faults are factors on that."""

    places: tuple[Place, ...]
    gbps: float = 10.0
    inside_gbps: float = 100.0
    egress: dict[str, float] = field(default_factory=dict)
    """By host."""
    ingress: dict[str, float] = field(default_factory=dict)
    links: dict[tuple[str, str], float] = field(default_factory=dict)
    """By (source host, target host)."""
    ranks: dict[int, float] = field(default_factory=dict)
    """Between hosts, both directions of one rank: its NIC."""
    inside_ranks: dict[int, float] = field(default_factory=dict)
    inside_hosts: dict[str, float] = field(default_factory=dict)

    def true_gbps(self, source: int, target: int) -> float:
        a, b = self.places[source], self.places[target]
        if a.host == b.host:
            factor = self.inside_hosts.get(a.host, 1.0)
            worst = min(self.inside_ranks.get(source, 1.0), self.inside_ranks.get(target, 1.0))
            return self.inside_gbps * factor * worst
        worst = min(
            self.egress.get(a.host, 1.0),
            self.ingress.get(b.host, 1.0),
            self.ranks.get(source, 1.0),
            self.ranks.get(target, 1.0),
        )
        return self.gbps * worst * self.links.get((a.host, b.host), 1.0)


def times_of(
    cluster: Cluster, pairs: Iterable[Pair], visits: int, noise: Noise, generator: random.Random
) -> dict[Pair, list[float]]:
    """Microseconds of every visit of every pair; a pair that comes again gets more of them."""
    times: dict[Pair, list[float]] = {}
    listed = list(pairs)
    for _ in range(visits):
        for source, target in listed:
            true_us = SIZE_BYTES / cluster.true_gbps(source, target) / 1e3
            times.setdefault((source, target), []).append(true_us * noise(generator))
    return times


def pair_times(
    times: Mapping[Pair, Sequence[float]], confirmed: Container[Pair] = ()
) -> tuple[PairTime, ...]:
    return tuple(
        PairTime(
            source=pair[0],
            target=pair[1],
            best_us=min(us),
            repeats_us=tuple(us),
            confirmed=pair in confirmed,
        )
        for pair, us in times.items()
    )


def matrix_of(cluster: Cluster, pairs: tuple[PairTime, ...], *, is_sampled: bool = False) -> Matrix:
    ranks = tuple(sorted({rank for each in pairs for rank in (each.source, each.target)}))
    return Matrix(size_bytes=SIZE_BYTES, ranks=ranks, pairs=pairs, is_sampled=is_sampled)


def scan(cluster: Cluster, *, noise: Noise = quiet, seed: int = 0, visits: int = SCAN_VISITS) -> Matrix:
    """The first pass over a cluster."""
    plan = plan_matrix(cluster.places, seed=seed)
    pairs = [pair for each in plan.rounds for pair in each]
    times = times_of(cluster, pairs, visits, noise, random.Random(seed))
    return matrix_of(cluster, pair_times(times), is_sampled=plan.is_sampled)


def confirm(
    cluster: Cluster, matrix: Matrix, *, noise: Noise = quiet, seed: int = 0, visits: int = CONFIRMING_VISITS
) -> Matrix:
    """The matrix with what its confirmation round adds, each pair's visits in one entry."""
    wanted = needs_confirmation(matrix, cluster.places)
    again = [pair for each in confirmation_rounds(wanted.suspects, wanted.controls) for pair in each]
    added = times_of(cluster, again, visits, noise, random.Random(seed + 10_000))
    times = {(each.source, each.target): each.repeats_us for each in matrix.pairs}
    merged = {pair: (*times.get(pair, ()), *added.get(pair, ())) for pair in {**times, **added}}
    return replace(matrix, pairs=pair_times(merged, added))


def measured(cluster: Cluster, *, noise: Noise = quiet, seed: int = 0) -> Matrix:
    """First pass and confirmation."""
    return confirm(cluster, scan(cluster, noise=noise, seed=seed), noise=noise, seed=seed)

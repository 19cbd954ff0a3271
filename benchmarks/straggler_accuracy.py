"""How often is a healthy rank accused, and how often is a slow one found? Printed with seeds, numbers and bounds.

    python benchmarks/straggler_accuracy.py            all cells, some 20 minutes of one core
    python benchmarks/straggler_accuracy.py --quick    a tenth of the jobs

Jobs are drawn by `straggler_world.py`, which is the definition of what is healthy. The analysis is the one that
`distdoctor straggler analyze` runs; accused is a rank (or a host) that a finding names at warning or above. Thresholds
were set on seeds below 8,000,000; the table uses seeds from there on. Two rules of others are applied to the same jobs
by reimplementations of ours: NVRx's relative score with its default threshold (its detector needs a GPU), and the two
most frequent slowest ranks, as HolisticTraceAnalysis lists them (it has no answer "nobody").
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from straggler_world import GPUS_PER_HOST, Injected, Job, World, make_job, usual_stages

from distdoctor.report.checking import run_checks
from distdoctor.report.model import Severity
from distdoctor.straggler.analyse import analyse
from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.all import STRAGGLER_CHECKS
from distdoctor.straggler.facts.reading import Reading
from distdoctor.straggler.facts.sections import Section

TEST_SEEDS = 8_000_000
KINDS = ((0.005, 0.02), (0.01, 0.05))
"""(spread between healthy ranks, noise from step to step)"""
SIZES = (4, 8, 64, 512, 4096, 16384)
SLOWDOWNS = (0.05, 0.10, 0.20, 0.50)
JUMPS = (0.10, 0.20, 0.50)
ONSET_WITHIN = 10


@dataclass(frozen=True)
class Named:
    """Whom one analysis accuses."""

    ranks: frozenset[int]
    hosts: frozenset[str]
    facts: Analysed

    @property
    def anybody(self) -> bool:
        return bool(self.ranks or self.hosts)


def accused(job: Job) -> Named:
    """Ranks and hosts that a finding at warning or above names."""
    facts = analyse(Reading(steps=(job.timings,)))
    findings, _, _ = run_checks(STRAGGLER_CHECKS, facts, is_live=False)
    naming = [
        each
        for each in findings
        if each.severity is not Severity.INFO and (each.scope.ranks or each.scope.hosts)
    ]
    whole = [each for each in naming if each.id == "straggler-slow-host"]
    single = [each for each in naming if each.id != "straggler-slow-host"]
    return Named(
        ranks=frozenset(rank for each in single for rank in each.scope.ranks),
        hosts=frozenset(host for each in whole for host in each.scope.hosts),
        facts=facts,
    )


def nvrx_rule(job: Job) -> set[int]:
    """NVRx's relative score: the fastest rank's median over a rank's median, slow below 0.75."""
    own = job.timings.sections[Section.FORWARD] + job.timings.sections[Section.BACKWARD]
    medians = np.median(own, axis=1)
    return {int(row) for row in np.flatnonzero(medians.min() / medians < 0.75)}


def two_most_often_slowest(job: Job) -> set[int]:
    """The two ranks that come last most often, whoever they are."""
    own = job.timings.sections[Section.FORWARD] + job.timings.sections[Section.BACKWARD]
    counts = np.bincount(np.argmax(own, axis=0), minlength=len(own))
    return {int(row) for row in np.argsort(-counts, kind="stable")[:2]}


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share."""
    if n == 0:
        return 0.0, 1.0
    p = hits / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def share(hits: int, n: int) -> str:
    low, high = wilson(hits, n)
    return f"{hits / n:.3f} [{low:.3f}, {high:.3f}]" if n else "-"


def num_jobs(num_ranks: int, *, healthy: bool, scale: float) -> int:
    """At least 800 healthy jobs up to 512 ranks, 100 above; fewer with a slow rank."""
    full = (1000 if num_ranks <= 512 else 100) if healthy else (200 if num_ranks <= 512 else 25)
    return max(5, round(full * scale))


def healthy_cell(world: World, n: int, seed: int) -> tuple[int, int, int]:
    """False accusations of ours, of the NVRx rule, and of the two most often slowest."""
    ours = nvrx = top2 = 0
    for number in range(n):
        job = make_job(world, seed + number)
        ours += accused(job).anybody
        nvrx += bool(nvrx_rule(job))
        top2 += bool(two_most_often_slowest(job))
    return ours, nvrx, top2


def recall_cell(world: World, slowdown: float, n: int, seed: int) -> tuple[int, int, int, int]:
    """Slow ranks found by ours, jobs in which ours names somebody else (too), and the other rules' finds."""
    found = wrong = nvrx = top2 = 0
    for number in range(n):
        rng = np.random.default_rng(seed + number)
        slow = int(rng.integers(world.num_ranks))
        job = make_job(world, seed + number, (Injected(ranks=(slow,), slowdown=slowdown),))
        named = accused(job)
        found += slow in named.ranks
        wrong += bool(named.ranks - {slow}) or bool(named.hosts)
        nvrx += slow in nvrx_rule(job)
        top2 += slow in two_most_often_slowest(job)
    return found, wrong, nvrx, top2


def onset_cell(world: World, jump: float, n: int, seed: int) -> tuple[int, int, int]:
    """(found, onset within 10 steps, named somebody else) for a rank that becomes slow in the middle of the run."""
    found = near = wrong = 0
    for number in range(n):
        rng = np.random.default_rng(seed + number)
        slow = int(rng.integers(world.num_ranks))
        at = int(rng.integers(world.num_steps // 5, world.num_steps * 4 // 5))
        job = make_job(world, seed + number, (Injected(ranks=(slow,), slowdown=jump, first_step=at),))
        named = accused(job)
        judgement = named.facts.judged[0].judgement
        suspect = next((each for each in judgement.accused if each.rank == slow), None)
        wrong += bool(named.ranks - {slow}) or bool(named.hosts)
        if suspect is not None and slow in named.ranks:
            found += 1
            near += abs(int(judgement.steps[suspect.stretch.start]) - at) <= ONSET_WITHIN
    return found, near, wrong


def level_cell(world: World, slowdown: float, n: int, seed: int) -> tuple[int, int, int]:
    """(named somebody of the host, named the host and no rank, named other hosts or ranks) for a slow host."""
    named_any = right = wrong = 0
    for number in range(n):
        rng = np.random.default_rng(seed + number)
        host = int(rng.integers(world.num_ranks // GPUS_PER_HOST))
        ranks = tuple(range(host * GPUS_PER_HOST, (host + 1) * GPUS_PER_HOST))
        named = accused(make_job(world, seed + number, (Injected(ranks=ranks, slowdown=slowdown),)))
        name = f"host-{host:04d}"
        named_any += named.anybody
        right += named.hosts == {name} and not named.ranks - set(ranks)
        wrong += bool(named.hosts - {name}) or bool(named.ranks - set(ranks))
    return named_any, right, wrong


def world_of(num_ranks: int, spread: float, noise: float, *, tells: bool = True) -> World:
    return World(
        num_ranks=num_ranks,
        spread=spread,
        noise=noise,
        stage_weights=usual_stages(num_ranks),
        tells_coordinates=tells,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--min-ranks", type=int, default=min(SIZES))
    parser.add_argument("--max-ranks", type=int, default=max(SIZES))
    options = parser.parse_args(arguments)
    scale = 0.1 if options.quick else 1.0
    sizes = [size for size in SIZES if options.min_ranks <= size <= options.max_ranks]
    began = time.process_time()
    print(f"seeds from {TEST_SEEDS:,}; 200 steps a job; shares with 95 % Wilson intervals\n")
    print("healthy jobs in which anybody is accused (target: at most 1 in 200)")
    print(f"{'job':28} {'n':>5}  {'distdoctor':28} {'NVRx rule':>10} {'top 2':>6}")
    for size in sizes:
        for spread, noise in KINDS:
            world = world_of(size, spread, noise)
            n = num_jobs(size, healthy=True, scale=scale)
            ours, nvrx, top2 = healthy_cell(world, n, TEST_SEEDS)
            print(f"{world.label:28} {n:5}  {share(ours, n):28} {nvrx / n:10.3f} {top2 / n:6.2f}", flush=True)
    print("\nthe same without parallel coordinates, the last of the stages 15 % heavier")
    for size in [size for size in sizes if 64 <= size <= 512]:
        for spread, noise in KINDS:
            world = world_of(size, spread, noise, tells=False)
            n = num_jobs(size, healthy=False, scale=scale)
            ours, nvrx, top2 = healthy_cell(world, n, TEST_SEEDS + 100_000)
            print(f"{world.label:28} {n:5}  {share(ours, n):28} {nvrx / n:10.3f} {top2 / n:6.2f}", flush=True)
    print("\nslow ranks found, and jobs in which another rank or host is named (too)")
    print(
        f"{'job':28} {'slower':>6} {'n':>4}  {'distdoctor':28} {'others':>6} {'NVRx rule':>10} {'top 2':>6}"
    )
    for size in sizes:
        for spread, noise in KINDS:
            world = world_of(size, spread, noise)
            n = num_jobs(size, healthy=False, scale=scale)
            for slowdown in SLOWDOWNS:
                found, wrong, nvrx, top2 = recall_cell(world, slowdown, n, TEST_SEEDS + 200_000)
                print(
                    f"{world.label:28} {slowdown:6.0%} {n:4}  {share(found, n):28} {wrong:6} {nvrx / n:10.3f} "
                    f"{top2 / n:6.2f}",
                    flush=True,
                )
    print("\nonset of a rank that becomes slow in the middle of the run, of those found: within 10 steps")
    for size in [size for size in sizes if size <= 512]:
        for spread, noise in KINDS:
            world = world_of(size, spread, noise)
            n = num_jobs(size, healthy=False, scale=scale)
            for jump in JUMPS:
                found, near, wrong = onset_cell(world, jump, n, TEST_SEEDS + 300_000)
                print(
                    f"{world.label:28} {jump:6.0%} {n:4}  found {share(found, n):28} within {share(near, found):28} "
                    f"others {wrong}",
                    flush=True,
                )
    print("\na slow host of 8 ranks, of those in which anybody is named: the host is named, not its ranks")
    for size in [size for size in sizes if 64 <= size <= 512]:
        for spread, noise in KINDS:
            world = world_of(size, spread, noise)
            n = num_jobs(size, healthy=False, scale=scale)
            for slowdown in (0.05, 0.10, 0.20):
                anybody, right, wrong = level_cell(world, slowdown, n, TEST_SEEDS + 400_000)
                print(
                    f"{world.label:28} {slowdown:6.0%} {n:4}  named {share(anybody, n):28} right {share(right, anybody):28} "
                    f"others {wrong}",
                    flush=True,
                )
    print(f"\n{time.process_time() - began:.0f} s of CPU")


if __name__ == "__main__":
    main()

"""bench-late-rank and bench-skew: a late rank is named, jitter is not, and nobody's link is blamed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import pytest

from distdoctor.nccl_bench.analysis.late import late_us, who_is_late
from distdoctor.nccl_bench.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.nccl_bench.checks.late_rank import check_late_rank
from distdoctor.nccl_bench.checks.skew import check_skew
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention, Origin
from distdoctor.nccl_bench.facts.lateness import Arrival, ArrivalsOfGroup
from distdoctor.report.model import Confidence, Severity
from nccl_bench.bench_builders import live, places


def loop(
    late_us: Mapping[int, float] | None = None,
    *,
    num_ranks: int = 4,
    seed: int = 0,
    jitter_us: float = 30.0,
    iterations: int = 60,
    collective: str = "barrier",
    hidden: bool = False,
) -> ArrivalsOfGroup:
    """What ranks with exponential jitter measure; `hidden` lateness is in no rank's own time."""
    generator = random.Random(seed)
    own = [
        [
            40 + generator.expovariate(1 / jitter_us) + (late_us or {}).get(rank, 0.0)
            for _ in range(iterations)
        ]
        for rank in range(num_ranks)
    ]
    last = [max(column) for column in zip(*own, strict=True)]
    arrivals = []
    for rank in range(num_ranks):
        waits = [end - mine for mine, end in zip(own[rank], last, strict=True)]
        shown = [mine - (late_us or {}).get(rank, 0.0) * hidden for mine in own[rank]]
        arrivals.append(
            Arrival(
                rank=rank,
                own_us=median(shown),
                wait_us=median(waits),
                last_share=sum(wait == 0 for wait in waits) / iterations,
                iterations=iterations,
                own_p90_us=sorted(shown)[int(iterations * 0.9)],
            )
        )
    return ArrivalsOfGroup(
        group_label="job",
        collective=collective,
        size_bytes=0 if collective == "barrier" else 1024,
        arrivals=tuple(arrivals),
        transfer_us=60.0,
    )


def cpu(
    loops: Sequence[ArrivalsOfGroup], *, num_ranks: int = 4, num_hosts: int = 2, **fields: object
) -> BenchFacts:
    values: dict[str, object] = {
        "places": places(num_ranks, num_hosts, gpu_model=None),
        "backend": "gloo",
        "hardware": (),
        **fields,
    }
    return live((), num_ranks=num_ranks, num_hosts=num_hosts, arrivals=tuple(loops), **values)


def only(outcomes: Sequence[object]) -> Found:
    (outcome,) = outcomes
    assert isinstance(outcome, Found)
    return outcome


@pytest.mark.parametrize("num_ranks", [2, 4, 8, 64])
def test_a_rank_that_sleeps_5_ms_is_named(num_ranks: int) -> None:
    late = {1: 5000.0}
    loops = (
        loop(late, num_ranks=num_ranks),
        loop(late, num_ranks=num_ranks, collective="all_reduce", seed=1),
    )
    found = only(check_late_rank(cpu(loops, num_ranks=num_ranks, num_hosts=1)))
    assert found.scope.ranks == (1,)
    assert (found.severity, found.confidence) == (Severity.WARNING, Confidence.HIGH)
    assert "rank 1 (host-a) comes 5" in found.title
    assert "ms late" in found.title
    assert "times the transfer" in found.evidence[-1].text
    assert "not in its link" in found.explanation


def test_ten_milliseconds_are_critical() -> None:
    assert only(check_late_rank(cpu([loop({0: 12_000.0})]))).severity is Severity.CRITICAL


def test_all_ranks_of_a_host_are_told_as_the_host() -> None:
    found = only(check_late_rank(cpu([loop({2: 5000.0, 3: 6000.0})])))
    assert "all ranks of host-b" in found.title
    assert found.scope.hosts == ("host-b",)


def test_several_late_ranks_of_different_hosts_are_listed() -> None:
    found = only(check_late_rank(cpu([loop({1: 5000.0, 4: 9000.0}, num_ranks=8)], num_ranks=8)))
    assert found.scope.ranks == (1, 4)
    assert "2 ranks" in found.title


def test_a_late_rank_is_seen_through_the_jitter_of_a_busy_box() -> None:
    for seed in range(30):
        found = only(check_late_rank(cpu([loop({2: 5000.0}, jitter_us=600.0, seed=seed)])))
        assert found.scope.ranks == (2,)


@pytest.mark.parametrize("jitter_us", [10.0, 300.0, 2000.0, 20_000.0])
@pytest.mark.parametrize("num_ranks", [2, 4, 16])
def test_jitter_names_nobody(jitter_us: float, num_ranks: int) -> None:
    for seed in range(60):
        loops = [loop(num_ranks=num_ranks, jitter_us=jitter_us, seed=seed)]
        for facts in (cpu(loops, num_ranks=num_ranks), live((), num_ranks=num_ranks, arrivals=tuple(loops))):
            told = who_is_late(facts)
            assert (told.late, told.last) == ((), ())


def test_unequal_ranks_within_scheduling_noise_are_not_late() -> None:
    """Hundreds of microseconds more on one rank of a shared CPU."""
    (outcome,) = check_late_rank(cpu([loop({3: 700.0})]))
    assert isinstance(outcome, Passed)
    gpu = live((), num_ranks=4, arrivals=(loop({3: 700.0}),))
    assert only(check_late_rank(gpu)).scope.ranks == (3,)


def test_own_time_alone_is_not_enough_when_the_others_do_not_wait() -> None:
    told = loop({1: 5000.0})
    busy = replace(
        told, arrivals=tuple(replace(each, wait_us=10.0, last_share=0.25) for each in told.arrivals)
    )
    (outcome,) = check_late_rank(cpu([busy]))
    assert isinstance(outcome, Passed)


def test_more_than_half_of_the_ranks_cannot_be_late() -> None:
    (outcome,) = check_late_rank(cpu([loop({0: 5000.0, 1: 5000.0, 2: 5000.0})]))
    assert isinstance(outcome, Passed)


def test_late_in_one_loop_of_three_is_chance() -> None:
    loops = [loop({1: 5000.0}), loop(seed=1), loop(seed=2, collective="all_reduce")]
    (outcome,) = check_late_rank(cpu(loops))
    assert isinstance(outcome, Passed)


def test_a_rank_that_is_last_for_no_reason_of_its_own_is_a_lead() -> None:
    one = loop({2: 5000.0}, hidden=True)
    lead = only(check_late_rank(cpu([one])))
    assert (lead.severity, lead.confidence) == (Severity.INFO, Confidence.LOW)
    assert "does not show why" in lead.title
    two = only(check_late_rank(cpu([one, replace(one, collective="all_reduce")])))
    assert (two.severity, two.confidence) == (Severity.WARNING, Confidence.MEDIUM)
    assert late_us(cpu([one])) == {}


def test_collectives_with_a_root_tell_nothing_of_arrival() -> None:
    for name in ("broadcast", "reduce", "gather", "scatter"):
        (outcome,) = check_late_rank(cpu([loop({1: 5000.0}, collective=name)]))
        assert isinstance(outcome, NotSeen)


def test_a_late_rank_on_the_only_busy_host_is_medium() -> None:
    busy = (
        Contention(host="host-a", load_1min=0.5, num_cpus=2),
        Contention(host="host-b", load_1min=30.0, num_cpus=2),
    )
    found = only(check_late_rank(cpu([loop({2: 5000.0})], contention=busy)))
    assert found.confidence is Confidence.MEDIUM
    assert any("load 30" in each.text for each in found.evidence)


def test_nothing_measured_is_not_passed() -> None:
    for facts in (
        cpu([]),
        cpu([loop({1: 5000.0}, iterations=5)]),
        BenchFacts(origin=Origin.TABLE, label="t"),
    ):
        (outcome,) = check_late_rank(facts)
        assert isinstance(outcome, NotSeen)
        (skew,) = check_skew(facts)
        assert isinstance(skew, NotSeen)
    for check in (check_late_rank, check_skew):
        (alone,) = check(live((), num_ranks=1))
        assert isinstance(alone, NotApplicable)


# --- bench-skew ---


def test_waiting_that_rotates_is_skew() -> None:
    found = only(check_skew(cpu([loop(jitter_us=5000.0, iterations=200)])))
    assert found.severity is Severity.INFO
    assert found.scope.ranks == ()
    assert "changes" in found.evidence[1].text


def test_much_waiting_on_quiet_gpu_hosts_is_a_warning() -> None:
    facts = live((), num_ranks=4, arrivals=(loop(jitter_us=5000.0, iterations=200),))
    assert only(check_skew(facts)).severity is Severity.WARNING
    busy = replace(facts, contention=(Contention(host="host-a", load_1min=500.0, num_cpus=8),))
    assert only(check_skew(busy)).severity is Severity.INFO


def test_little_waiting_passes_and_a_late_rank_is_no_skew() -> None:
    (quiet,) = check_skew(cpu([loop()]))
    assert isinstance(quiet, Passed)
    (late,) = check_skew(cpu([loop({1: 5000.0})]))
    assert isinstance(late, Passed)
    assert "bench-late-rank" in late.detail

"""What is too noisy to judge, and repeats with two speeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distdoctor.nccl_bench.analysis.noise import busy_hosts, is_noisy
from distdoctor.nccl_bench.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.nccl_bench.checks.bimodal import check_bimodal
from distdoctor.nccl_bench.checks.noisy import CHECK, check_noisy
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention
from distdoctor.nccl_bench.facts.rows import Row
from distdoctor.report.checking import run_check
from distdoctor.report.model import Severity, SkipCause
from distdoctor.units import MIB
from nccl_bench.bench_builders import flat_rows, live, row, table

BUSY = (Contention(host="host-a", load_1min=12.3, num_cpus=2),)
IDLE = (Contention(host="host-a", load_1min=0.4, num_cpus=2, cpu_pressure_pct=1.0),)


def repeated(folds: tuple[float, ...], size: int = 512 * MIB) -> Row:
    one = row(size, busbw=100)
    return replace(one, repeats_us=tuple(one.time_us * each for each in folds))


@pytest.mark.parametrize(
    ("folds", "contention", "noisy"),
    [
        ((1, 1.02, 1.01), (), False),
        ((1, 1.02, 1.01), BUSY, False),
        ((1, 1.2, 1.1), (), False),
        ((1, 1.2, 1.1), IDLE, False),
        ((1, 1.2, 1.1), BUSY, True),
        ((1, 1.1, 1.6), (), True),
        ((), (), False),
        ((), BUSY, True),
    ],
)
def test_spread_and_load_decide_together(
    folds: tuple[float, ...], contention: tuple[Contention, ...], noisy: bool
) -> None:
    facts = live((repeated(folds),), contention=contention)
    assert (is_noisy(facts, facts.rows[0]) is not None) is noisy


@pytest.mark.parametrize(
    "contention",
    [
        Contention(host="a", cpu_pressure_pct=60.0),
        Contention(host="a", involuntary_switches_per_s=250.0),
        Contention(host="a", load_1min=4.0, num_cpus=2),
    ],
)
def test_a_host_is_busy_by_any_of_three_signs(contention: Contention) -> None:
    assert busy_hosts(live((), contention=(contention,)))


@pytest.mark.parametrize(
    "contention",
    [
        Contention(host="a"),
        Contention(host="a", load_1min=8.0, num_cpus=96),
        Contention(host="a", load_1min=5.0),
    ],
)
def test_what_was_not_measured_is_no_sign(contention: Contention) -> None:
    assert busy_hosts(live((), contention=(contention,))) == ()


def halves(pairs: list[tuple[float, float]]) -> BenchFacts:
    rows = [
        row(MIB << index, busbw=busbw, in_place=in_place, num_ranks=2)
        for index, pair in enumerate(pairs)
        for in_place, busbw in zip((False, True), pair, strict=True)
    ]
    return table(rows)


def test_a_table_whose_halves_contradict_each_other_is_noise() -> None:
    facts = halves([(1, 1), (1, 2), (3, 1), (1, 2), (1, 1)])
    assert "at 3 of 5 sizes" in str(is_noisy(facts, facts.rows[0]))


def test_one_half_that_was_disturbed_is_not() -> None:
    facts = halves([(225, 225), (230, 230), (233, 120), (235, 235)])
    assert is_noisy(facts, facts.rows[0]) is None


def test_a_noisy_run_is_no_clean_bill() -> None:
    facts = live((repeated((1, 1.4, 2.4)),), contention=BUSY)
    findings, (skip,), _ = run_check(CHECK, facts)
    assert not findings
    assert skip.essential
    assert skip.cause is SkipCause.NOISY
    assert "load 12.3 on 2 CPUs" in skip.reason


def test_a_steady_run_passes_with_its_spread() -> None:
    (outcome,) = check_noisy(live((repeated((1, 1.01, 1.03)),)))
    assert isinstance(outcome, Passed)
    assert "1.03-fold" in outcome.detail


def test_a_table_has_no_repeats_to_look_at() -> None:
    (outcome,) = check_noisy(table(flat_rows(100)))
    assert isinstance(outcome, NotSeen)
    assert "no repeats" in outcome.unread.reason


def test_no_rows_and_one_rank() -> None:
    assert isinstance(check_noisy(live(()))[0], NotSeen)
    alone = replace(row(MIB, busbw=1), num_ranks=1, busbw_gbps=None)
    assert isinstance(check_noisy(live((alone,), num_ranks=1))[0], NotApplicable)


def test_two_speeds_at_one_size_are_to_know() -> None:
    (found,) = check_bimodal(live((repeated((1, 2.2, 1.01)),)))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert "2.2-fold apart" in found.title


def test_two_speeds_at_several_sizes_are_a_warning() -> None:
    rows = (repeated((1, 2.2, 1.01)), repeated((1, 1.02, 1.9), 64 * MIB))
    (found,) = check_bimodal(live(rows))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


def test_several_tables_of_one_file_are_repeats() -> None:
    rows = [row(128 * MIB, busbw=busbw, collective="all_gather", num_ranks=2) for busbw in (1.04, 1.05, 2.3)]
    (found,) = check_bimodal(table(rows))
    assert isinstance(found, Found)


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (live((repeated((1, 1.1, 1.05)),)), Passed),
        (live((repeated((1, 2.2, 1.01)),), contention=BUSY), NotSeen),
        (live((repeated((1, 2.2)),)), NotSeen),
        (live((repeated((1, 2.2, 1.01), 1024),)), NotSeen),
        (table(flat_rows(100)), NotSeen),
    ],
    ids=["one speed", "busy host", "two repeats", "small messages", "a table"],
)
def test_otherwise_nothing_is_said_of_two_speeds(facts: BenchFacts, kind: type[object]) -> None:
    (outcome,) = check_bimodal(facts)
    assert isinstance(outcome, kind)

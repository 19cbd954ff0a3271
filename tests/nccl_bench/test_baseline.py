"""Slower than before, for certain: repeats that do not overlap, on the same hardware."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.nccl_bench.analysis.baseline import Change, pairs_of
from distdoctor.nccl_bench.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.nccl_bench.checks.regression import check_regression
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention
from distdoctor.nccl_bench.facts.places import Versions
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, Row, Style
from distdoctor.report.model import Confidence, Severity, SkipCause
from distdoctor.units import KIB
from nccl_bench.bench_builders import A100, PLATEAU_SIZES, flat_rows, hardware, live, nics, places, row, table


def repeated(busbw: float, spread: float = 0.01, **fields: object) -> tuple[Row, ...]:
    return tuple(
        replace(each, repeats_us=tuple(each.time_us * (1 + spread * step) for step in (-0.5, 0, 0.5)))
        for each in flat_rows(busbw, **fields)  # type: ignore[arg-type]
    )


def run(busbw: float, spread: float = 0.01, **fields: object) -> BenchFacts:
    return live(repeated(busbw, spread), **fields)


def check(now: BenchFacts, then: BenchFacts) -> list[object]:
    return list(check_regression(replace(now, baseline=then)))


def test_eight_per_cent_less_with_steady_repeats_is_a_regression() -> None:
    (found,) = check(run(440), run(478))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING
    assert found.confidence is Confidence.HIGH
    assert found.title == "all_reduce is 8% slower than in the baseline"
    assert "repeats do not overlap" in found.evidence[0].text


def test_less_than_half_is_critical() -> None:
    (found,) = check(run(200), run(478))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("now", "then"),
    [
        (run(460), run(478)),
        (run(450, 0.1), run(478, 0.1)),
        (run(478), run(478)),
        (live(flat_rows(420)), run(478)),
        (live(flat_rows(420)), live(flat_rows(478))),
    ],
    ids=["4 %", "repeats overlap", "equal", "12 % without repeats", "12 % between tables"],
)
def test_less_is_no_regression(now: BenchFacts, then: BenchFacts) -> None:
    (outcome,) = check(now, then)
    assert isinstance(outcome, Passed)
    assert "5 rows as before" in outcome.detail


def test_a_table_needs_more_and_is_less_sure() -> None:
    (found,) = check(run(380), table(flat_rows(478)))
    assert isinstance(found, Found)
    assert found.confidence is Confidence.MEDIUM
    assert "a single measurement" in found.explanation


def test_small_messages_of_tables_jump() -> None:
    sizes = (KIB, 4 * KIB, 16 * KIB)
    now, then = table(flat_rows(0.7, sizes=sizes)), table(flat_rows(1.0, sizes=sizes))
    assert isinstance(check(now, then)[0], Passed)


def test_faster_is_to_know() -> None:
    (found,) = check(run(478), run(440))
    assert isinstance(found, Found)
    assert found.severity is Severity.INFO
    assert "9% faster" in found.title


def test_one_odd_size_in_the_middle_is_no_regression() -> None:
    rows = list(repeated(478))
    slow = rows[2]
    rows[2] = replace(
        slow, time_us=slow.time_us * 1.3, repeats_us=tuple(time * 1.3 for time in slow.repeats_us)
    )
    (outcome,) = check(live(rows), run(478))
    assert isinstance(outcome, Passed)


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (
            live(repeated(235), places=places(8, gpu_model=A100), hardware=hardware(gpu_model=A100)),
            "other hardware: A100-SXM4-80GB against H100 80GB HBM3 now",
        ),
        (live(repeated(478), num_ranks=4), "another number of ranks: 4 against 8 now"),
        (live(repeated(478), num_hosts=2), "another number of hosts: 2 against 1 now"),
        (live(repeated(478), backend="gloo"), "another backend: gloo against nccl now"),
        (live(repeated(478), shares_gpus=True), "shares its GPUs"),
        (live(repeated(100, collective="broadcast")), "no row of the baseline"),
        (live(()), "has no rows"),
    ],
    ids=["GPUs", "ranks", "hosts", "backend", "shared", "other collective", "empty"],
)
def test_a_baseline_of_something_else_is_refused_in_words(then: BenchFacts, why: str) -> None:
    (outcome,) = check(run(300), then)
    assert isinstance(outcome, NotSeen)
    assert why in outcome.unread.reason


def test_a_lost_port_or_another_nccl_is_what_a_regression_comes_from() -> None:
    then = run(478, hardware=hardware(fabric=nics(8, 400)), versions=Versions(nccl="2.27.7"))
    now = run(400, hardware=hardware(fabric=nics(7, 400)), versions=Versions(nccl="2.29.2"))
    (found,) = check(now, then)
    assert isinstance(found, Found)
    assert any("nccl 2.27.7 then, 2.29.2 now" in each.text for each in found.evidence)


def test_a_noisy_side_is_inconclusive() -> None:
    for now, then in ((run(300, 0.9), run(478)), (run(300), run(478, 0.9))):
        (outcome,) = check(now, then)
        assert isinstance(outcome, NotSeen)
        assert outcome.unread.cause is SkipCause.NOISY
        assert "inconclusive for 5 of 5 rows" in outcome.unread.reason


def test_a_busy_host_excuses_a_small_loss() -> None:
    busy = (Contention(host="host-a", load_1min=12.0, num_cpus=2),)
    (outcome,) = check(run(400, 0.16, contention=busy), run(478))
    assert isinstance(outcome, NotSeen)


def test_the_host_whose_group_became_slower_is_named() -> None:
    def groups(bandwidths: dict[str, float]) -> BenchFacts:
        rows = [
            each
            for index, (host, busbw) in enumerate(bandwidths.items())
            for each in repeated(
                busbw,
                group=Group(
                    kind=GroupKind.HOST,
                    label=f"host {host}",
                    ranks=tuple(range(8 * index, 8 * index + 8)),
                    set_label="hosts",
                ),
            )
        ]
        return live(rows, num_ranks=16, num_hosts=2)

    (found,) = check(groups({"host-a": 478, "host-b": 360}), groups({"host-a": 478, "host-b": 478}))
    assert isinstance(found, Found)
    assert found.scope.hosts == ("host-b",)


def test_without_a_baseline_nothing_is_asked() -> None:
    (outcome,) = check_regression(run(478))
    assert isinstance(outcome, NotApplicable)


def test_decimal_sizes_meet_powers_of_two() -> None:
    decimal = flat_rows(478, sizes=(512_000_000,))
    pairs = pairs_of(live(decimal), live(flat_rows(478)))
    assert [pair.before.size_bytes for pair in pairs] == [PLATEAU_SIZES[0]]


@given(st.floats(1, 500), st.floats(0, 0.3))
def test_a_run_is_never_slower_than_itself(busbw: float, spread: float) -> None:
    facts = run(busbw, spread)
    assert all(pair.change is not Change.SLOWER for pair in pairs_of(facts, facts))


def test_repeats_that_lie_apart_by_less_than_they_spread_are_no_regression() -> None:
    """Of equal runs, three repeats lie apart from three others in one of ten comparisons."""
    now = tuple(
        replace(each, repeats_us=(each.time_us, 1.1 * each.time_us, 1.2 * each.time_us))
        for each in flat_rows(400)
    )
    then = tuple(
        replace(each, repeats_us=(0.75 * each.time_us, 0.85 * each.time_us, 0.95 * each.time_us))
        for each in flat_rows(400)
    )
    outcomes = check_regression(replace(live(now), baseline=live(then)))
    assert not any(isinstance(each, Found) for each in outcomes)


def test_rows_that_show_who_comes_late_are_not_compared() -> None:
    def with_arrivals(busbw: float, latency_us: float) -> BenchFacts:
        late = row(4096, time_us=latency_us, repeats_us=(latency_us,) * 3, style=Style.ISOLATED)
        return live((*flat_rows(busbw, repeats_us=()), late))

    sizes = {pair.row.size_bytes for pair in pairs_of(with_arrivals(400, 90), with_arrivals(400, 10))}
    assert 4096 not in sizes and sizes

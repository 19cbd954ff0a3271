"""What the three checks of a series say, and when they are silent or cannot tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from distdoctor.report.checking import Found, NotSeen, Outcome, Passed
from distdoctor.report.model import Confidence, Severity
from distdoctor.straggler.checks.series.findings import analysed, one_line, primary_series, series_outcomes
from distdoctor.straggler.checks.series.periodic import periodic_outcomes
from distdoctor.straggler.checks.series.regime import regime_outcomes
from distdoctor.straggler.checks.series.stall import stall_outcomes
from distdoctor.straggler.checks.series.words import Told
from distdoctor.straggler.facts.series import JobSeries, SeriesKind
from straggler.step_series import flat, series, shape, slower, steady

SEED = 7000

# 2026-11-30 12:00 UTC.
NOON = 1796040000.0


def found(outcomes: Sequence[Outcome]) -> list[Found]:
    return [each for each in outcomes if isinstance(each, Found)]


def titles(outcomes: Sequence[Outcome]) -> list[str]:
    return [each.title for each in found(outcomes)]


def text_of(finding: Found) -> str:
    return "\n".join([finding.title, finding.explanation, *(each.text for each in finding.evidence)])


def slow_since_600(**more: object) -> JobSeries:
    return series(slower(flat(SEED, 1000), 0.17, 600), utc_s=NOON + np.arange(1000.0), **more)


def test_a_lasting_slowdown_is_told_with_step_time_and_size() -> None:
    (finding,) = found(series_outcomes(slow_since_600(zone_known=True)))
    assert finding.title == "the whole job is 17 % slower since step 600 (2026-11-30 12:10 UTC)"
    assert (finding.severity, finding.confidence) == (Severity.WARNING, Confidence.HIGH)
    assert "(600 values)" in finding.evidence[0].text
    assert "(400 values)" in finding.evidence[0].text


def test_a_log_without_zone_says_whose_clock_it_is() -> None:
    (finding,) = found(series_outcomes(slow_since_600()))
    assert "(2026-11-30 12:10 by the log)" in finding.title


def test_nobody_is_named_and_the_way_to_the_rank_is_told() -> None:
    (finding,) = found(series_outcomes(slow_since_600(printed_by="rank 0", host="host-a")))
    assert not finding.scope.ranks
    assert not finding.scope.hosts
    assert "host-a" not in text_of(finding)
    assert "Rank 0 prints for all" in finding.explanation
    assert any(each.command and "straggler record" in each.command for each in finding.actions)


def test_a_series_over_all_ranks_needs_no_further_recording() -> None:
    (finding,) = found(regime_outcomes(shape(slower(flat(SEED, 1000), 0.2, 600)), Told(one_rank=False)))
    assert "prints for all" not in finding.explanation
    assert not any(each.command for each in finding.actions)


def test_a_throughput_is_told_as_one() -> None:
    rates = 1e6 / slower(steady(SEED, 1000, sigma=0.001), 0.25, 600)
    (finding,) = found(series_outcomes(series(rates, kind=SeriesKind.RATE)))
    assert finding.title == "throughput is 20 % lower since step 600"
    assert "2,500 samples/s before" in finding.evidence[0].text


def test_a_slow_stretch_that_is_over_costs_what_it_cost() -> None:
    short = found(series_outcomes(series(slower(flat(SEED, 5000), 0.15, 2000, 2200))))
    long = found(series_outcomes(series(slower(flat(SEED, 5000), 0.15, 2000, 3000))))
    assert "was 15 % slower from step 2,000 to 2,199" in short[0].title
    assert (short[0].severity, long[0].severity) == (Severity.INFO, Severity.WARNING)


def test_the_last_four_of_few_values_are_a_lead_only() -> None:
    rates = [7400, 7640, 7410, 7650, 7390, 7640, 7400, 7630, 7405, 7645, 6360, 6160, 6350, 7000]
    (finding,) = found(series_outcomes(series(rates, kind=SeriesKind.RATE)))
    assert "lower since step 10" in finding.title
    assert finding.confidence is Confidence.LOW
    assert "may be chance" in finding.explanation


def test_one_dip_of_few_values_is_a_stall_and_no_slowdown() -> None:
    rates = [7400, 7640, 7410, 7650, 7390, 7640, 7400, 7000, 7405, 7645, 7390, 7640, 6180, 7638]
    (finding,) = found(series_outcomes(series(rates, kind=SeriesKind.RATE)))
    assert finding.title.startswith("one value at 8")
    assert "of the usual throughput, step 12" in finding.title
    assert (finding.severity, finding.confidence) == (Severity.INFO, Confidence.LOW)


def test_a_slow_start_is_no_slowdown() -> None:
    times = slower(flat(SEED, 1000, sigma=0.01), 0.2, 0, 150)
    (finding,) = found(series_outcomes(series(times)))
    assert "faster since step 150" in finding.title
    assert "a slow start, not a slowdown" in finding.title
    assert finding.severity is Severity.INFO


def test_slow_growth_is_told_as_such() -> None:
    (finding,) = found(series_outcomes(series(steady(SEED, 2000) * np.linspace(1, 1.2, 2000))))
    assert "becomes slowly 18 % slower, step 0 to 1,999" in finding.title
    assert finding.severity is Severity.WARNING
    (small,) = found(series_outcomes(series(steady(SEED, 2000) * np.linspace(1, 1.06, 2000))))
    assert small.severity is Severity.INFO


@pytest.mark.parametrize("kind", SeriesKind)
def test_a_flat_series_passes_all_checks_and_says_what_was_left_out(kind: SeriesKind) -> None:
    times = steady(SEED, 500)
    times[0] *= 20
    values = times if kind is SeriesKind.TIME else 1e6 / times
    outcomes = series_outcomes(series(values, kind=kind))
    assert all(isinstance(each, Passed) for each in outcomes)
    assert isinstance(outcomes[0], Passed)
    assert "the first value is a slow start, up to 20 times" in outcomes[0].detail
    assert "healthy" not in outcomes[0].detail


def test_few_values_are_not_judged() -> None:
    outcomes = series_outcomes(series([19932.4, 6707.5, 6746.5, 6736.4, 6715.3, 6703.7]))
    assert len(outcomes) == 3
    assert all(isinstance(each, NotSeen) for each in outcomes)
    assert isinstance(outcomes[0], NotSeen)
    assert "only 5 values, within 0.6 % of one another" in outcomes[0].unread.reason


def test_one_stall_is_told_with_its_step_and_cost() -> None:
    times = np.rint(steady(SEED, 2300, sigma=0.008, level=61))
    times[511] = 870
    (finding,) = found(series_outcomes(series(times)))
    assert finding.title == "one step took 14 times as long as usual, step 511"
    assert finding.severity is Severity.INFO
    assert "they cost 809 ms, 0.57 % of the time" in text_of(finding)


def test_stalls_that_cost_a_hundredth_of_the_time_are_a_warning() -> None:
    times = steady(SEED, 1000)
    times[[100, 340, 777]] *= [3, 9, 4]
    (finding,) = found(series_outcomes(series(times)))
    assert finding.title.startswith("3 single slow steps cost 1.3 % of the time, one ")
    assert finding.severity is Severity.WARNING


def test_a_mean_over_steps_says_that_stalls_are_diluted() -> None:
    (passed,) = stall_outcomes(*analysed(series(steady(SEED, 200), steps_per_value=50)))
    assert isinstance(passed, Passed)
    assert "mean of 50 steps" in passed.detail


def test_a_rhythm_is_by_design_and_no_straggler() -> None:
    times = steady(SEED, 700)
    times[9::10] *= 5
    (finding,) = found(series_outcomes(series(times)))
    assert finding.title.startswith("a slow step every 10 steps, 2")
    assert finding.title.endswith(" % of the time: by design or by a worker count")
    assert finding.severity is Severity.INFO
    assert "not a straggler" in finding.explanation


def test_slow_steps_by_the_clock_come_from_beside_the_job() -> None:
    times = steady(SEED, 3000, level=1000) * np.linspace(1, 2, 3000)
    ends = np.cumsum(times) / 1e3
    times[np.searchsorted(ends, np.arange(300, ends[-1], 300))] *= 6
    rhythm = found(periodic_outcomes(*analysed(series(times, utc_s=NOON + ends))))
    assert rhythm[0].title.startswith("a slow step every 5 min by the clock")
    assert rhythm[0].severity is Severity.WARNING


def test_steps_by_turns_are_told_and_three_per_cent_are_not() -> None:
    times = steady(SEED, 400, sigma=0.005)
    times[::2] *= 1.03
    assert not found(series_outcomes(series(times)))
    times[::2] *= 1.4
    (finding,) = found(series_outcomes(series(times)))
    assert finding.title == "every second step takes 44 % longer: two kinds of steps by turns"
    assert finding.severity is Severity.INFO


def test_every_fourth_step_points_at_four_workers() -> None:
    times = steady(SEED, 400)
    times[3::4] *= 1.8
    (finding,) = found(series_outcomes(series(times)))
    assert finding.title.startswith("one step in 4 takes 8")
    assert finding.title.endswith(" % longer: by design or by a worker count")
    assert "has 4 workers" in finding.explanation


def test_levels_of_a_schedule_are_no_slowdown() -> None:
    times = np.repeat([30.0, 57.0, 84.0], 460) * steady(SEED, 1380, level=1)
    (finding,) = found(series_outcomes(series(times)))
    assert finding.title == "step time changes by plan or by configuration: 3 levels"
    assert (finding.severity, finding.confidence) == (Severity.INFO, Confidence.MEDIUM)
    assert "57 ms from step 460" in text_of(finding)


def test_one_large_jump_is_a_slowdown_that_might_be_planned() -> None:
    (finding,) = found(series_outcomes(series(slower(steady(SEED, 1000), 0.8, 500))))
    assert "80 % slower since step 500" in finding.title
    assert finding.severity is Severity.WARNING
    assert "larger batch" in finding.explanation


def test_an_unchanged_throughput_makes_it_a_larger_batch() -> None:
    times = slower(steady(SEED, 1000), 0.8, 500)
    rate = series(steady(SEED + 1, 1000, level=9000), kind=SeriesKind.RATE, unit="tokens/s")
    (finding,) = found(series_outcomes(series(times), beside=[rate]))
    assert "by plan or by configuration" in finding.title
    assert "throughput stays" in text_of(finding)


def test_a_throughput_that_falls_too_rules_out_a_larger_batch() -> None:
    times = np.repeat([30.0, 57.0, 84.0], 460) * steady(SEED, 1380, level=1)
    rate = series(9e5 / times, kind=SeriesKind.RATE, unit="tokens/s")
    (finding,) = found(series_outcomes(series(times), beside=[rate]))
    assert "slower since step 460" in finding.title
    assert "throughput in the same log fell too" in finding.explanation


def test_the_part_that_grew_is_named() -> None:
    data = slower(np.full(1000, 20.0), 3.0, 600)
    parts = {"data": data, "forward": steady(SEED + 2, 1000, level=150)}
    (finding,) = found(series_outcomes(series(steady(SEED, 1000, level=300) + data, splits=parts)))
    assert "`data` has 60 ms" in text_of(finding)


def test_missing_values_leave_the_onset_open() -> None:
    steps = np.concatenate([np.arange(100), np.arange(5000, 5100)])
    (finding,) = found(series_outcomes(series(slower(steady(SEED, 200), 0.3, 100), steps=steps)))
    assert "values are missing between step 99 and step 5,000" in text_of(finding)


@pytest.mark.parametrize(
    ("offset_s", "words"),
    [
        (660, "a change at step 600, 1 min before it"),
        (600 + 45, "at that minute"),
        (9000, "lies outside the log"),
    ],
)
def test_the_time_that_somebody_noticed_is_answered(offset_s: float, words: str) -> None:
    (finding,) = found(series_outcomes(slow_since_600(zone_known=True), around_s=NOON + offset_s))
    assert words in text_of(finding)


def test_no_change_at_the_time_asked_about_is_said_with_both_sides() -> None:
    log = series(steady(SEED, 1000), utc_s=NOON + 10 * np.arange(1000.0), zone_known=True)
    (passed, *_) = series_outcomes(log, around_s=NOON + 5000)
    assert isinstance(passed, Passed)
    assert "no change of speed within half an hour of 2026-11-30 13:23 UTC: 400 ms before" in passed.detail


def test_the_change_nearest_to_the_time_asked_about_comes_first() -> None:
    times = slower(slower(steady(SEED, 3000), 0.3, 500, 700), 0.1, 2000, 2400)
    log = series(times, utc_s=NOON + 10 * np.arange(3000.0), zone_known=True)
    assert "step 500" in titles(series_outcomes(log))[0]
    assert "step 2,000" in titles(series_outcomes(log, around_s=NOON + 20_100))[0]


def test_a_log_without_times_of_day_says_so() -> None:
    (passed, *_) = series_outcomes(series(steady(SEED, 100)), around_s=NOON)
    assert isinstance(passed, Passed)
    assert "tells no times of day" in passed.detail


def test_one_series_of_a_log_is_chosen() -> None:
    chosen = primary_series(
        [
            series(steady(1, 100), kind=SeriesKind.RATE, path="a.log"),
            series(steady(1, 100), name="step_avg", path="a.log"),
            series(steady(1, 100), name="validation step time", path="a.log"),
            series(steady(1, 90), path="a.log"),
            series(steady(1, 100), kind=SeriesKind.RATE, path="b.log"),
        ]
    )
    assert [(each.path, each.name) for each in chosen] == [("a.log", "step time"), ("b.log", "throughput")]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (steady(SEED, 300), "flat at 400 ms over 300 values"),
        ([400.0] * 5, "too few to judge"),
        (slower(steady(SEED, 300), 0.2, 200), "the whole job is 20 % slower since step 200"),
    ],
    ids=["flat", "few", "slow"],
)
def test_one_line_says_it_in_plain_words(times: list[float], words: str) -> None:
    assert words in one_line(*analysed(series(times)))


def hostile() -> dict[str, JobSeries]:
    rng = np.random.default_rng(SEED)
    return {
        "nothing": series([]),
        "no numbers": series([np.nan] * 50),
        "absurd": series([1e308, 1e-308] * 50),
        "negative": series([-5.0] * 50, kind=SeriesKind.RATE),
        "constant": series([100.0] * 50),
        "all decades": series(10.0 ** rng.uniform(-11, 14, 500)),
        "steps go back": series(steady(SEED, 100), steps=np.arange(100)[::-1]),
        "equal steps": series(steady(SEED, 100), steps=np.zeros(100)),
        "absurd clock": series(slower(steady(SEED, 100), 0.5, 50), utc_s=np.full(100, 1e30)),
        "no clock": series(slower(steady(SEED, 100), 0.5, 50), utc_s=np.full(100, np.nan)),
        "long name": series(np.repeat([30.0, 57.0, 84.0], 100), name="x" * 200),
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", list(hostile()))
def test_no_series_breaks_it(name: str) -> None:
    outcomes = series_outcomes(hostile()[name], around_s=NOON)
    assert len(outcomes) >= 3
    assert all(len(title) <= 80 for title in titles(outcomes))


def test_slow_steps_that_begin_late_say_since_when() -> None:
    times = steady(SEED, 2000)
    rng = np.random.default_rng(SEED)
    times[1200 + rng.choice(800, 60, replace=False)] *= 3
    times[1200] *= 3
    (finding,) = found(series_outcomes(series(times)))
    assert "none of them before step 1,200" in text_of(finding)
    assert finding.severity is Severity.WARNING


def test_a_third_of_the_steps_becoming_slow_is_a_slowdown() -> None:
    times = steady(SEED, 2000)
    times[1200::3] *= 2
    warnings = [each for each in found(series_outcomes(series(times))) if each.severity is Severity.WARNING]
    (finding,) = warnings
    assert "the whole job is 26 % slower since step 1,2" in finding.title


def test_three_checkpoints_at_equal_distances_are_a_rhythm() -> None:
    times = steady(SEED, 2000)
    times[500::500] *= 50
    (finding,) = found(series_outcomes(series(times)))
    assert finding.title.startswith("a slow step every 500 steps")
    assert finding.severity is Severity.INFO

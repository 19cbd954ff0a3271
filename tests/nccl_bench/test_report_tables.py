"""The first screen: what its table leaves out is told, a rank alone has no curve, a refused baseline is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone

from distdoctor.nccl_bench.build import bench_report
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.rows import Row
from distdoctor.nccl_bench.tables import bench_tables
from distdoctor.ranks.lost import Stopped
from distdoctor.report.model import Table
from distdoctor.report.request import ReportRequest
from distdoctor.units import KIB, MIB
from nccl_bench.bench_builders import flat_rows, live, row

REQUEST = ReportRequest(command="nccl-bench", argv=(), started=datetime(2026, 11, 30, tzinfo=timezone.utc))
SIX = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather")


def table(rows: Sequence[Row], name: str, *, num_ranks: int = 8) -> Table | None:
    facts = BenchFacts(origin=Origin.MEASURED, label="run", rows=tuple(rows), num_ranks=num_ranks)
    return next((each for each in bench_tables(facts) if each.name == name), None)


def test_the_first_screen_tells_how_many_collectives_it_leaves_out() -> None:
    all_six = table([row(MIB, busbw=10, collective=name) for name in SIX], "bench-main")
    five = table([row(MIB, busbw=10, collective=name) for name in SIX[:5]], "bench-main")
    assert all_six is not None and five is not None
    assert all_six.title == "Bandwidth, 8 ranks, 5 of 6 collectives"
    assert five.title == "Bandwidth, 8 ranks"
    assert len(all_six.rows) == len(five.rows) == 5


def test_half_speed_beyond_the_largest_size_is_not_reached() -> None:
    sizes = (KIB, 4 * KIB, 16 * KIB, 64 * KIB)
    still_climbing = table([row(size, time_us=1000 + size / 1e3) for size in sizes], "bench-fits")
    flat = table([row(size, time_us=1 + size / 1e3) for size in sizes], "bench-fits")
    assert still_climbing is not None and flat is not None
    assert still_climbing.rows[0][3] == "not reached"
    assert flat.rows[0][3] == "1000 B"


def test_one_rank_has_no_curve() -> None:
    rows = [row(size, time_us=11.5, num_ranks=1) for size in (KIB, 4 * KIB, 16 * KIB, 64 * KIB)]
    assert table(rows, "bench-fits", num_ranks=1) is None
    assert table(rows, "bench-rows", num_ranks=1) is not None


def test_a_refused_baseline_is_told_below_the_verdict() -> None:
    now = live(flat_rows(478.0))
    other = replace(now, baseline=live(flat_rows(478.0), num_ranks=4))
    words = "Not compared: the baseline `this run` is of another number of ranks: 4 against 8 now."
    assert words in bench_report(REQUEST, [other]).verdict.summary
    for comparable in (now, replace(now, baseline=now)):
        assert "Not compared" not in bench_report(REQUEST, [comparable]).verdict.summary


def test_a_run_that_was_broken_off_says_so_before_it_speaks_of_noise() -> None:
    noisy = [replace(each, repeats_us=(each.time_us, 3 * each.time_us)) for each in flat_rows(478.0)]
    stopped = Stopped(phase="all_reduce 4 MiB", reason="a signal came", by_user=True)
    verdict = bench_report(REQUEST, [live(tuple(noisy), stopped=stopped)]).verdict
    assert verdict.title == "cannot tell: somebody ended the measurement early"
    assert "all_reduce 4 MiB: a signal came. Measured all the same" in verdict.summary

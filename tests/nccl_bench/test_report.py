"""The report of a run: what the verdict says where nothing is wrong, and which rows stand on the first screen."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from distdoctor.nccl_bench.build import bench_report
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention
from distdoctor.nccl_bench.facts.matrix import Matrix, PairTime
from distdoctor.nccl_bench.facts.rows import NotMeasured, Row
from distdoctor.nccl_bench.tables import MEASUREMENT_COLUMNS, MEASUREMENTS, main_rows
from distdoctor.ranks.lost import Stopped
from distdoctor.report.model import Report, Severity, Status, Table
from distdoctor.report.render.terminal import render_terminal
from distdoctor.report.request import ReportRequest
from distdoctor.report.seal import seal
from distdoctor.units import GIB, KIB, MIB
from nccl_bench.bench_builders import flat_rows, live, places, row, table

REQUEST = ReportRequest(command="nccl-bench", argv=(), started=datetime(2026, 11, 30, tzinfo=timezone.utc))
SIZES = (KIB, 64 * KIB, MIB, 512 * MIB, 8 * GIB)


def report_of(*facts: BenchFacts) -> Report:
    return bench_report(REQUEST, facts)


def found_table(report: Report, name: str) -> Table:
    (found,) = [each for each in report.tables if each.name == name]
    return found


def curve(collective: str, **fields: object) -> tuple[Row, ...]:
    return flat_rows(478, sizes=SIZES, collective=collective, **fields)


def test_a_healthy_run_is_ok_with_its_number_beside_the_expectation_and_its_rule() -> None:
    verdict = report_of(live(flat_rows(478))).verdict
    assert verdict.status is Status.OK
    assert verdict.title.startswith("all_reduce 478 GB/s at 8 GiB: within ")
    assert "18 NVLinks" in verdict.summary and "Expected by:" in verdict.summary


def test_gloo_is_not_judged_and_says_so() -> None:
    facts = live(flat_rows(1.5), places=places(8, gpu_model=None), hardware=(), backend="gloo")
    verdict = report_of(facts).verdict
    assert (verdict.status, "bandwidth not judged" in verdict.title) == (Status.OK, True)


def test_sizes_below_the_plateau_are_no_clean_bill() -> None:
    verdict = report_of(live(flat_rows(200, sizes=(KIB, MIB)))).verdict
    assert "too small to judge" in verdict.title


def test_one_rank_has_times_and_no_bandwidth() -> None:
    rows = (row(MIB, time_us=50, num_ranks=1),)
    report = report_of(live(rows, num_ranks=1))
    assert "one rank has no bus bandwidth" in report.verdict.title
    assert found_table(report, "bench-main").rows[0][3] == "n/a"


def test_a_busy_machine_is_inconclusive_and_not_ok() -> None:
    rows = tuple(replace(each, repeats_us=(each.time_us, 3 * each.time_us)) for each in flat_rows(478))
    busy = (Contention(host="host-a", load_1min=40.0, num_cpus=2),)
    verdict = report_of(live(rows, contention=busy)).verdict
    assert verdict.status is Status.UNKNOWN
    assert verdict.title.startswith("inconclusive")


def test_an_interrupted_run_is_not_ok_and_keeps_its_rows() -> None:
    stopped = Stopped(reason="interrupted (Ctrl-C)", phase="all_gather 1 MiB", by_user=True)
    report = report_of(live(flat_rows(478), stopped=stopped))
    assert report.verdict.status is Status.UNKNOWN
    assert "ended" in report.verdict.title
    assert found_table(report, "bench-main").rows


def test_a_run_that_the_backend_refused_altogether_says_why() -> None:
    refused = (NotMeasured(what="all_reduce of float8_e4m3fn", why="Invalid scalar type"),)
    report = report_of(live((), not_measured=refused))
    assert report.verdict.status is Status.UNKNOWN
    assert "Invalid scalar type" in report.verdict.summary


@pytest.mark.parametrize(
    ("collectives", "expected"),
    [
        (("all_reduce",), [("all_reduce", size) for size in SIZES]),
        (("all_reduce", "all_gather"), [("all_reduce", KIB), ("all_reduce", 8 * GIB)]),
        (
            ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "sendrecv", "all_to_all"),
            [("all_reduce", 8 * GIB), ("all_gather", 8 * GIB), ("reduce_scatter", 8 * GIB)],
        ),
    ],
)
def test_five_rows_at_most_stand_first_the_largest_of_each_collective_among_them(
    collectives: tuple[str, ...], expected: list[tuple[str, int]]
) -> None:
    chosen = main_rows(tuple(each for name in collectives for each in curve(name)))
    assert len(chosen) <= 5
    assert [(each.collective, each.size_bytes) for each in chosen][: len(expected)] == expected


def test_programs_get_every_number_and_people_do_not() -> None:
    facts = live(flat_rows(478))
    report = report_of(facts)
    measurements = found_table(report, MEASUREMENTS)
    assert tuple(column.name for column in measurements.columns) == MEASUREMENT_COLUMNS
    assert len(measurements.rows) == len(facts.rows)
    assert MEASUREMENT_COLUMNS[-1] not in render_terminal(seal(report), width=80, verbose=True)


def test_the_definitions_of_size_and_factor_stand_in_the_report() -> None:
    rows = found_table(report_of(live(flat_rows(478))), "bench-definitions").rows
    assert rows == (("all_reduce", "each rank's buffer", "2(n-1)/n"),)


def test_the_first_screen_fits_80_by_24_with_its_rows() -> None:
    report = report_of(live(tuple(each for name in ("all_reduce", "all_gather") for each in curve(name))))
    lines = render_terminal(seal(report), width=80).splitlines()
    assert len(lines) <= 24
    assert any("busbw (GB/s)" in line for line in lines)
    assert max(len(line) for line in lines) <= 80


def test_curves_and_the_matrix_are_pictures() -> None:
    pairs = tuple(
        PairTime(source=source, target=target, best_us=100.0, repeats_us=(100.0,))
        for source in range(3)
        for target in range(3)
        if source != target
    )
    facts = live(flat_rows(478), matrix=Matrix(size_bytes=MIB, ranks=(0, 1, 2), pairs=pairs))
    lines, heat = report_of(facts).series
    assert (lines.kind, lines.names) == ("lines", ("all_reduce",))
    assert heat.kind == "heat"
    assert heat.values[0] == (None, pytest.approx(MIB / 100 / 1e3, rel=1e-3), pytest.approx(10.49, rel=1e-2))


def test_two_tables_keep_their_names() -> None:
    one, two = replace(table(flat_rows(478)), label="a.txt"), replace(table(flat_rows(470)), label="b.txt")
    titles = [each.title for each in report_of(one, two).tables if each.name == "bench-main"]
    assert [title.rpartition(", ")[2] for title in titles] == ["a.txt", "b.txt"]


def test_only_one_check_is_asked_for() -> None:
    request = replace(REQUEST, only=("bench-cliff",))
    assert [check.id for check in bench_report(request, [live(flat_rows(478))]).checks] == ["bench-cliff"]


def test_what_is_ignored_does_not_count() -> None:
    slow = live(flat_rows(100))
    assert report_of(slow).verdict.status is not Status.OK
    request = replace(REQUEST, ignore=("bench-*",))
    quiet = bench_report(request, [slow])
    assert quiet.verdict.status is Status.OK
    assert all(each.ignored for each in quiet.findings if each.severity is not Severity.INFO)


def test_evidence_is_asked_only_what_it_can_hold() -> None:
    """A table has no log and no single rank's times; one line says what a log would add."""
    report = report_of(table(flat_rows(478)))
    assert [skip.id for skip in report.skipped if skip.id.startswith("nccl-log")] == ["nccl-log"]
    assert not {"bench-late-rank", "bench-slow-host"} & {check.id for check in report.checks}


def test_hosts_whose_pairs_were_not_measured_for_want_of_time_are_no_clean_bill() -> None:
    left_out = (NotMeasured(what="pass 1 of 3 over the pairs of ranks", why="the time limit", refused=False),)
    facts = live(flat_rows(478, num_ranks=16), num_ranks=16, num_hosts=2, not_measured=left_out)
    report = report_of(facts)
    assert report.verdict.status is not Status.OK
    one_host = live(flat_rows(478), not_measured=left_out)
    assert report_of(one_host).verdict.status is Status.OK

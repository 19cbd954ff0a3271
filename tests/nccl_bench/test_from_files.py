"""Files given together: logs of one run belong together, a report or a table is a baseline."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from distdoctor.errors import InputError
from distdoctor.nccl_bench.build import bench_report
from distdoctor.nccl_bench.from_files import read_baseline, report_of_files
from distdoctor.nccl_bench.readers.own_report import facts_of_report
from distdoctor.report.codec import encode
from distdoctor.report.model import Status
from distdoctor.report.request import ReportRequest
from distdoctor.report.seal import seal
from distdoctor.report.unread import name_unread
from nccl_bench.bench_builders import flat_rows, live

REQUEST = ReportRequest(command="nccl-bench", argv=(), started=datetime(2026, 11, 30, tzinfo=timezone.utc))

TABLE = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   268435456      67108864     float     sum      -1   1501.2  178.81  335.27      0   1503.1  178.59  334.86      0
   536870912     134217728     float     sum      -1   2599.4  206.54  387.26      0   2553.0  210.29  394.29      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 362.0
"""
LOG = """\
host-{host}:10:11 [0] NCCL INFO NCCL version 2.28.9+cuda12.9
host-{host}:10:11 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>
host-{host}:10:11 [0] NCCL INFO Using network IB
host-{host}:10:11 [0] NCCL INFO comm 0x1 rank {host} nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
"""


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_table_and_the_logs_beside_it_are_one_run(tmp_path: Path) -> None:
    files = [write(tmp_path, "table.txt", TABLE)]
    files += [write(tmp_path, f"log.{host}", LOG.format(host=host)) for host in (0, 1)]
    report = report_of_files(REQUEST, files)
    assert len([table for table in report.tables if table.name == "bench-main"]) == 1
    assert "table.txt" in report.verdict.summary
    (network,) = [check for check in report.checks if check.id == "nccl-log-socket"]
    assert network.state.value == "passed"


@pytest.mark.parametrize("time", ["nan", "inf", "-5.00", "0.00"])
def test_a_table_without_a_usable_number_is_no_clean_bill(time: str, tmp_path: Path) -> None:
    rows = TABLE
    for number in ("1501.2", "1503.1", "2599.4", "2553.0"):
        rows = rows.replace(number, f"{time:>6}")
    report = name_unread(report_of_files(REQUEST, [write(tmp_path, "table.txt", rows)]))
    assert report.verdict.status is Status.UNKNOWN
    assert "no row with numbers" in report.verdict.summary


def test_logs_of_many_processes_are_judged_once(tmp_path: Path) -> None:
    files = [write(tmp_path, f"log.{host}", LOG.format(host=host)) for host in (0, 1)]
    assert report_of_files(REQUEST, files).verdict.summary.startswith("2 logs")


def test_rows_come_back_from_a_report_as_they_were() -> None:
    facts = live(flat_rows(478.0))
    back = facts_of_report(bench_report(REQUEST, [facts]), "old.json")
    assert back is not None
    kept = [(row.collective, row.size_bytes, row.num_ranks, row.in_place, row.style) for row in back.rows]
    assert kept == [
        (row.collective, row.size_bytes, row.num_ranks, row.in_place, row.style) for row in facts.rows
    ]
    assert [row.busbw_gbps for row in back.rows] == [row.busbw_gbps for row in facts.rows]
    for before, after in zip(facts.rows, back.rows, strict=True):
        assert after.repeats_us == pytest.approx(before.repeats_us, abs=1e-3)
        assert after.group.ranks == before.group.ranks


def test_a_report_and_a_table_are_baselines(tmp_path: Path) -> None:
    report = tmp_path / "old.json"
    report.write_bytes(encode(seal(bench_report(REQUEST, [live(flat_rows(478.0))]))))
    assert read_baseline(str(report)).rows
    assert {row.size_bytes for row in read_baseline(write(tmp_path, "t.txt", TABLE)).rows} == {
        1 << 28,
        1 << 29,
    }


@pytest.mark.parametrize("text", ["", "hello\n", '{"tool": {"name": "distdoctor"}}', '{"a": 1}', "\0" * 100])
def test_what_is_no_baseline_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, "x.json", text)
    with pytest.raises(InputError, match=r"x\.json"):
        read_baseline(path)


def test_a_report_of_another_command_holds_no_bandwidths(tmp_path: Path) -> None:
    path = tmp_path / "env.json"
    path.write_bytes(encode(seal(bench_report(REQUEST, [live([])]))))
    with pytest.raises(InputError, match="holds no bandwidths"):
        read_baseline(str(path))

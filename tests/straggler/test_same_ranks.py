"""Tables in which a rank's number does not say where it runs: counted on each host, or moved to another one."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from distdoctor.report.model import Report
from distdoctor.report.request import ReportRequest
from distdoctor.straggler.analyse import analyse
from distdoctor.straggler.build import straggler_report
from distdoctor.straggler.from_files import read_evidence_files
from distdoctor.straggler.readers.base import ReadOptions


def told(paths: list[Path]) -> Report:
    request = ReportRequest(
        argv=(), started=datetime(2026, 11, 30, tzinfo=timezone.utc), command="straggler-analyze"
    )
    return straggler_report(
        request, analyse(read_evidence_files([str(path) for path in paths], ReadOptions()))
    )


def write(path: Path, factors: list[float], *, hosts: list[str] | None = None, first_step: int = 0) -> None:
    """Four ranks of one host, counted from 0; `factors` multiply the work of each."""
    rng = np.random.default_rng(len(path.name) + first_step)
    lines = ["step,rank,compute_ms,wait_ms" + (",host" if hosts else "")]
    for step in range(first_step, first_step + 100):
        for rank, factor in enumerate(factors):
            work = 300 * factor * (1 + 0.01 * rng.standard_normal())
            lines.append(f"{step},{rank},{work:.3f},{400 - work:.3f}" + (f",{hosts[rank]}" if hosts else ""))
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("slow_host", [None, 2])
def test_ranks_that_are_counted_on_each_host_clear_no_host(tmp_path: Path, slow_host: int | None) -> None:
    paths = [tmp_path / f"node{host}.csv" for host in range(4)]
    for host, path in enumerate(paths):
        write(path, [1.2 if host == slow_host else 1.0] * 4)
    report = told(paths)
    assert report.verdict.cause_class == ("none" if slow_host is None else "inconclusive")
    if slow_host is not None:
        assert "node2.csv" in report.verdict.summary
        assert "LOCAL_RANK" in report.verdict.summary


def test_a_rank_that_ran_on_two_hosts_is_named_without_a_host(tmp_path: Path) -> None:
    before, after = tmp_path / "a.csv", tmp_path / "b.csv"
    write(before, [1, 1, 1.3, 1], hosts=["h0", "h1", "h2", "h3"])
    write(after, [1, 1, 1.3, 1], hosts=["h0", "h1", "h9", "h3"], first_step=100)
    both = tmp_path / "both.csv"
    both.write_text(before.read_text() + after.read_text().partition("\n")[2])
    report = told([both])
    (culprit,) = [each for each in report.culprits if each.role == "culprit"]
    assert (culprit.rank, culprit.host) == (2, None)
    assert "rows of rank 2 name several hosts" in str(report)


@pytest.mark.parametrize(("num_epochs", "slow_in"), [(3, 0), (5, 1)])
def test_a_rank_that_was_slow_in_an_earlier_epoch_is_not_cleared_by_the_last_one(
    tmp_path: Path, num_epochs: int, slow_in: int
) -> None:
    parts = []
    for epoch in range(num_epochs):
        write(tmp_path / f"{epoch}.csv", [1, 1.3 if epoch == slow_in else 1, 1, 1])
        parts.append((tmp_path / f"{epoch}.csv").read_text().partition("\n")[2])
    table = tmp_path / "epochs.csv"
    table.write_text("step,rank,compute_ms,wait_ms\n" + "".join(parts))
    report = told([table])
    assert report.verdict.cause_class == "inconclusive"
    assert "told again with the same steps" in report.verdict.summary


def test_a_restart_that_repeats_few_steps_clears_as_before(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    write(first, [1, 1, 1, 1])
    write(second, [1, 1, 1, 1], first_step=90)
    table = tmp_path / "restarted.csv"
    table.write_text(first.read_text() + second.read_text().partition("\n")[2])
    assert told([table]).verdict.cause_class == "none"

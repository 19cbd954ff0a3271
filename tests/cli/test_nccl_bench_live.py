"""What a run says while it measures: progress that fits, and no early word that a busy host explains."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import datetime, timezone
from typing import cast

import pytest

from distdoctor.cli import measuring
from distdoctor.cli.measuring import ProgressLine, giving_way
from distdoctor.cli.nccl_bench_live import _Speaker
from distdoctor.cli.output import Prepared
from distdoctor.errors import UsageError
from distdoctor.nccl_bench.measured import Measured
from distdoctor.nccl_bench.options import BenchOptions
from distdoctor.ranks.agent_noise import STDERR_IS_TERMINAL
from distdoctor.report.request import ReportRequest
from distdoctor.units import MIB
from nccl_bench.bench_builders import live, row


class Step:
    text = "each host, all at once: reduce_scatter 256 KiB"
    done, total, left_s = 41, 105, 60.4


def test_a_progress_line_is_never_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(STDERR_IS_TERMINAL, "1")
    monkeypatch.setattr(shutil, "get_terminal_size", lambda fallback: os.terminal_size((40, 24)))
    ProgressLine()(Step())  # type: ignore[arg-type]  # has what a Progress has
    line = capsys.readouterr().err
    assert line.startswith("\r\x1b[K[42/105] each host")
    assert len(line.removeprefix("\r\x1b[K")) == 39


@pytest.mark.parametrize(("load", "told"), [(0.1, True), (50.0, False)])
def test_what_a_busy_host_explains_is_not_told_early(
    load: float, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    rows = [row(size * MIB, time_us=1000 * size, repeats_us=(1000, 2200, 1010)) for size in (4, 16, 64)]
    facts = replace(live(tuple(rows)), contention=())
    request = ReportRequest(
        command="nccl-bench", argv=(), started=datetime(2026, 11, 30, tzinfo=timezone.utc)
    )
    speaker = _Speaker(BenchOptions(), request, cast(Prepared, None), None, under_launcher=False)
    quiet = replace(speaker._contention(facts)[0], involuntary_switches_per_s=0.0, cpu_pressure_pct=None)
    monkeypatch.setattr(speaker, "_facts", lambda measured: facts)
    monkeypatch.setattr(speaker, "_contention", lambda facts: (quiet,))
    speaker.tell_early(cast(Measured, None))
    assert ("has two speeds" in capsys.readouterr().err) is told


@pytest.mark.parametrize(("rank", "waits"), [("0", 0), ("1", 1)])
def test_a_silent_rank_fails_after_the_one_that_speaks(
    rank: str, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(measuring.time, "sleep", slept.append)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError), giving_way("job"):
        raise UsageError("no")
    assert len(slept) == waits

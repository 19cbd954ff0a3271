"""torchrun's own words: the ranks' lines pass at once, what follows the report is for nobody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from distdoctor.ranks.agent_noise import AgentListener

AGENT = "W1130 08:49:38.496000 602 torch/distributed/run.py:874] Setting OMP_NUM_THREADS"


def listened(script: str, report: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE)
    listener = AgentListener(process, report)
    process.wait(timeout=60)
    listener.finish()


def test_lines_of_ranks_pass_and_those_of_the_agent_do_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    listened(f"import sys; print({AGENT!r}, 'a rank speaks', sep='\\n', file=sys.stderr)", tmp_path / "code")
    assert capfd.readouterr().err == "a rank speaks\n"


def test_what_comes_after_the_report_is_kept_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "code"
    script = (
        f"import sys, pathlib; print('before', file=sys.stderr, flush=True); pathlib.Path({str(report)!r}).touch(); "
        "print('Traceback (most recent call last):', file=sys.stderr)"
    )
    listened(script, report)
    assert "Traceback" not in capfd.readouterr().err


def test_without_a_report_everything_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "code"
    report.touch()
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('why', file=sys.stderr)"], stderr=subprocess.PIPE
    )
    listener = AgentListener(process, report)
    process.wait(timeout=60)
    report.unlink()
    listener.finish()
    assert capfd.readouterr().err == "why\n"


def test_a_line_that_is_written_over_is_seen_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    listened("import sys; sys.stderr.write('\\r[1/3] all_reduce')", tmp_path / "code")
    assert capfd.readouterr().err == "\r[1/3] all_reduce"

"""Four hosts on one machine, as network namespaces: the one that sends slowly is named, and without one nobody is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slowdown import scaled

SCRIPT = Path(__file__).parents[2] / "scripts" / "slow_link_hosts.py"
TIME_LIMIT_S = scaled(16)
SHORT = (f"--time-limit={TIME_LIMIT_S:g}", "--", "--sizes=1K,256K,4M", "--collectives=all_reduce,all_to_all")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One run of the script."""

    code: int
    stdout: str
    stderr: str
    out: Path

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "report.json").read_text())
        return found

    def ranks_said(self) -> str:
        return "".join(path.read_text() for path in sorted(self.out.glob("rank-*.stderr")))


def run(*arguments: str, out: Path, env: dict[str, str] | None = None) -> Ended:
    """Run the script; past the deadline it is told to end, so that it takes its hosts away."""
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(out), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    try:
        stdout, stderr = process.communicate(timeout=scaled(150))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        stdout, stderr = process.communicate(timeout=30)
    return Ended(code=process.returncode, stdout=stdout, stderr=stderr, out=out)


def run_or_skip(*arguments: str, out: Path) -> Ended:
    """Run it briefly; skips the test where the machine cannot make hosts."""
    pytest.importorskip("torch")
    ended = run(*arguments, *SHORT, out=out)
    if ended.code == 2 and ended.stderr.startswith("error: "):
        pytest.skip(ended.stderr.strip())
    return ended


@pytest.mark.launch
def test_a_host_that_sends_slowly_is_named_and_nobody_else(tmp_path: Path) -> None:
    ended = run_or_skip("--slow-host=2", out=tmp_path)
    assert ended.code == 0, ended.stdout + ended.stderr + ended.ranks_said()
    report = ended.report()
    (named,) = [each for each in report["findings"] if each["id"].startswith("bench-")]
    assert (named["id"], named["scope"]["hosts"], named["severity"]) == (
        "bench-slow-host",
        ["host-2"],
        "critical",
    )
    assert "host-2 sends" in report["verdict"]["title"]
    assert [each["host"] for each in report["culprits"]] == ["host-2"]
    assert {"report.html", "report.md", "report.txt"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.launch
def test_of_hosts_without_a_fault_nobody_is_named_and_ranks_say_nothing_but_progress(tmp_path: Path) -> None:
    ended = run_or_skip(out=tmp_path)
    assert ended.code == 0, ended.stdout + ended.stderr + ended.ranks_said()
    report = ended.report()
    assert report["verdict"]["status"] in ("ok", "unknown")
    assert not report.get("culprits")
    lines = ended.ranks_said().splitlines()
    # `[W…]` and `[E…]` are torch's.
    assert [line for line in lines if line.startswith(("[W", "[E", "Traceback"))] == []
    assert "nobody" in ended.stdout


def test_a_machine_that_cannot_make_hosts_is_told_in_one_line(tmp_path: Path) -> None:
    ended = run(out=tmp_path, env={"PATH": ""})
    assert ended.code == 2
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1

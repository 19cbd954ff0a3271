"""`--launch N` whose own process is killed, or whose terminal is closed: its ranks report what they have, and end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from slowdown import scaled

pytestmark = pytest.mark.ranks

MODULE = "launched_rank"
RANKS_FOLDER = Path(__file__).parents[1] / "ranks"
NEEDS_TORCH = pytest.param(True, marks=pytest.mark.launch, id="under torchrun")
LAUNCH = f"""
import os, sys
from distdoctor.ranks.launch import launch
sys.exit(launch(2, ["hang"], env=os.environ, module={MODULE!r}, needs_torch=sys.argv[1] == "True"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for path in tmp_path.glob("pid.*"):
        if psutil.pid_exists(pid := int(path.read_text())):
            psutil.Process(pid).kill()


def started(folder: Path, *, needs_torch: bool) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    """The launching process, in a session of its own, and all that it started, once its ranks hang."""
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(needs_torch)],
        env={**os.environ, "PYTHONPATH": str(RANKS_FOLDER), "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until = time.monotonic() + scaled(60)
    while len(list(folder.glob("ready.*"))) < 2:
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    return process, psutil.Process(process.pid).children(recursive=True)


def ignores_hangup(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (ignored,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")]
    return bool(int(ignored, 16) & 1 << (signal.SIGHUP - 1))


@pytest.mark.parametrize("needs_torch", [pytest.param(False, id="plain"), NEEDS_TORCH])
def test_ranks_whose_launcher_is_killed_report_and_end(folder: Path, needs_torch: bool) -> None:
    if needs_torch:
        pytest.importorskip("torch")
    process, children = started(folder, needs_torch=needs_torch)
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(children, timeout=scaled(20))
    assert not left
    assert list(folder.glob("report.*.json"))


def test_ranks_whose_terminal_is_closed_report_and_end(folder: Path) -> None:
    process, children = started(folder, needs_torch=False)
    # As the kernel does: to every process of the session's foreground group at once.
    os.killpg(process.pid, signal.SIGHUP)
    assert process.wait(timeout=scaled(40)) == 11
    _, left = psutil.wait_procs(children, timeout=scaled(20))
    assert not left
    assert list(folder.glob("report.*.json"))


def test_a_launch_under_nohup_outlives_its_terminal(folder: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process, children = started(folder, needs_torch=False)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert all(ignores_hangup(pid) for pid in (process.pid, *(child.pid for child in children)))
    process.terminate()
    assert process.wait(timeout=scaled(40)) == 11

"""`--launch`: the same command on N ranks of this host, its exit code, and no process left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from distdoctor.errors import DistdoctorError
from distdoctor.exit_codes import ExitCode
from distdoctor.ranks.launch import launch
from distdoctor.ranks.status import STATUS_VARIABLE, read_status, write_status
from slowdown import scaled

pytestmark = pytest.mark.ranks

MODULE = "launched_rank"


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "TMPDIR": str(tmp_path),
        # Left by another launcher in this shell; the ranks must not take it for theirs.
        "TORCHELASTIC_RUN_ID": "somebody-elses",
        "RANK": "5",
        "WORLD_SIZE": "8",
    }
    left = {child.pid for child in psutil.Process().children(recursive=True)} - before
    assert not left, "ranks were left behind"


def the_report(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("report.*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_ranks_report_and_the_verdict_is_the_exit_code(environ: dict[str, str], tmp_path: Path) -> None:
    code = launch(3, ["report", "--sizes", "1K"], env=environ, module=MODULE)
    report = the_report(tmp_path)
    assert code == ExitCode.CRITICAL
    assert report == {
        "launcher": "distdoctor",
        "ranks": [0, 1, 2],
        "missing": {},
        "argv": ["report", "--sizes", "1K"],
    }


def test_when_one_rank_fails_the_others_report_without_it(environ: dict[str, str], tmp_path: Path) -> None:
    began = time.monotonic()
    assert launch(3, ["fail"], env=environ, module=MODULE) == ExitCode.CRITICAL
    assert the_report(tmp_path)["missing"] == {"1": "NEVER_SEEN"}
    assert time.monotonic() - began < scaled(30)


def test_a_stopped_rank_does_not_hold_up_the_launch(environ: dict[str, str], tmp_path: Path) -> None:
    assert launch(2, ["stop"], env=environ, module=MODULE, deadline_s=scaled(1.5)) == ExitCode.CRITICAL
    assert the_report(tmp_path)["missing"] == {"1": "STOPPED"}


@pytest.mark.parametrize(
    ("what", "code"), [("usage", ExitCode.USAGE), ("nothing", ExitCode.OK), ("die", ExitCode.CRITICAL)]
)
def test_without_a_word_from_the_reporter_rank_0s_own_code_counts(
    environ: dict[str, str], what: str, code: ExitCode
) -> None:
    """When rank 0 dies, rank 1 reports."""
    assert launch(2, [what], env=environ, module=MODULE) == code


def test_a_single_rank_that_is_killed_leaves_the_question_open(environ: dict[str, str]) -> None:
    assert launch(1, ["die"], env=environ, module=MODULE) == ExitCode.UNANSWERED


LAUNCH_IN_A_PROCESS = f"""
import os, sys
from distdoctor.ranks.launch import launch
sys.exit(launch(2, ["hang"], env=os.environ, module={MODULE!r}))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_ranks(environ: dict[str, str], tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH_IN_A_PROCESS],
        env=environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + scaled(20)
    while len(list(tmp_path.glob("ready.*"))) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    pids = [int(path.read_text()) for path in tmp_path.glob("pid.*")]
    process.send_signal(number)
    code = process.wait(timeout=scaled(40))
    assert code == (ExitCode.INTERRUPTED if number == signal.SIGINT else ExitCode.CRITICAL)
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_measuring_needs_torch(environ: dict[str, str], tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(DistdoctorError, match="torch is not installed"):
        launch(2, ["report"], env=environ, needs_torch=True, python=str(bare), module=MODULE)


@pytest.mark.launch
def test_under_torchrun_the_verdict_survives(environ: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert launch(2, ["report"], env=environ, needs_torch=True, module=MODULE) == ExitCode.CRITICAL
    report = the_report(tmp_path)
    assert (report["launcher"], report["ranks"]) == ("torchrun", [0, 1])
    assert not list(tmp_path.glob("torchelastic*")), "torchrun's logs were left behind"


def test_a_torch_that_cannot_be_imported_is_no_bug_of_ours(environ: dict[str, str], tmp_path: Path) -> None:
    broken = tmp_path / "path" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text(
        "raise ImportError('libcudart.so.12: cannot open shared object file')"
    )
    env = {**environ, "PYTHONPATH": f"{broken.parent}:{environ['PYTHONPATH']}"}
    with pytest.raises(DistdoctorError, match="torchrun ended with status 1"):
        launch(2, ["report"], env=env, needs_torch=True, module=MODULE)


def test_a_torch_that_hangs_as_it_is_imported_is_waited_for_no_longer_than_was_said(
    environ: dict[str, str], tmp_path: Path
) -> None:
    hangs = tmp_path / "path" / "torch"
    hangs.mkdir(parents=True)
    (hangs / "__init__.py").write_text("import time; time.sleep(600)")
    env = {**environ, "PYTHONPATH": f"{hangs.parent}:{environ['PYTHONPATH']}"}
    with pytest.raises(DistdoctorError, match="no rank had reported after"):
        launch(2, ["report"], env=env, needs_torch=True, module=MODULE, deadline_s=1.0)


@pytest.mark.launch
def test_ranks_of_a_killed_torchrun_do_not_stay_and_it_is_said(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("distdoctor.ranks.launch._ORPHANS_S", 0.5)

    def kill_torchrun() -> None:
        until = time.monotonic() + scaled(60)
        while len(list(tmp_path.glob("pid.*"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        for child in psutil.Process().children():
            # Others of this process may be gone by now, or zombies.
            with contextlib.suppress(psutil.Error):
                if any("torch.distributed.run" in word for word in child.cmdline()):
                    child.kill()

    killer = threading.Thread(target=kill_torchrun)
    killer.start()
    with pytest.raises(DistdoctorError, match="SIGKILL before any rank had reported"):
        launch(2, ["silent"], env=environ, needs_torch=True, module=MODULE)
    killer.join()
    pids = [int(path.read_text()) for path in tmp_path.glob("pid.*")]
    assert len(pids) == 2
    until = time.monotonic() + scaled(5)
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(psutil.pid_exists, pids))


def test_the_status_file_holds_an_exit_code_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "code"
    assert read_status(path) is None
    write_status(10, {STATUS_VARIABLE: str(path)})
    assert read_status(path) is ExitCode.WARNING
    path.write_text("99")
    assert read_status(path) is None
    path.write_bytes(b"\xff")
    assert read_status(path) is None
    write_status(0, {})
    write_status(0, {STATUS_VARIABLE: "/nowhere/at/all"})

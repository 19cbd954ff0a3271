"""`distdoctor env` on real ranks: torchrun, and plain processes with Slurm's variables and no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRAP = str(ROOT / "tests" / "wrap.sh")
RAISES = 'raise ImportError("libcudart.so.13: cannot open shared object file: No such file or directory")'

pytest.importorskip("torch", reason="torchrun needs torch")


def torchrun(tmp_path: Path, *, limit_s: int = 12, **variables: str) -> dict[str, object]:
    """The report of 4 ranks under torchrun with tests/wrap.sh; torchrun's own exit within the limit and 15 s."""
    report = tmp_path / "report.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    environment |= {"DD_ALGO_RANK": "none", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    began = time.monotonic()
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "4",
            "--no-python",
            WRAP,
            "distdoctor",
            "env",
            "--time-limit",
            str(limit_s),
            "-o",
            str(report),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment, **variables},
    )
    assert time.monotonic() - began < limit_s + 40
    assert report.exists(), result.stdout + result.stderr
    told: dict[str, object] = json.loads(report.read_text())
    return told


def findings(report: dict[str, object], identity: str) -> list[dict[str, object]]:
    found = report["findings"]
    assert isinstance(found, list)
    return [each for each in found if each["id"] == identity]


@pytest.mark.launch
def test_the_rank_with_another_algorithm_is_named(tmp_path: Path) -> None:
    report = torchrun(tmp_path, DD_ALGO_RANK="2")
    (finding,) = findings(report, "job-variables-differ")
    assert finding["scope"]["ranks"] == [2]  # type: ignore[index]
    assert finding["severity"] == "critical"
    assert "missing_ranks" not in report["subject"]  # type: ignore[operator]


@pytest.mark.launch
def test_the_rank_with_a_broken_torch_is_named_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(RAISES)
    report = torchrun(tmp_path, DD_BREAK_RANK="1", DD_BREAK_PATH=str(tmp_path))
    # A venv without NumPy adds a note of its own.
    (finding,) = (each for each in findings(report, "torch-import-fails") if each["severity"] == "critical")
    assert finding["scope"]["ranks"] == [1]  # type: ignore[index]
    assert "libcudart.so.13" in str(finding["title"])


@pytest.mark.launch
def test_a_stopped_rank_is_named_and_does_not_hold_the_launcher(tmp_path: Path) -> None:
    report = torchrun(tmp_path, DD_STOP_RANK="3")
    (finding,) = findings(report, "rank-missing")
    assert finding["scope"]["ranks"] == [3]  # type: ignore[index]
    assert "stopped" in str(finding["title"])


@pytest.mark.launch
def test_a_killed_rank_is_named_or_nobody_is_accused(tmp_path: Path) -> None:
    """torchrun ends the other ranks at once; those that were too young to report are no culprits."""
    report = torchrun(tmp_path, DD_KILL_RANK="3")
    (finding,) = findings(report, "rank-missing")
    assert 3 in finding["scope"]["ranks"]  # type: ignore[index]
    assert finding["confidence"] == ("high" if finding["scope"]["ranks"] == [3] else "medium")  # type: ignore[index]


def slurm_task(rank: int, num_tasks: int, folder: Path, python: str) -> subprocess.Popen[str]:
    """One task of a Slurm step, as far as variables go: no slurmd is needed and no port is open."""
    nodes = f"node[001-{num_tasks:03d}]"
    variables = {
        "SLURM_JOB_ID": "4242",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(num_tasks),
        "SLURM_NNODES": str(num_tasks),
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": str(rank),
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": f"1(x{num_tasks})",
        "SLURMD_NODENAME": f"node{rank + 1:03d}",
    }
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "distdoctor",
            "env",
            "--python",
            python,
            "--gather",
            str(folder),
            "--time-limit",
            "8",
            "--format",
            "json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **variables},
    )


def test_slurm_tasks_without_torch_and_a_host_that_never_came_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "gather"
    folder.mkdir()
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True, timeout=120)
    pythons = [sys.executable, sys.executable, str(bare / "bin/python"), str(bare / "bin/python")]
    tasks = [slurm_task(rank, 5, folder, python) for rank, python in enumerate(pythons)]
    outputs = [task.communicate(timeout=90)[0] for task in tasks]
    assert outputs[1:] == ["", "", ""], "rank 0 alone speaks"
    report = json.loads(outputs[0])
    assert report["subject"]["missing_ranks"] == [4]
    assert report["subject"]["missing_hosts"] == ["node005"]
    without = next(
        each for each in findings(report, "job-versions-differ") if "PyTorch installed" in each["title"]
    )  # type: ignore[operator]
    assert without["scope"]["ranks"] == [2, 3]  # type: ignore[index]
    assert without["scope"]["hosts"] == ["node003", "node004"]  # type: ignore[index]

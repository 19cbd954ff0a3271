"""`distdoctor nccl-bench` as people start it: three ways to launch, one report; slips in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="measuring needs torch")

SHORT = ["--sizes", "1K,64K", "--repeats", "1", "--iters", "20", "--time-limit", "20s"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
DISTDOCTOR = [sys.executable, "-m", "distdoctor"]

WAYS = {
    "module": [*TORCHRUN, "-m", "distdoctor", "nccl-bench"],
    "command": [*TORCHRUN, "--no-python", "distdoctor", "nccl-bench"],
    "launch": [*DISTDOCTOR, "nccl-bench", "--launch", "2"],
}


def start(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=180, env={**environ, "PATH": path, **variables}
    )


def table(report: dict[str, Any], name: str) -> list[list[Any]]:
    (found,) = [each for each in report["tables"] if each["name"] == name]
    rows: list[list[Any]] = found["rows"]
    return rows


@pytest.mark.launch
def test_three_ways_to_launch_give_the_same_table_and_files(tmp_path: Path) -> None:
    seen = {}
    for way, command in WAYS.items():
        folder = tmp_path / way
        result = start([*command, *SHORT, "-o", f"{folder}/"])
        # 3: too busy here to judge anything.
        assert result.returncode in (0, 3), result.stderr
        assert "Traceback" not in result.stderr
        suffixes = sorted(path.suffix for path in folder.iterdir())
        assert suffixes == [".html", ".json", ".md", ".txt"]
        (path,) = folder.glob("*.json")
        report = json.loads(path.read_text())
        rows = [[*row[:8], row[9]] for row in table(report, "bench-measurements")]
        seen[way] = (rows, report["subject"]["world_size"], [row[0] for row in table(report, "bench-main")])
        assert "busbw (GB/s)" in result.stdout
    assert seen["module"] == seen["command"] == seen["launch"]


@pytest.mark.launch
def test_a_critical_finding_is_the_exit_code_of_a_launch(tmp_path: Path) -> None:
    """Data that one rank corrupts, by a torch that does so: a module found before the real one wraps it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if os.environ.get('RANK') == '1':\n"
        "    import torch.distributed as dist\n"
        "    real = dist.all_reduce\n"
        "    def corrupting(tensor, *args, **keywords):\n"
        "        work = real(tensor, *args, **keywords)\n"
        "        if not keywords.get('async_op') and tensor.numel() > 1000:\n"
        "            tensor[123] += 1\n"
        "        return work\n"
        "    dist.all_reduce = corrupting\n"
    )
    result = start(
        [
            *DISTDOCTOR,
            "nccl-bench",
            "--launch",
            "2",
            *SHORT,
            "--collectives",
            "all_reduce",
            "--matrix",
            "off",
        ],
        PYTHONPATH=str(tmp_path),
    )
    assert result.returncode == 11, result.stdout + result.stderr
    assert "critical" in result.stdout and "rank 1" in result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.launch
def test_one_process_alone_has_times_and_no_bus_bandwidth(tmp_path: Path) -> None:
    result = start([*DISTDOCTOR, "nccl-bench", *SHORT, "--format", "json"])
    report = json.loads(result.stdout)
    assert result.returncode == 0
    assert {row[3] for row in table(report, "bench-main")} == {"n/a"}
    assert "one rank has no bus" in report["verdict"]["title"]


SLIPS = [
    (["--sizes", "1Q"], "`1Q` is no size"),
    (["--collectives", "all_redcue"], "did you mean all_reduce?"),
    (["--dtype", "fp33"], "did you mean"),
    (["--op", "summ"], "did you mean sum?"),
    (["--launch", "4", "--mesh", "dp=3"], "= 3 ranks, but the job has 4"),
    (["--sizes", "1K", "--min-bytes", "1K"], "--sizes excludes"),
    (["--style", "isolatd"], "did you mean isolated?"),
    (["--matrix", "some"], "known: auto, all, off"),
    (["--backend", "mpi"], "known: nccl, gloo"),
    (["--save-baseline", "x.txt"], "end it in .json"),
    (["--launch", "2", "some-file"], "exclude one another"),
    (["-", "--baseline", "-"], "can be read once"),
    (["--only", "bench-nois"], "no check has this id"),
]


@pytest.mark.parametrize(
    ("words", "told"), SLIPS, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_slip_is_one_line_and_a_hint_before_anything_starts(words: list[str], told: str) -> None:
    result = start([*DISTDOCTOR, "nccl-bench", *words])
    assert result.returncode == 2
    assert told in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 2
    assert result.stdout == ""


@pytest.mark.parametrize("words", [["--baseline", "/nowhere.json", "--launch", "2"], ["/nowhere.txt"]])
def test_a_file_that_is_not_there_is_named(words: list[str]) -> None:
    result = start([*DISTDOCTOR, "nccl-bench", *words])
    assert result.returncode == 3
    assert "nowhere" in result.stderr and "Traceback" not in result.stderr


def test_a_torch_that_is_missing_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "raise ImportError('libcudart.so.13: cannot open shared object file')\n"
    )
    result = start([*DISTDOCTOR, "nccl-bench"], PYTHONPATH=str(tmp_path))
    assert result.returncode == 3
    assert "libcudart.so.13" in result.stderr and "distdoctor env" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 2


def test_help_imports_neither_torch_nor_numpy() -> None:
    script = (
        "import sys; from distdoctor.cli.main import run_app; run_app(['nccl-bench', '--help']); "
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    result = start([sys.executable, "-c", script])
    assert result.stdout.strip().endswith("[]")

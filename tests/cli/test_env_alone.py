"""`distdoctor env` as a process: broken torches, variables, outputs. What is run here is what users run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

DISTDOCTOR = [sys.executable, "-m", "distdoctor"]

RAISES_LIBRARY = (
    'raise ImportError("libcudart.so.13: cannot open shared object file: No such file or directory")'
)
RAISES_SYMBOL = 'raise ImportError("/site/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister")'


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "TORCH"))
    }
    return subprocess.run(
        [*DISTDOCTOR, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment, **variables},
        stdin=subprocess.DEVNULL,
    )


def broken_torch(folder: Path, code: str) -> str:
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(code + "\n")
    return str(folder)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (RAISES_LIBRARY, "libcudart.so.13"),
        (RAISES_SYMBOL, "NCCL"),
        ("import os; os.abort()", "SIGABRT"),
        ("import time; time.sleep(1e6)", "does not end within 2 s"),
        ("import os; os._exit(0)", "exits with code 0"),
    ],
    ids=["missing library", "undefined symbol", "abort", "hang", "exit half-way"],
)
def test_a_broken_torch_is_the_finding(tmp_path: Path, code: str, said: str) -> None:
    began = time.monotonic()
    result = run("env", "--timeout", "2", "--format", "json", PYTHONPATH=broken_torch(tmp_path, code))
    assert time.monotonic() - began < 30
    report = json.loads(result.stdout)
    finding = report["findings"][0]
    assert (finding["id"], finding["severity"]) == ("torch-import-fails", "critical")
    assert said in finding["title"] + " ".join(each["text"] for each in finding["evidence"])
    assert result.returncode == 11
    assert "Traceback" not in result.stderr


def test_a_typo_a_risk_and_a_renamed_variable() -> None:
    result = run(
        "env",
        "--no-torch",
        "--format",
        "json",
        NCCL_SOCKET_IFNAM="eth0",
        NCCL_IB_DISABLE="1",
        NCCL_ASYNC_ERROR_HANDLING="1",
    )
    titles = {each["id"]: each["title"] for each in json.loads(result.stdout)["findings"]}
    assert "NCCL_SOCKET_IFNAME" in titles["nccl-variable-typo"]
    assert "NCCL_IB_DISABLE" in titles["nccl-variable-risky"]
    assert "TORCH_NCCL_ASYNC_ERROR_HANDLING" in titles["nccl-variable-stale"]


def test_the_first_line_is_said_before_the_child_is_back(tmp_path: Path) -> None:
    path = broken_torch(tmp_path, "import time; time.sleep(1e6)")
    process = subprocess.Popen(
        [*DISTDOCTOR, "env", "--timeout", "60"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("so far")
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_nothing_is_overwritten_and_nothing_measured_for_nothing(tmp_path: Path) -> None:
    existing = tmp_path / "report.json"
    existing.write_text("mine")
    result = run(
        "env", "-o", str(existing), PYTHONPATH=broken_torch(tmp_path, "import time; time.sleep(1e6)")
    )
    assert result.returncode == 2
    assert "exists" in result.stderr
    assert existing.read_text() == "mine"


def test_a_folder_gets_all_four_forms(tmp_path: Path) -> None:
    result = run("env", "--no-torch", "--fail-on", "never", "-o", f"{tmp_path}/reports/")
    assert result.returncode == 0
    assert sorted(path.suffix for path in (tmp_path / "reports").iterdir()) == [
        ".html",
        ".json",
        ".md",
        ".txt",
    ]


def test_a_wrong_interpreter_is_named(tmp_path: Path) -> None:
    result = run("env", "--python", str(tmp_path / "nowhere"), "--format", "json")
    report = json.loads(result.stdout)
    # What else is wrong with this host speaks first; without that, torch not seen means "cannot tell".
    assert report["verdict"]["status"] != "ok"
    assert any(each["id"] == "torch-import-fails" and each["essential"] for each in report["skipped"])
    assert "nowhere" in result.stdout


@pytest.mark.parametrize("arguments", [["--pid", "999999999"], ["--pid", "2"]])
def test_a_process_that_cannot_be_read_is_one_clear_line(arguments: list[str]) -> None:
    result = run("env", *arguments)
    assert result.returncode == 3
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_json_stays_json_when_it_fails() -> None:
    result = run("env", "--pid", "999999999", "--format", "json")
    assert json.loads(result.stdout)["verdict"]["status"] == "unknown"


def test_plain_distdoctor_shows_the_table() -> None:
    result = run()
    assert result.returncode == 0
    assert all(
        word in result.stdout for word in ("checkup", "env", "nccl-bench", "explain", "compare", "report")
    )
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_unknown_words_are_usage_errors() -> None:
    result = run("envv")
    assert result.returncode == 2
    assert "envv" in result.stderr


@pytest.mark.parametrize(("option", "name"), [("--only", "shm-to-small"), ("--ignore", "gpu-eccc")])
def test_a_misspelt_id_is_a_usage_error_with_the_near_match(option: str, name: str) -> None:
    result = run("env", "--no-torch", option, name)
    assert result.returncode == 2
    assert "did you mean" in result.stderr


def test_only_looks_at_one_thing() -> None:
    told = json.loads(run("env", "--no-torch", "--only", "shm-too-small", "--format", "json").stdout)
    assert {each["id"] for each in told["checks"]} == {"shm-too-small"}


@pytest.mark.parametrize(("redirect", "code"), [(">&-", 0), ("> /dev/full", 2), ("| head -c 1", 0)])
def test_a_stdout_that_is_closed_full_or_gone(tmp_path: Path, redirect: str, code: int) -> None:
    report = tmp_path / "report.json"
    # What is wrong with this host is not the question.
    env = f"{sys.executable} -m distdoctor env --no-torch --fail-on never -o {report}"
    command = f"set -o pipefail; {env} {redirect}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert json.loads(report.read_text())["verdict"]

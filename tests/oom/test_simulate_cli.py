"""`oom simulate`, and `oom` without a verb, as commands: what they print, write, and refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distdoctor.cli.main import run_app
from distdoctor.errors import DistdoctorError
from distdoctor.exit_codes import ExitCode
from distdoctor.oom.settings_record import TABLE

TINY = ("--model", "tiny", "--mesh", "dp_shard=2,tp=2", "--seq-len", "256")


def run(*arguments: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distdoctor", "oom", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"},
        check=False,
    )


def table(report: Any, name: str) -> list[list[Any]]:  # of JSON
    rows: list[list[Any]] = next(each["rows"] for each in report["tables"] if each["name"] == name)
    return rows


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """(what a terminal of 80 columns shows, the report) of a job without a verb, on a GPU that is far too small."""
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("simulated") / "report.json"
    done = run(*TINY, "--on", "4x64MiB", "-o", str(path))
    assert done.returncode == ExitCode.CRITICAL, done.stderr
    return done.stdout, json.loads(path.read_text())


@pytest.mark.ranks
def test_simulation_and_formula_stand_side_by_side_and_add_up(simulated: tuple[str, Any]) -> None:
    _, report = simulated
    rows = {row[0]: row[1:] for row in table(report, "oom-simulated")}
    categories = [cells for name, cells in rows.items() if name in ("parameters", "gradients", "optimizer states",
                  "gathered parameters", "activations", "logits and loss", "communication buffers", "temporaries", "inputs")]  # fmt: skip
    assert sum(cells[2] for cells in categories) == pytest.approx(rows["allocated"][2], abs=0.004)
    assert rows["allocated"][3] == pytest.approx(rows["allocated"][2], rel=0.1)
    assert rows["optimizer states"][2] == pytest.approx(2 * rows["parameters"][2], abs=0.002)


@pytest.mark.ranks
def test_the_screen_says_which_number_is_which(simulated: tuple[str, Any]) -> None:
    screen, _ = simulated
    assert "does not fit" in screen
    assert "simulated, every rank" in " ".join(screen.split())
    assert "By formula" in screen
    assert max(len(line) for line in screen.splitlines() if "$ " not in line) <= 80


@pytest.mark.ranks
def test_what_is_told_to_run_next_is_the_job_itself(simulated: tuple[str, Any]) -> None:
    _, report = simulated
    commands = [action.get("command") for finding in report["findings"] for action in finding["actions"]]
    assert f"distdoctor oom fit --model tiny --on 4x64MiB --mesh {TINY[3]} --seq-len 256" in commands
    assert ["model.name", "tiny"] in table(report, TABLE)


def test_without_torch_the_formula_answers_and_says_that_it_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("distdoctor.oom.simulation.run.has_torch", lambda: False)
    assert run_app(["oom", *TINY]) == ExitCode.OK
    screen = " ".join(capsys.readouterr().out.split())
    assert "By formula only; not simulated: this Python has no torch." in screen


def test_a_number_of_parameters_alone_is_not_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    run_app(["oom", "--params", "7e9", "--gpus", "8"])
    assert "not simulated: the model's shape is not known" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--module", "a:b", "--torchtitan", "llama3:8B"), "exclude one another"),
        (("--model", "tiny", "--inputs", "8x8:int64"), "--inputs belongs to --module"),
        (("--params", "7e9"), "needs the model's shape"),
        (("--model", "tiny", "--mesh", "tp=3"), "tp=3"),
        (("--model", "tiny", "--timeout", "soon"), "soon"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_one_line(arguments: tuple[str, ...], words: str) -> None:
    if "--params" in arguments:
        # Looked at once there is a torch to simulate with.
        pytest.importorskip("torch")
    done = run("simulate", *arguments)
    assert done.returncode == ExitCode.USAGE
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_without_torch_a_simulation_is_refused_and_the_estimate_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("distdoctor.oom.simulation.run.has_torch", lambda: False)
    with pytest.raises(DistdoctorError, match="no torch in this Python") as refused:
        run_app(["oom", "simulate", *TINY])
    assert "distdoctor oom estimate" in (refused.value.hint or "")


@pytest.mark.ranks
def test_a_time_limit_that_is_too_short_is_said_and_nothing_is_claimed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run("simulate", *TINY, "--timeout", "0.2s", "-o", str(tmp_path / "report.json"))
    assert done.returncode == ExitCode.UNANSWERED
    report = json.loads((tmp_path / "report.json").read_text())
    assert "not done after 0.2 s (--timeout)" in report["verdict"]["title"]
    assert "By formula the worst rank needs" in report["verdict"]["summary"]

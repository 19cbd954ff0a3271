"""`distdoctor checkup` as a prolog runs it: one line, one exit code, a hard limit."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from warm_command import run_command


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("checkup", *arguments)


def test_one_line_on_stdout() -> None:
    result = run()
    assert len(result.stdout.splitlines()) == 1
    assert len(result.stdout.rstrip("\n")) <= 80
    assert "drain=" in result.stdout
    assert result.returncode in (0, 11)


def test_a_host_that_lacks_what_is_expected_is_not_let_through() -> None:
    result = run("--expect", "nics=99")
    assert result.returncode == 11
    assert "drain=yes" in result.stdout
    assert "host-not-as-expected" in result.stdout


def test_an_expected_value_that_cannot_be_read_passes_with_a_line_and_fails_when_strict(
    tmp_path: Path,
) -> None:
    arguments = ("--expect", "power_limit_w=700", "--ignore", "*")
    lenient, strict = run(*arguments), run(*arguments, "--strict")
    assert lenient.returncode == 0
    assert "cannot tell" in lenient.stderr
    assert strict.returncode == 3


def test_a_site_file_expects_the_same(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text("[expect]\nnics = 99\n")
    assert run("--site", str(site)).returncode == 11


def test_the_report_names_what_to_drain(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run("--expect", "nics=99", "-o", str(report))
    told = json.loads(report.read_text())
    assert told["drain"][0]["answer"] == "yes"
    assert told["drain"][0]["command"].startswith("scontrol update")


def test_the_baseline_of_this_very_host_is_no_difference(tmp_path: Path) -> None:
    baseline = tmp_path / "good.json"
    run("-o", str(baseline))
    told = json.loads(run("--baseline", str(baseline), "--format", "json").stdout)
    assert not [each for each in told.get("findings", []) if each["id"] == "host-unlike-baseline"]


def test_another_host_as_baseline_is_a_difference(tmp_path: Path) -> None:
    baseline = tmp_path / "good.json"
    run("-o", str(baseline))
    told = json.loads(baseline.read_text())
    for fact in told["facts"]:
        if fact["key"] == "host.cpu_model":
            fact["value"] = "another CPU"
    baseline.write_text(json.dumps(told))
    told = json.loads(run("--baseline", str(baseline), "--format", "json").stdout)
    assert "host-unlike-baseline" in {each["id"] for each in told["findings"]}


@pytest.mark.parametrize("limit", ["1s", "500ms"])
def test_a_short_limit_still_gives_an_answer(limit: str) -> None:
    began = time.monotonic()
    result = run("--time-limit", limit)
    assert time.monotonic() - began < 20
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [["--expect", "cards=8"], ["--expect", "gpus"], ["--time-limit", "soon"]]
)
def test_what_cannot_be_understood_is_a_usage_error(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_a_baseline_that_is_no_report_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no.json"
    path.write_text("{}")
    result = run("--baseline", str(path))
    assert result.returncode == 3
    assert "no.json" in result.stderr

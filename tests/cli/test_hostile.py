"""Whatever is typed, closed, full or missing: one clear line, the right exit code, and never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from distdoctor.report.codec import encode
from report.builders import slow_gpu
from warm_command import run_command

END_S = 30


def distdoctor(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, environ=env, limit_s=END_S)


def shell(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command line with the redirections of a shell; `$D` is distdoctor."""
    return subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "D": f"{sys.executable} -m distdoctor", **variables},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )


def assert_told(done: subprocess.CompletedProcess[str], code: int, words: str) -> None:
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "a bug in distdoctor" not in done.stderr


@pytest.fixture
def report_file(tmp_path: Path) -> str:
    (tmp_path / "r.json").write_bytes(encode(slow_gpu()))
    return str(tmp_path / "r.json")


# --- options ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("env", "--no-torch", "--timeout", "99999999999999h"), "longer than 30 days"),
        (("checkup", "--time-limit", "1e9"), "no duration"),
        (("env", "--pid", "abc"), "not a process id"),
        (("env", "--pid", "١"), "not a process id"),
        (("env", "--pid", "99999999999999999999"), "not a process id"),
        (("env", "--launch", "100000"), "not in the range"),
        (("checkup", "--expect", ""), "--expect is empty"),
        (("checkup", "--expect", ",,"), "--expect is empty"),
        (("checkup", "--expect", "gpus=-1"), "wants a number"),
        (("checkup", "--expect", "gpus=nan"), "wants a number"),
        (("checkup", "--expect", "gpus=8,gpus=9"), "names `gpus` twice"),
        (("checkup", "--site", "/dev/zero"), "cannot read site file"),
        (("checkup", "--site", "/"), "cannot read site file"),
    ],
)
def test_a_nonsense_option_is_a_usage_error(arguments: tuple[str, ...], words: str) -> None:
    assert_told(distdoctor(*arguments), 2, words)


@pytest.mark.parametrize(
    "arguments",
    [("env", "--bogus"), ("nosuch",), ("env", "--timeout", "x"), ("report", "show"), ("env", "--pid", "x")],
)
def test_a_usage_error_is_json_when_json_is_asked_for(arguments: tuple[str, ...]) -> None:
    done = distdoctor(*arguments, "--format", "json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["verdict"]["status"] == "unknown"


# --- files named beside the evidence ---


def test_a_device_is_no_key_baseline_or_report(report_file: str) -> None:
    assert_told(distdoctor("report", "redact", report_file, "--redact-key", "/dev/zero"), 2, "device")
    assert_told(distdoctor("checkup", "--baseline", "/dev/zero"), 3, "device")
    assert_told(distdoctor("report", "show", "/dev/zero"), 3, "device")


def test_a_pipe_that_nobody_writes_to_holds_nothing_up(report_file: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    fifo = str(tmp_path / "fifo")
    assert_told(distdoctor("report", "show", fifo), 3, "is empty")
    assert_told(distdoctor("report", "redact", report_file, "--redact-key", fifo), 2, "0 bytes")
    assert_told(distdoctor("checkup", "--baseline", fifo), 3, "is empty")


def test_a_pipe_with_a_writer_is_read(report_file: str) -> None:
    done = shell(f"$D report show <(sleep 0.3; cat {report_file}) --one-line")
    assert done.returncode == 11, done.stderr


# --- outputs ---


def test_a_file_in_the_way_of_a_folder(report_file: str) -> None:
    assert_told(distdoctor("report", "show", report_file, "-o", f"{report_file}/"), 2, "in the way")


def test_a_name_that_is_too_long(report_file: str, tmp_path: Path) -> None:
    assert_told(
        distdoctor("report", "show", report_file, "-o", f"{tmp_path}/{'x' * 300}.json"), 2, "too long"
    )
    assert_told(distdoctor("report", "show", report_file, "-o", f"{tmp_path}/{'x' * 300}/"), 2, "too long")


def test_one_file_by_two_names(report_file: str, tmp_path: Path) -> None:
    names = (f"{tmp_path}/a.json", f"{tmp_path}/../{tmp_path.name}/a.json")
    done = distdoctor("report", "show", report_file, "-o", names[0], "-o", names[1])
    assert_told(done, 2, "two outputs have the same name")


# --- streams ---


def test_a_full_or_vanished_stderr_does_not_cost_the_report(report_file: str) -> None:
    for where in ("/dev/full", ">(true)"):
        done = shell(
            f"$D report show {report_file} -o $T/x.json --force 2> {where}", T=str(Path(report_file).parent)
        )
        assert done.returncode == 11
        assert "rank 19" in done.stdout


@pytest.mark.parametrize("arguments", ["--version", "", "env --help", "env --bogus --format json"])
def test_a_full_stdout_is_one_line(arguments: str) -> None:
    done = shell(f"$D {arguments} > /dev/full")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "a bug in distdoctor" not in done.stderr


def test_a_closed_stdin_is_one_line() -> None:
    assert_told(shell("$D report show - <&-"), 3, "standard input is closed")


# --- children ---


def test_no_child_is_left_behind(tmp_path: Path) -> None:
    python, mark = tmp_path / "python", tmp_path / "pid"
    python.write_text(f"#!/bin/sh\necho $$ > {mark}\nexec sleep 600\n")
    python.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "distdoctor", "env", "--python", str(python)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + END_S
    while not (mark.exists() and mark.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(END_S) == 128 + signal.SIGTERM
    time.sleep(0.2)
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()


def test_a_python_that_hangs_is_never_ok(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 600\n")
    python.chmod(0o755)
    done = distdoctor("env", "--python", str(python), "--timeout", "1s", "--format", "json")
    verdict = json.loads(done.stdout)["verdict"]
    # One second is too short to convict it, and enough not to call it healthy.
    assert verdict["status"] in ("unknown", "critical", "warning")


# --- evidence ---


def folder_of(tmp_path: Path, **files: bytes) -> str:
    (tmp_path / "in").mkdir()
    for name, data in files.items():
        (tmp_path / "in" / name).write_bytes(data)
    return str(tmp_path / "in")


@pytest.mark.parametrize("command", ["explain", "compare", "merge"])
def test_a_broken_report_among_good_ones_is_named_and_costs_no_other(command: str, tmp_path: Path) -> None:
    good = encode(slow_gpu())
    folder = folder_of(tmp_path, good=good, broken=good[: len(good) // 2])
    files = (f"{folder}/good", f"{folder}/broken")
    done = distdoctor(*(("report", "merge") if command == "merge" else (command,)), *files)
    assert done.returncode == 11, done.stderr
    assert "rank 19" in done.stdout
    assert "broken" in done.stdout


def test_junk_beside_a_healthy_text_is_no_clean_bill(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=b"NCCL_DEBUG=WARN\n", junk=bytes(range(256)) * 40)
    for command in ("explain", "env"):
        done = distdoctor(command, folder, "--format", "json")
        assert done.returncode == 3
        verdict = json.loads(done.stdout)["verdict"]
        assert verdict["title"] == "cannot tell: 1 of 2 inputs could not be read"
        assert "junk" in verdict["summary"]


def test_one_side_alone_is_not_compared(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=b"NCCL_DEBUG=WARN\n", junk=b"\x00\x01\x02" * 900)
    assert_told(distdoctor("compare", f"{folder}/a", f"{folder}/junk"), 3, "fewer than two hosts to compare")


@pytest.mark.parametrize(
    "line",
    ["\n", "x\n", "x\r", "NCCL_FOO=1\n", "=" * 16_000 + "\n", "[" * 16_000 + ",\n", " " * 9000 + ",[\n"],
)
def test_no_text_takes_longer_than_its_size(line: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("NCCL_DEBUG=WARN\n" + line * min(150_000, 2_000_000 // len(line)))
    began = time.monotonic()
    done = distdoctor("explain", str(path), "--format", "json")
    # Some 2 s; what is not linear takes 17 s and more.
    assert time.monotonic() - began < END_S / 4
    assert done.returncode in (0, 3)
    assert json.loads(done.stdout)["inputs"]


def test_a_pipe_that_never_ends_is_left() -> None:
    done = shell("$D explain - < /dev/zero")
    assert_told(done, 3, "no kind that is known")


def test_variables_with_a_digit_in_their_name_are_known(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, a=b"export NCCL_P2P_DISABLE=1\n")
    assert "NCCL_P2P_DISABLE" in distdoctor("explain", f"{folder}/a", "-v").stdout


def test_what_looks_like_a_path_is_taken_for_a_file() -> None:
    assert_told(distdoctor("/no/such"), 3, "`/no/such` is not there")
    assert_told(distdoctor("explain", "x" * 5000), 3, "too long")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_what_may_not_be_looked_at_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    assert_told(distdoctor("explain", f"{tmp_path}/closed/x"), 3, "Permission denied")
    assert_told(distdoctor("env", f"{tmp_path}/closed"), 3, "cannot list folder")
    assert_told(distdoctor("env", "--no-torch", "-o", f"{tmp_path}/closed/x/"), 2, "Permission denied")
    assert_told(distdoctor("env", "--no-torch", "-o", f"{tmp_path}/closed/x.json"), 2, "Permission denied")


def test_what_the_system_says_of_a_file_is_no_secret(report_file: str) -> None:
    assert_told(
        distdoctor("report", "redact", report_file, "--redact-key", "/no/secret.txt"), 2, "No such file"
    )


def test_without_a_thread_to_spare_there_is_a_report(tmp_path: Path) -> None:
    script = (
        "import sys, threading\n"
        'def start(self): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = start\n"
        "sys.argv = ['distdoctor', *sys.argv[1:]]\n"
        "from distdoctor.__main__ import main\n"
        "main()\n"
    )
    for arguments in (("checkup",), ("env", "--no-torch")):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments, "--format", "json"],
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
        told = json.loads(done.stdout)
        assert "a bug in distdoctor" not in done.stdout + done.stderr
        assert any("no further thread" in each["reason"] for each in told["skipped"])
        assert any(each["id"].startswith("memlock") or each["state"] == "passed" for each in told["checks"])


@pytest.mark.parametrize("command", [("env", "--no-torch"), ("checkup", "--expect", "gpu_type=H100")])
def test_stderr_names_no_host_that_is_redacted(command: tuple[str, ...]) -> None:
    environ = {
        **os.environ,
        "MASTER_ADDR": "node-17.corp.invalid",
        "MASTER_PORT": "1",
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    done = distdoctor(*command, "--redact", env=environ)
    assert "node-17" not in done.stderr + done.stdout

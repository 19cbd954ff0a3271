"""`compare` and `explain` as commands, on reports and on pasted text."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from warm_command import run_command

XID = "[52034.118223] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"

DUMP = """## {host}
Collecting environment information...
PyTorch version: {torch}
Is debug build: False
CUDA used to build PyTorch: 12.8
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.5 LTS (x86_64)
Python version: 3.12.3 (64-bit runtime)
Is CUDA available: True
GPU models and configuration:
GPU 0: NVIDIA H100 80GB HBM3
GPU 1: NVIDIA H100 80GB HBM3

Nvidia driver version: 570.86.15
cuDNN version: Could not collect

Versions of relevant libraries:
[pip3] torch=={torch}
[conda] Could not collect
"""


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return run_command(*arguments, stdin=stdin)


def report(path: Path, host: str, **facts: object) -> str:
    rows = [{"key": key.replace("__", "."), "value": value} for key, value in facts.items()]
    told = {
        "tool": {"name": "distdoctor", "version": "0.1.0", "command": "env"},
        "verdict": {"status": "ok", "title": "no fault found", "summary": ""},
        "subject": {"hosts": [host]},
        "schema_version": 1,
        "facts": rows,
    }
    path.write_text(json.dumps(told))
    return str(path)


def test_two_hosts_the_version_before_the_kernel(tmp_path: Path) -> None:
    a = report(
        tmp_path / "a.json",
        "host-a",
        torch__version="2.9.1",
        host__kernel="5.15",
        gpus__driver_version="570.86.15",
    )
    b = report(
        tmp_path / "b.json",
        "host-b",
        torch__version="2.8.0",
        host__kernel="6.8",
        gpus__driver_version="535.54.03",
    )
    told = json.loads(run("compare", a, b, "--format", "json").stdout)
    assert [each["title"] for each in told["findings"]] == [
        "PyTorch version differs",
        "NVIDIA driver differs",
    ]
    assert told["verdict"]["title"] == "PyTorch version differs"


def test_of_five_reports_the_one_that_differs_is_named(tmp_path: Path) -> None:
    files = [
        report(tmp_path / f"{name}.json", f"host-{name}", gpus__num_pci_gpus=7 if name == "d" else 8)
        for name in "abcde"
    ]
    told = json.loads(run("compare", *files, "--format", "json").stdout)
    assert told["findings"][0]["scope"]["hosts"] == ["host-d"]
    assert told["verdict"]["status"] == "critical"


def test_equal_reports_say_so(tmp_path: Path) -> None:
    files = [report(tmp_path / f"{name}.json", f"host-{name}", torch__version="2.9.1") for name in "ab"]
    result = run("compare", *files)
    assert result.returncode == 0
    assert "no difference" in result.stdout


def test_two_hosts_in_one_pasted_file_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "dumps.txt"
    path.write_text(
        DUMP.format(host="node-a", torch="2.9.1+cu128")
        + "\n"
        + DUMP.format(host="node-b", torch="2.7.1+cu128")
    )
    told = json.loads(run("compare", str(path), "--format", "json").stdout)
    assert told["verdict"]["title"] == "PyTorch version differs"
    assert {"node-a: 2.9.1+cu128", "node-b: 2.7.1+cu128"} <= {
        each["text"] for each in told["findings"][0]["evidence"]
    }


def test_one_host_cannot_be_compared(tmp_path: Path) -> None:
    result = run("compare", report(tmp_path / "a.json", "host-a"))
    assert result.returncode == 2
    assert "nothing to compare" in result.stderr


@pytest.mark.parametrize("word", [[], ["explain"], ["env"]])
def test_a_pasted_kernel_line_is_explained_by_any_way_in(tmp_path: Path, word: list[str]) -> None:
    path = tmp_path / "ticket.txt"
    path.write_text(XID)
    result = run(*word, str(path), "--format", "json")
    told = json.loads(result.stdout)
    assert told["findings"][0]["id"] == "kernel-xid"
    assert told["inputs"][0]["sha256"]
    assert result.returncode == 11


def test_standard_input_is_explained() -> None:
    result = run("explain", "-", stdin=XID)
    assert result.returncode == 11
    assert "standard input" in result.stdout


def test_what_is_not_known_is_named_beside_what_is(tmp_path: Path) -> None:
    (tmp_path / "dmesg.txt").write_text(XID)
    (tmp_path / "recipe.txt").write_text("two eggs and a spoon of flour\n")
    told = json.loads(run("explain", str(tmp_path), "--format", "json").stdout)
    unread = [each for each in told["inputs"] if not each.get("read", True)]
    assert len(unread) == 1
    assert "two eggs" in unread[0]["why_not"]


@pytest.mark.parametrize("content", [b"", b"\0\1\2\3" * 99, b"two eggs and a spoon of flour"])
def test_a_file_that_nobody_knows_is_one_line_and_not_ok(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "what.bin"
    path.write_bytes(content)
    result = run("explain", str(path))
    assert result.returncode == 3
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


BANDWIDTH_TABLE = """\
# nThread 1 nGpus 8 minBytes 268435456 maxBytes 536870912 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
   268435456      67108864     float     sum      -1   {a:.1f}  {x:.2f}  {y:.2f}      0   {a:.1f}  {x:.2f}  {y:.2f}      0
   536870912     134217728     float     sum      -1   {b:.1f}  {x:.2f}  {y:.2f}      0   {b:.1f}  {x:.2f}  {y:.2f}      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {y:.2f}
"""


def bandwidth_table(algbw_gbps: float) -> str:
    return BANDWIDTH_TABLE.format(
        a=268435456 / algbw_gbps / 1e3, b=536870912 / algbw_gbps / 1e3, x=algbw_gbps, y=algbw_gbps * 1.75
    )


def test_compare_tells_which_of_two_bandwidth_tables_is_slower(tmp_path: Path) -> None:
    (tmp_path / "before.txt").write_text(bandwidth_table(270))
    (tmp_path / "after.txt").write_text(bandwidth_table(130))
    result = run("compare", str(tmp_path / "before.txt"), str(tmp_path / "after.txt"))
    assert "all_reduce is 52% slower than in the baseline" in result.stdout
    same = run("compare", str(tmp_path / "before.txt"), str(tmp_path / "before.txt"))
    assert same.stdout.startswith("ok")

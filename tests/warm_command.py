"""The command line in a process forked from a warm one: it does what a new one does, and imports nothing first.

For tests of what a command reads, prints and ends with. Those of closed streams, signals, launchers or imports start
an interpreter of their own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from distdoctor.__main__ import main, run
from forkpool import ForkPool

# What the commands import when they run, imported once.
_WARMING = (
    ("oom", "fit", "--model", "llama3-8b", "--on", "8xa100-40gb", "--no-simulate"),
    ("oom", "estimate", "--model", "llama3-8b", "--on", "8xa100-40gb"),
    ("oom", "explain", "/nowhere.log"),
    ("nccl-bench", "/nowhere.txt"),
    ("checkup",),
)


def run_command(
    *arguments: str,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    stdin: str = "",
    limit_s: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run `distdoctor ARGUMENTS` in this environment (or `environ`)."""
    with TemporaryDirectory() as folder, ForkPool(torch=False, scenarios=Path(__file__)) as pool:
        args = {
            "arguments": arguments,
            "cwd": str(cwd or Path.cwd()),
            "environ": dict(os.environ if environ is None else environ),
            "folder": folder,
        }
        Path(folder, "stdin").write_text(stdin)
        (outcome,) = pool.run("command", world_size=1, args=args, limit_s=limit_s)
        stdout, stderr = (Path(folder, name).read_text() for name in ("stdout", "stderr"))
    if outcome.ending == "hung":
        raise subprocess.TimeoutExpired(["distdoctor", *arguments], limit_s, stdout, stderr)
    assert outcome.ending == "returned", outcome
    return subprocess.CompletedProcess(["distdoctor", *arguments], outcome.value, stdout, stderr)


# --- in the forked process ---


def command(
    _rank: int, _world_size: int, arguments: list[str], cwd: str, environ: dict[str, str], folder: str
) -> int:
    """Run the command line with its streams in files; its exit code."""
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(cwd)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(os.open(f"{folder}/{name}", os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - the warm process has used its own up
    sys.argv = ["distdoctor", *arguments]
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "forked_warm_command":
    with (
        Path(os.devnull).open("w") as _nowhere,
        contextlib.redirect_stdout(_nowhere),
        contextlib.redirect_stderr(_nowhere),
    ):
        for _arguments in _WARMING:
            run(_arguments)

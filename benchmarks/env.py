"""How long do `distdoctor` commands take beside what a user would run instead?

    python benchmarks/env.py [--repeats N]

All commands are run in turns (interleaved), so that a change of the machine's load meets all of them. Wall clock and
CPU seconds (user + system, children included) are medians with minimum and maximum; ratios are of medians. The A/A
row runs one command as two separate entries: a difference smaller than theirs is noise, and no claim is made.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

DISTDOCTOR = [sys.executable, "-m", "distdoctor"]


@dataclass
class Entry:
    """One command and its samples."""

    name: str
    argv: list[str]
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    """Seconds until the first byte on stdout or stderr."""
    returncode: int | None = None


def entries() -> list[Entry]:
    """What is measured; peers only where they are installed."""
    found = [
        Entry("python -c pass", [sys.executable, "-c", "pass"]),
        Entry("distdoctor --help", [*DISTDOCTOR, "--help"]),
        Entry("distdoctor env --help", [*DISTDOCTOR, "env", "--help"]),
        Entry("distdoctor checkup", [*DISTDOCTOR, "checkup"]),
        Entry("distdoctor env --no-torch", [*DISTDOCTOR, "env", "--no-torch"]),
        Entry("distdoctor env", [*DISTDOCTOR, "env"]),
        Entry("distdoctor env (A/A)", [*DISTDOCTOR, "env"]),
    ]
    if importlib.util.find_spec("torch"):
        found.append(Entry("import torch", [sys.executable, "-c", "import torch"]))
        found.append(Entry("torch collect_env", [sys.executable, "-m", "torch.utils.collect_env"]))
    if importlib.util.find_spec("accelerate"):
        found.append(
            Entry("accelerate env", [sys.executable, "-m", "accelerate.commands.accelerate_cli", "env"])
        )
    return found


def run_once(entry: Entry) -> None:
    """Run a command once and keep its times."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            entry.argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, stdin=subprocess.DEVNULL
        )
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 1)
        entry.first_s.append(time.monotonic() - began)
        while os.read(process.stdout.fileno(), 1 << 16):
            pass
        entry.returncode = process.wait()
    entry.wall_s.append(time.monotonic() - began)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    entry.cpu_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def line(entry: Entry, reference: Entry | None) -> str:
    """One row of the table."""
    wall, cpu = statistics.median(entry.wall_s), statistics.median(entry.cpu_s)
    ratio = f"{wall / statistics.median(reference.wall_s):6.2f}" if reference else "     -"
    return (
        f"{entry.name:28s} {wall:6.2f} ({min(entry.wall_s):5.2f}-{max(entry.wall_s):5.2f})"
        f" {cpu:6.2f} ({min(entry.cpu_s):5.2f}-{max(entry.cpu_s):5.2f})"
        f" {statistics.median(entry.first_s):6.2f}  {ratio}  rc={entry.returncode}"
    )


def main() -> None:
    """Measure and print a table; the last line is JSON for docs/measurements/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    measured = entries()
    for entry in measured:
        run_once(entry)  # warm the page cache and compiled files; not kept
        entry.wall_s.clear(), entry.cpu_s.clear(), entry.first_s.clear()
    for _ in range(repeats):
        for entry in measured:
            run_once(entry)
    reference = next((entry for entry in measured if entry.name == "torch collect_env"), None)
    print(
        f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs, {repeats} repeats"
    )
    print(
        f"load {os.getloadavg()[0]:.1f}; seconds, median (min-max); ratio of wall medians to torch collect_env"
    )
    print(f"{'command':28s} {'wall':>6s} {'':13s} {'CPU':>6s} {'':13s} {'first':>6s}  {'ratio':>6s}")
    for entry in measured:
        print(line(entry, reference))
    print(json.dumps({entry.name: {"wall_s": entry.wall_s, "cpu_s": entry.cpu_s} for entry in measured}))


if __name__ == "__main__":
    main()

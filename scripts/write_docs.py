"""Writes the pages that are made from the code: the index of checks and the command reference.

    python scripts/write_docs.py

tests/test_docs.py fails when they are not current.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKS = ROOT / "docs" / "checks"
INDEX = CHECKS / "README.md"
REFERENCE = ROOT / "docs" / "cli.md"

COMMANDS = (
    ("checkup",),
    ("env",),
    ("nccl-bench",),
    ("oom",),
    ("oom", "estimate"),
    ("oom", "simulate"),
    ("oom", "reproduce"),
    ("oom", "explain"),
    ("oom", "config"),
    ("oom", "fit"),
    ("straggler",),
    ("straggler", "analyze"),
    ("straggler", "pack"),
    ("explain",),
    ("compare",),
    ("report",),
    ("report", "show"),
    ("report", "merge"),
    ("report", "redact"),
)


def check_index() -> str:
    """docs/checks/README.md: one line a check, in the order of reports."""
    from distdoctor.env.checks.all import ENV_CHECKS
    from distdoctor.env.checks.job import JOB_CHECKS
    from distdoctor.nccl_bench.checks.all import BENCH_CHECKS
    from distdoctor.oom.checks.all import OOM_CHECK_IDS
    from distdoctor.oom.checks.config.all import CONFIG_CHECKS
    from distdoctor.oom.checks.estimate.all import ESTIMATE_CHECKS
    from distdoctor.oom.checks.explain.all import EXPLAIN_CHECKS
    from distdoctor.oom.checks.fit.all import FIT_CHECKS
    from distdoctor.oom.checks.reproduce.all import REPRODUCE_CHECKS
    from distdoctor.oom.checks.simulate.all import SIMULATION_CHECKS
    from distdoctor.oom.checks.snapshot.all import SNAPSHOT_CHECKS
    from distdoctor.oom.explain.changes import ID as CHANGED_ID
    from distdoctor.straggler.checks.all import STRAGGLER_CHECKS

    lines = [
        "# Checks",
        "",
        "Made by `python scripts/write_docs.py` from the tuples of checks and their pages.",
        "",
        "## Of a host and process",
        "",
        "`checkup` runs those marked ✓; `env` runs all.",
        "",
        "| id | looks at | checkup |",
        "|---|---|---|",
    ]
    lines += [
        f"| [{each.id}]({each.id}.md) | {each.title} | {'✓' if each.preflight else ''} |"
        for each in ENV_CHECKS
    ]
    lines += ["", "## Across ranks and hosts", "", "| id | looks at |", "|---|---|"]
    lines += [f"| [{each.id}]({each.id}.md) | {each.title} |" for each in JOB_CHECKS]
    lines += ["", "## Of bandwidths and NCCL's log", "", "`nccl-bench` runs all.", ""]
    lines += ["| id | looks at |", "|---|---|"]
    lines += [f"| [{each.id}]({each.id}.md) | {each.title} |" for each in BENCH_CHECKS]
    for title, checks in (
        ("estimates", ESTIMATE_CHECKS),
        ("simulations", SIMULATION_CHECKS),
        ("reproductions", REPRODUCE_CHECKS),
        ("searches for what fits", FIT_CHECKS),
        ("launch configurations", CONFIG_CHECKS),
        ("out-of-memory messages", EXPLAIN_CHECKS),
        ("memory snapshots", SNAPSHOT_CHECKS),
        ("timing of ranks", STRAGGLER_CHECKS),
    ):
        lines += ["", f"## Of {title}", "", "| id | looks at |", "|---|---|"]
        lines += [f"| [{each.id}]({each.id}.md) | {each.title} |" for each in checks]
    of_tuples = (*ENV_CHECKS, *JOB_CHECKS, *BENCH_CHECKS, *STRAGGLER_CHECKS)
    listed = {each.id for each in of_tuples} | set(OOM_CHECK_IDS)
    lines += ["", "## Of commands", "", "| id | looks at |", "|---|---|"]
    listed.discard(CHANGED_ID)
    for page in sorted(CHECKS.glob("*.md")):
        if page.stem not in listed and page != INDEX:
            lines.append(f"| [{page.stem}]({page.name}) | {looks_at(page.read_text())} |")
    return "\n".join(lines) + "\n"


def looks_at(page: str) -> str:
    """The "looks at" cell of a check's page."""
    match = re.search(r"^\| looks at \| (.*) \|$", page, re.MULTILINE)
    return match[1] if match else ""


def command_reference() -> str:
    """docs/cli.md: `--help` of every command, verbatim."""
    parts = ["# Commands", "", "Made by `python scripts/write_docs.py` from `--help`.", ""]
    for words in COMMANDS:
        parts += [f"## distdoctor {' '.join(words)}", "", "```text", help_of(words), "```", ""]
    return "\n".join(parts)


def help_of(words: tuple[str, ...]) -> str:
    """What a command's `--help` prints at 100 columns."""
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "SLURM_PROCID")}
    result = subprocess.run(
        [sys.executable, "-m", "distdoctor", *words, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"},
    )
    return result.stdout.strip()


def main() -> None:
    """Write both pages."""
    INDEX.write_text(check_index())
    REFERENCE.write_text(command_reference())


if __name__ == "__main__":
    main()

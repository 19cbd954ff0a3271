#!/usr/bin/env python3
"""Lets a rank run out of memory in a known phase, and asks `oom explain` what its snapshot says: `check_oom_limit.py OUT`.

Three times `oom reproduce` trains one rank below what it needs, so that memory ends in forward, in backward and in the
optimizer's step. Its own count is the truth that the reading of the allocator's snapshot is held against. Without a
GPU the limit is distdoctor's own and so is what the rank leaves: a rehearsal, and the output says so.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NOT_ON_GPU = "not checked on a GPU"
OUT_OF_MEMORY = 11
# A rank takes some 10 s on a GPU, half of it imports; its snapshot is written with the stacks of all allocations.
REPRODUCE_TIMEOUT_S = 45
EXPLAIN_TIMEOUT_S = 30

_AT = re.compile(r"step \d+, ([a-z ]+?)(?:,| \(|$)")
_PART = re.compile(r"([a-z][a-z -]*) ([\d.]+) (B|KiB|MiB|GiB)")
_ASKED = re.compile(r"^asked by .*\(([^()]+)\)$")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

# What a snapshot may call an allocation of each phase: it has stacks, and no phases.
SAID_OF_PHASE = {
    "forward": {"activations", "attention", "logits and loss"},
    "loss": {"logits and loss", "activations"},
    "backward": {"backward", "gradients", "recomputed activations", "no stack (mostly backward)"},
    "optimizer step": {"optimizer state", "optimizer step"},
}
# What a snapshot may call each category of the tracker. Parameters of our own program have no stack that tells.
SAID_OF_CATEGORY = {
    "parameters": {"parameters", "unknown"},
    "gradients": {"gradients", "backward", "no stack (mostly backward)"},
    "optimizer states": {"optimizer state"},
    "activations": {"activations", "attention", "logits and loss"},
    "logits and loss": {"logits and loss", "activations", "backward", "no stack (mostly backward)"},
    "temporaries": {"optimizer step", "backward", "no stack (mostly backward)", "activations"},
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job and a limit below what it needs in one phase."""

    phase: str
    limit: str
    words: tuple[str, ...]


# By `oom simulate` with so much memory, llama3.2-1b on one rank ends in these phases of step 1: at 62 MiB for an activation,
# at the 7.8 GiB of the loss' gradient, and at 64 MiB for a state of Adam.
ON_GPU = (
    Case(phase="forward", limit="20GiB", words=("--model", "llama3.2-1b", "--seq-len", "2048", "--micro-batch", "8")),
    Case(phase="backward", limit="58GiB", words=("--model", "llama3.2-1b", "--seq-len", "2048", "--micro-batch", "8")),
    Case(phase="optimizer step", limit="18GiB", words=("--model", "llama3.2-1b", "--seq-len", "512")),
)  # fmt: skip
ON_CPU = (
    Case(phase="forward", limit="60MiB", words=("--model", "tiny", "--micro-batch", "32")),
    Case(phase="optimizer step", limit="40MiB", words=("--model", "tiny")),
)


@dataclass(kw_only=True)
class Told:
    """What one reading says: where memory ended, and what held it (bytes by category)."""

    phase: str = ""
    by_category: dict[str, float] = field(default_factory=dict)


def main() -> int:
    """Run all cases; 0 when every reading agrees."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    on_gpu = _has_gpu()
    if not on_gpu:
        print(
            f"{NOT_ON_GPU}: a rehearsal with distdoctor's own limit, and its own log in place of a snapshot"
        )
    complaints = 0
    for case in ON_GPU if on_gpu else ON_CPU:
        found = check(case, options.out / case.phase.replace(" ", "-"))
        complaints += len(found)
        print("\n".join(f"  NOT AS EXPECTED: {each}" for each in found) or "  as expected")
    return 1 if complaints else 0


def check(case: Case, folder: Path) -> list[str]:
    """Run out of memory, read what was left, and say what is not as it should be."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("oom-rank*"):
        old.unlink()
    print(f"{case.phase}: {' '.join(case.words)} with {case.limit}")
    report = folder / "reproduce.json"
    rc = _distdoctor(
        "oom", "reproduce", *case.words, "--strategy", "single", "--memory-limit", case.limit, "--timeout", "30",
        "--time-limit", "40", "--snapshot", str(folder), "-o", str(report), "--force",
        limit_s=REPRODUCE_TIMEOUT_S, log=folder / "reproduce.txt",
    )  # fmt: skip
    if rc != OUT_OF_MEMORY:
        return [
            f"`oom reproduce` ended with {rc}, not with {OUT_OF_MEMORY}: {_last_line(folder / 'reproduce.txt')}"
        ]
    counted = reproduced(json.loads(report.read_text()))
    print(f"  counted:   {words(counted)}")
    complaints = (
        [] if counted.phase == case.phase else [f"memory ended in {counted.phase!r}, not in {case.phase!r}"]
    )
    left = sorted(folder.glob("oom-rank*"))
    if not left:
        return [*complaints, "no snapshot was left"]
    print(f"  left:      {left[0].name}, {left[0].stat().st_size:,} bytes")
    if left[0].name.endswith(".json.gz"):
        read = of_own_log(left[0])
        print(f"  own log:   {words(read)}")
        return complaints + differences(counted, read, lambda name: {name}, lambda phase: {phase})
    report = folder / "explain.json"
    rc = _distdoctor(
        "oom", "explain", str(left[0]), "-o", str(report), "--force",
        limit_s=EXPLAIN_TIMEOUT_S, log=folder / "explain.txt",
    )  # fmt: skip
    if not report.is_file():
        return [
            *complaints,
            f"`oom explain` ended with {rc} and no report: {_last_line(folder / 'explain.txt')}",
        ]
    read = explained(json.loads(report.read_text()))
    print(f"  explained: {words(read)} (exit code {rc})")
    return complaints + differences(
        counted,
        read,
        lambda name: SAID_OF_CATEGORY.get(name, {name}),
        lambda phase: SAID_OF_PHASE.get(phase, {phase}),
    )


def reproduced(report: dict[str, Any]) -> Told:
    """From the report of `oom reproduce`: where its program was, and the live tensors that it counted."""
    for finding in report["findings"]:
        if finding["id"] == "oom-reproduced-out-of-memory":
            texts = [each["text"] for each in finding["evidence"]]
            at = next((match for text in texts if (match := _AT.search(text))), None)
            live = next((text.partition("were live: ")[2] for text in texts if "were live: " in text), "")
            return Told(phase=at.group(1) if at else "", by_category=_parts(live))
    return Told()


def explained(report: dict[str, Any]) -> Told:
    """From the report of `oom explain` on a snapshot: what the failed request was for, and what was in use."""
    texts = [each["text"] for finding in report["findings"] for each in finding.get("evidence", ())]
    asked = next((match.group(1) for text in texts if (match := _ASKED.match(text))), "")
    in_use: Counter[str] = Counter()
    for table in report.get("tables", ()):
        if table["name"] == "oom-live-by-category":
            for _, category, amount, *_ in table["rows"]:
                in_use[category] += amount
    return Told(phase=asked, by_category=dict(in_use))


def of_own_log(path: Path) -> Told:
    """From the log that a rank on the CPU leaves: its last event, and what is live at the end."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        log = json.load(stream)
    sizes = {storage: num_bytes for storage, num_bytes, _ in log["events"]}
    by_category: Counter[str] = Counter()
    for storage, num_bytes in sizes.items():
        by_category[log["storages"][storage]["category"]] += num_bytes
    return Told(phase=log["places"][log["events"][-1][2]]["phase"], by_category=dict(by_category))


def differences(counted: Told, read: Told, names_of: Any, phases_of: Any) -> list[str]:
    """Where a reading does not say what was counted: the phase, and the category that held most."""
    found = []
    if read.phase not in phases_of(counted.phase):
        found.append(f"memory ended in {counted.phase!r}; the reading says {read.phase or 'nothing'!r}")
    if not counted.by_category or not read.by_category:
        return [*found, "no categories"]
    largest = max(counted.by_category, key=lambda name: counted.by_category[name])
    share = counted.by_category[largest] / sum(counted.by_category.values())
    told = sum(read.by_category.get(name, 0) for name in names_of(largest)) / sum(read.by_category.values())
    # Names of stacks and of tensors draw their lines elsewhere: half of the largest part has to be found again.
    if told < share / 2:
        found.append(f"{largest} held {share:.0%}; the reading finds {told:.0%} of such")
    return found


def words(told: Told) -> str:
    """One line."""
    whole = sum(told.by_category.values()) or 1
    largest = sorted(told.by_category.items(), key=lambda each: -each[1])[:5]
    return f"{told.phase or 'no phase'}; " + ", ".join(f"{name} {part / whole:.0%}" for name, part in largest)


def _parts(text: str) -> dict[str, float]:
    """`parameters 16.3 MiB, gradients 16.3 MiB` in bytes."""
    return {name: float(amount) * _UNITS[unit] for name, amount, unit in _PART.findall(text)}


def _distdoctor(*arguments: str, limit_s: float, log: Path) -> int | str:
    """Run a command of ours; its exit code, or why there is none."""
    with log.open("w", encoding="utf-8") as stream:
        try:
            return subprocess.run(
                [sys.executable, "-m", "distdoctor", *arguments, "--format", "text"],
                stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=limit_s,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"nothing after {limit_s:g} s"


def _last_line(file: Path) -> str:
    """What a command said last."""
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")[:300]


def _has_gpu() -> bool:
    """Asked of a child: this process stays without a CUDA context."""
    code = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 3)"
    try:
        return subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True).returncode == 0
    except subprocess.TimeoutExpired:
        return False


if __name__ == "__main__":
    sys.exit(main())

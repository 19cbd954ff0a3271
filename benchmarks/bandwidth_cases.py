"""How well are bandwidth tables and NCCL logs judged? A scoreboard over texts whose right answer is known.

Two folders with an index.json each. Tables tell their `state` (healthy…, slow…, DATA CORRUPTION, hang): a healthy one
must get no finding above info, the others one of warning or above by a check of their kind. Logs tell a `rule`
(… -> OK, INFO, WARN or CRITICAL) and a diagnosis.

    python benchmarks/bandwidth_cases.py [--cases FOLDER] [--verbose]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from distdoctor.nccl_bench.from_files import report_of_files
from distdoctor.report.model import Finding, Severity
from distdoctor.report.request import ReportRequest

LOUD = (Severity.WARNING, Severity.CRITICAL)

# Words of an entry → ids, or beginnings of ids, of the checks that tell this. The first row that matches counts.
TABLE_CAUSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"corruption", ("bench-wrong-data",)),
    (r"hang|truncated", ("bench-cut-off",)),
    (r"slow|unhealthy", ("bench-",)),
)
LOG_CAUSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"libibverbs|network==Socket", ("nccl-log-socket",)),
    (r"GPU Direct RDMA Disabled", ("nccl-log-no-gdr",)),
    (r"via SHM", ("nccl-log-shm",)),
    (r"0 nvls channels|nvls channels\b.*WARN", ("nccl-log-nvls", "nccl-log-overrides")),
    (r"set by environment", ("nccl-log-overrides", "nccl-log-nics")),
    (r"br-\||veth|docker", ("nccl-log-interfaces", "nccl-log-socket")),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One text: must it be found, and by which checks?"""

    path: Path
    is_loud: bool
    checks: tuple[str, ...]
    why: str


def table_cases(folder: Path) -> list[Case]:
    """Topology limits and old stacks are no faults: their answer says so."""
    cases = []
    for entry in json.loads((folder / "index.json").read_text()):
        state, answer = entry["state"].lower(), entry["real_answer"].lower()
        no_fault = "not fault" in answer or "later stacks" in answer
        loud = not state.startswith("healthy") and not no_fault
        checks = next((ids for words, ids in TABLE_CAUSES if re.search(words, state)), ())
        cases.append(
            Case(folder / entry["file"], loud, checks, f"{entry['state']}: {entry['real_answer'][:60]}")
        )
    return cases


def log_cases(folder: Path) -> list[Case]:
    """What a rule calls OK, or INFO on the hardware of its log, must stay quiet."""
    cases = []
    for entry in json.loads((folder / "index.json").read_text()):
        words = f"{entry['rule']} {entry['diagnosis']}"
        quiet = re.search(r"-> (OK|NVLS usable|NVLS set up)|harmless|PCIe-only|PCIe topology", words)
        checks = next((ids for pattern, ids in LOG_CAUSES if re.search(pattern, entry["rule"])), ())
        cases.append(Case(folder / entry["file"], quiet is None, checks, entry["diagnosis"][:70]))
    return cases


def is_right(case: Case, findings: Sequence[Finding]) -> bool:
    """Found by a check of its kind, or quiet where nothing is wrong; a lead of low confidence accuses nobody."""
    loud = [each for each in findings if each.severity in LOUD]
    if not case.is_loud:
        return all(each.confidence.value == "low" for each in loud)
    return any(each.id.startswith(case.checks) for each in loud)


def main() -> int:
    """Print the scoreboard; 1 when a text that must stay quiet was accused."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cases", type=Path, default=Path(__file__).parents[2] / "shared" / "cases")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    kinds = (("nccl_tests_outputs", table_cases), ("nccl_debug_logs", log_cases))
    if not all((options.cases / name / "index.json").is_file() for name, _ in kinds):
        print(f"no cases in {options.cases}")
        return 0
    request = ReportRequest(command="nccl-bench", argv=(), started=datetime.now(timezone.utc))
    accused = 0
    for name, read in kinds:
        cases = read(options.cases / name)
        right = missed = alarms = 0
        for case in cases:
            report = report_of_files(request, [str(case.path)])
            good = is_right(case, report.findings)
            right += good
            missed += not good and case.is_loud
            alarms += not good and not case.is_loud
            if options.verbose or not good:
                mark = "right " if good else "MISSED" if case.is_loud else "ALARM "
                print(
                    f"{mark} {case.path.name}: {report.verdict.status.value}: {report.verdict.title} [{case.why}]"
                )
        print(f"{name}: {right} of {len(cases)} right, {missed} missed, {alarms} false alarms")
        accused += alarms
    return int(accused > 0)


if __name__ == "__main__":
    sys.exit(main())

"""How well are out-of-memory messages judged? A scoreboard over texts whose right answer is known.

A folder with an index.json: `file` and `label` (a cause class of docs/report.md; `a|b` where both are right, `none` for a
text without an event). A text is right when the verdict's cause class is the label. Beside it stand advice that the numbers
contradict: an allocator setting without fragmentation, a smaller batch where the job's size is not the matter.

    python benchmarks/oom_cases.py [--cases FOLDER] [--verbose]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from distdoctor.errors import InputError
from distdoctor.oom.explain.build import explain_report
from distdoctor.oom.messages.from_files import events_from_files
from distdoctor.report.model import Report
from distdoctor.report.request import ReportRequest

NOTHING = "none"

# Causes in which a smaller batch may be named.
OF_THE_JOBS_SIZE = ("capacity", "sharding-ineffective", "fragmentation")

_ALLOCATOR = re.compile(r"expandable_segments|max_split_size_mb")
_BATCH = re.compile(r"micro-batch|batch size|smaller batch|fewer tokens")


@dataclass(frozen=True, slots=True)
class Scored:
    """One text: what is right, what was said, and advice that its numbers contradict."""

    name: str
    label: str
    said: str
    title: str
    confidence: str
    contradicted: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the cause class is one of the right ones."""
        return self.said in self.label.split("|")


def score(folder: Path) -> list[Scored]:
    """Every text of a folder with an index.json."""
    return [
        _scored(folder / entry["file"], entry["label"])
        for entry in json.loads((folder / "index.json").read_text())
    ]


def _scored(path: Path, label: str) -> Scored:
    request = ReportRequest(argv=(), started=datetime.now(timezone.utc), command="oom-explain")
    try:
        facts, inputs = events_from_files([str(path)])
    except InputError:
        return Scored(path.name, label, NOTHING, "", "", ())
    report = explain_report(request, facts, inputs=inputs)
    verdict = report.verdict
    said = verdict.cause_class or NOTHING
    return Scored(path.name, label, said, verdict.title, verdict.confidence.value, contradictions(report))


def contradictions(report: Report) -> tuple[str, ...]:
    """Advice of a report that its own cause excludes."""
    found = []
    for finding in report.findings:
        cause = finding.cause_class or ""
        at_start = any(each.text.startswith("phase: initialisation") for each in finding.evidence)
        for action in finding.actions:
            words = f"{action.text} {action.command or ''}"
            if _ALLOCATOR.search(words) and cause != "fragmentation":
                found.append(f"{finding.id}: {words}")
            if _BATCH.search(words) and (at_start or not cause.startswith(OF_THE_JOBS_SIZE)):
                found.append(f"{finding.id}: {words}")
    return tuple(found)


def main() -> int:
    """Print the scoreboard; 1 when a text is wrong or advice is contradicted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    default = Path(__file__).parents[2] / "shared" / "cases" / "oom_logs"
    parser.add_argument("--cases", type=Path, default=default)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if not (options.cases / "index.json").is_file():
        print(f"no cases in {options.cases}")
        return 0
    scored = score(options.cases)
    for each in scored:
        if options.verbose or not each.is_right:
            mark = "right" if each.is_right else "WRONG"
            print(f"{mark} {each.name}: {each.said} ({each.confidence}): {each.title} [{each.label}]")
        for words in each.contradicted:
            print(f"CONTRADICTED {each.name}: {words}")
    right = sum(each.is_right for each in scored)
    contradicted = sum(len(each.contradicted) for each in scored)
    print(
        f"{options.cases.name}: {right} of {len(scored)} right, {contradicted} contradicted by their numbers"
    )
    return int(right < len(scored) or contradicted > 0)


if __name__ == "__main__":
    sys.exit(main())

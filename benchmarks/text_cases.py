"""How well are pasted texts judged? A scoreboard over texts whose right answer is known.

Each folder has an index.json with one entry a text: `severity` (`ok`, `info` and `unknown` must stay quiet;
`warn`, `fail` and `critical` must be found) and words about the cause. A text that must be found counts as right
when a finding of warning or above has one of the checks that its cause is told by; anything of warning or above in
a text that must stay quiet is a false alarm.

    python benchmarks/text_cases.py [--cases FOLDER] [--verbose]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distdoctor.env.checks.all import ENV_CHECKS
from distdoctor.env.checks.base import run_checks
from distdoctor.env.from_text import facts_from_files, members_of
from distdoctor.env.job import check_job
from distdoctor.errors import InputError
from distdoctor.report.model import Finding, Severity

FOLDERS = ("collect_env", "nvidia_smi")
QUIET = ("ok", "info", "unknown")
LOUD = (Severity.WARNING, Severity.CRITICAL)

# Words of an entry (family, cause, check) → ids, or beginnings of ids, of the checks that tell this cause.
# The first row that matches counts.
CAUSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"cross-node|multi-?node|differs? between", ("job-",)),
    (r"arch list|capabilit|no kernel image|sm_\d+", ("torch-gpu-arch",)),
    (
        r"Error 80[0-9]|init error|Error 2\b|cudaGetDeviceCount",
        ("cuda-init-error", "gpu-fabric", "cuda-compat-library"),
    ),
    (r"driver vs CUDA|driver too old|older than|found version", ("torch-driver-too-old", "cuda-init-error")),
    (r"CPU-only|cpu_build", ("torch-cpu-build",)),
    (r"mixed vendors", ("gpu-vendors-mixed", "python-pynvml-shadow", "torch-gpu-arch")),
    (r"ROCm runtime not found|HIP Runtime", ("rocm-runtime-missing", "torch-import-fails")),
    (r"two nvidia-nccl|duplicate", ("nccl-duplicates", "torch-import-fails")),
    (r"system NCCL|NCCL differs|other libnccl", ("nccl-",)),
    (r"^mig\b|\bMIG\b", ("gpu-mode", "gpu-mig")),
    (r"contradicts the symptom", ("torch-", "python-")),
    (r"Xid|fallen off|wedged", ("kernel-xid", "gpu-lost")),
    (r"SXid", ("kernel-sxid",)),
    (r"GPU lost|unreachable|smi_err|mismatch of driver", ("gpu-lost", "gpu-driver-unreachable")),
    (r"WSL: NVIDIA-SMI|smi version", ("gpu-smi", "gpu-driver")),
    (r"ACS|IOMMU", ("pcie-acs", "iommu-translated")),
    (r"NV\d|NVLink|links? .*inactive|bridge", ("gpu-nvlink",)),
    (r"spinning|hang signature|power near idle", ("gpu-hang",)),
    (r"[Ff]abric", ("gpu-fabric", "cuda-init-error")),
    (r"capped|power cap|power limit|throttl", ("gpu-power", "gpu-throttled")),
    (r"ECC|uncorrectable|remap|retired", ("gpu-ecc", "gpu-row-remap", "gpu-retired-pages")),
    (r"mlx5|IB\b|ports? .*DOWN|RDMA", ("rdma-port-state", "kernel-nic")),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one text."""

    name: str
    severity: str
    verdict: str
    """"right", "missed" or "false alarm"."""
    found: tuple[Finding, ...]
    accepted: tuple[str, ...]
    note: str = ""


def accepted_checks(entry: dict[str, str]) -> tuple[str, ...]:
    """Ids (or their beginnings) that tell the cause of an entry."""
    words = " ".join(
        str(entry.get(key) or "") for key in ("family", "check_should_fire", "right_reading", "root_cause")
    )
    return next((ids for pattern, ids in CAUSES if re.search(pattern, words)), ())


def judge(folder: Path, entry: dict[str, str]) -> Outcome:
    """Read and check one text, and compare with its right answer."""
    note = ""
    try:
        facts, _ = facts_from_files([str(folder / entry["file"])])
    except InputError as error:
        facts, note = [], f"not read: {error.message}"
    if len(facts) > 1:
        findings = check_job(members_of(facts), ENV_CHECKS).findings
    else:
        findings = tuple(finding for each in facts for finding in run_checks(ENV_CHECKS, each)[0])
    loud = tuple(finding for finding in findings if finding.severity in LOUD)
    accepted = accepted_checks(entry)
    if entry["severity"] in QUIET:
        verdict = "false alarm" if loud else "right"
    else:
        told = any(finding.id.startswith(accepted) for finding in loud) if accepted else False
        verdict = "right" if told else "missed"
    return Outcome(entry["id"], entry["severity"], verdict, loud, accepted, note)


def judge_folder(folder: Path) -> list[Outcome]:
    """Every entry of a folder's index."""
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    entries = index["items"] if isinstance(index, dict) else index
    return [judge(folder, entry) for entry in entries]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scoreboard; 0 when everything is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(__file__).resolve().parents[1] / ".." / "shared" / "cases"
    parser.add_argument(
        "--cases", type=Path, default=default, help="folder with collect_env/ and nvidia_smi/"
    )
    parser.add_argument("--verbose", action="store_true", help="show every finding")
    options = parser.parse_args(arguments)
    folders = [options.cases / name for name in FOLDERS if (options.cases / name / "index.json").is_file()]
    if not folders:
        print(f"no cases below {options.cases}", file=sys.stderr)
        return 2
    totals = {"right": 0, "missed": 0, "false alarm": 0}
    started = time.monotonic()
    for folder in folders:
        print(f"{folder.name}")
        for outcome in judge_folder(folder):
            totals[outcome.verdict] += 1
            print(f"  {outcome.verdict:<11} {outcome.severity:<8} {outcome.name} {outcome.note}".rstrip())
            show = options.verbose or outcome.verdict != "right"
            for finding in outcome.found if show else ():
                print(f"                {finding.severity.value}: {finding.id}: {finding.title}")
            if outcome.verdict == "missed":
                print(f"                wanted one of: {', '.join(outcome.accepted) or '(no check known)'}")
    number = sum(totals.values())
    print(f"{totals['right']} of {number} right, {totals['missed']} missed, {totals['false alarm']} false alarms"
          f" ({time.monotonic() - started:.1f} s)")  # fmt: skip
    return 0 if totals["right"] == number else 1


if __name__ == "__main__":
    raise SystemExit(main())

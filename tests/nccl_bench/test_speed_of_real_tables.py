"""The checks of speed on tables that people pasted: healthy ones stay unaccused, slow ones are seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.nccl_bench.checks import below_expected, bimodal, cliff, latency_floor, noisy, regression
from distdoctor.nccl_bench.readers.files import facts_from_text
from distdoctor.report.checking import run_checks
from distdoctor.report.model import Finding, Severity, Skipped

TABLES = Path(__file__).parents[3] / "shared" / "cases" / "nccl_tests_outputs"

CHECKS = tuple(each.CHECK for each in (below_expected, latency_floor, cliff, noisy, bimodal, regression))

pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason="the collection of pasted tables is not here")

# Beginning of the name → id of what must be said of it.
SLOW = {
    "24-": "bench-cliff",
    "28-": "bench-latency-floor",
    "30-": "bench-latency-floor",
    "33-": "bench-below-expected",
}

# Wrong data and a hang: what is said of their speed does not matter here.
OTHER_FAULTS = ("36-", "41-")


def judged(path: Path) -> tuple[list[Finding], list[Skipped]]:
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    for facts in facts_from_text(path.read_text(), path.name)[0]:
        found, skips, _ = run_checks(CHECKS, facts, is_live=False)
        findings += found
        skipped += skips
    return findings, skipped


def tables() -> list[Path]:
    return sorted(TABLES.glob("*.txt")) if TABLES.is_dir() else []


@pytest.mark.parametrize("path", tables(), ids=lambda path: path.name)
def test_only_slow_tables_are_accused(path: Path) -> None:
    findings, skipped = judged(path)
    accused = {each.id for each in findings if each.severity is not Severity.INFO}
    if path.name[:3] in SLOW:
        assert SLOW[path.name[:3]] in accused
    elif path.name[:3] not in OTHER_FAULTS:
        assert not accused
    assert not any("a bug in this check" in each.reason for each in skipped)
    assert all(len(each.title) <= 80 for each in findings)


def test_tables_with_gpu_names_are_judged_by_them() -> None:
    (path,) = TABLES.glob("15-*")
    assert not any(each.id == "bench-below-expected" for each in judged(path)[1])


def test_old_hosts_with_unknown_ports_come_with_figures_and_no_verdict() -> None:
    (path,) = TABLES.glob("05-*")
    (skip,) = [each for each in judged(path)[1] if each.id == "bench-below-expected"]
    assert "network ports are not known" in skip.reason
    assert "for orientation" in skip.reason

"""Logs that people posted: each must get the right diagnosis. The folder stands beside the repository, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.nccl_bench.checks.all import BENCH_CHECKS
from distdoctor.nccl_bench.checks.base import Found, Passed
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.readers.nccl_log import read_nccl_log, sniff_nccl_log
from distdoctor.report.model import Severity

CASES = Path(__file__).parents[3] / "shared/cases/nccl_debug_logs"

# (number of the file, findings by check and severity). What is not named must be no worse than info.
EXPECTED = {
    "01": {},
    "02": {"nccl-log-socket": Severity.CRITICAL},
    "03": {"nccl-log-socket": Severity.WARNING},
    "04": {"nccl-log-no-gdr": Severity.WARNING},
    "07": {"nccl-log-shm": Severity.INFO},
    "08": {"nccl-log-overrides": Severity.INFO},
    "09": {"nccl-log-nvls": Severity.WARNING, "nccl-log-overrides": Severity.WARNING},
    "12": {"nccl-log-overrides": Severity.WARNING, "nccl-log-nics": Severity.WARNING},
    "13": {"nccl-log-interfaces": Severity.WARNING, "nccl-log-socket": Severity.WARNING},
    "16": {},
}


def run(number: str) -> dict[str, list[object]]:
    if not CASES.is_dir():
        pytest.skip(f"{CASES} is not there")
    (path,) = CASES.glob(f"{number}-*.log")
    text = path.read_text()
    assert sniff_nccl_log(path.name, text.encode()) > 0.8
    log = read_nccl_log(text, path.name)
    facts = BenchFacts(origin=Origin.LOG, label=path.name, nccl_log=log)
    return {check.id: list(check.run(facts)) for check in BENCH_CHECKS if check.id.startswith("nccl-log-")}


@pytest.mark.parametrize("number", sorted(EXPECTED))
def test_a_posted_log_gets_the_right_findings(number: str) -> None:
    order = [Severity.INFO, Severity.WARNING, Severity.CRITICAL]
    worst: dict[str, Severity] = {}
    for check_id, outcomes in run(number).items():
        severities = [each.severity for each in outcomes if isinstance(each, Found)]
        if severities:
            worst[check_id] = max(severities, key=order.index)
    loud = {check_id: each for check_id, each in worst.items() if each is not Severity.INFO}
    expected = EXPECTED[number]
    assert loud == {check_id: each for check_id, each in expected.items() if each is not Severity.INFO}
    assert set(expected) <= set(worst)


def test_good_logs_pass_what_they_show() -> None:
    efa = run("01")
    assert all(isinstance(efa[check_id][0], Passed) for check_id in ("nccl-log-socket", "nccl-log-no-gdr"))
    assert isinstance(run("08")["nccl-log-nvls"][0], Passed)
    assert isinstance(run("16")["nccl-log-nvls"][0], Passed)


def test_causes_stand_in_the_evidence() -> None:
    (library,) = run("03")["nccl-log-socket"]
    assert isinstance(library, Found)
    assert any("libibverbs" in each.text for each in library.evidence)
    (ring,) = run("02")["nccl-log-socket"]
    assert isinstance(ring, Found)
    assert any("16 ranks" in each.text for each in ring.evidence)

"""Real tables of nccl-tests with their right answers, where the folder of cases is beside the project."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from distdoctor.nccl_bench.checks.cut_table import CHECK as CUT
from distdoctor.nccl_bench.checks.outlier import CHECK as OUTLIER
from distdoctor.nccl_bench.checks.ranks_alone import CHECK as ALONE
from distdoctor.nccl_bench.checks.wrong_data import CHECK as WRONG
from distdoctor.nccl_bench.definitions import canonical_name
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.readers.nccl_tests import read_nccl_tests
from distdoctor.nccl_bench.readers.sniff import sniff_table
from distdoctor.pasted import clean_pasted
from distdoctor.report.checking import run_check
from distdoctor.report.model import CheckState

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "nccl_tests_outputs"

# What one rank more would change is below the print's last digit beyond this many ranks.
TELLABLE_RANKS = 200

# The name of this file says 64, its rows' busbw/algbw says 96.
ARITHMETIC = {"09-cw-h100-64gpu-sharp-allreduce.txt": 96}


def cases() -> list[dict[str, Any]]:
    index = CASES / "index.json"
    return json.loads(index.read_text()) if index.is_file() else []


def read(case: dict[str, Any], label: str = "pasted.txt") -> BenchFacts:
    (facts,) = read_nccl_tests(clean_pasted((CASES / case["file"]).read_text()), label)
    return facts


def state(check: Any, facts: BenchFacts) -> CheckState:
    return run_check(check, facts, is_live=False)[2].state


def num_ranks(case: dict[str, Any]) -> int | None:
    """From the platform: "2x a3-highgpu-8g", "1x 8xA100", "2 ranks sharing …"."""
    if case["file"] in ARITHMETIC:
        return ARITHMETIC[case["file"]]
    name, platform = case["file"], case["platform"]
    if match := re.search(r"-(\d+)gpu", name):
        return int(match[1])
    if match := re.search(r"\((\d+) GPU\)", platform):
        return int(match[1])
    if re.match(r"2x (?:p5|p4d|p4de|a3)", platform):
        return 16
    if "2 ranks" in platform or platform == "same" or re.match(r"2x (?:A40|GH200)", platform):
        return 2
    return None


def test_the_folder_of_cases_is_there() -> None:
    if not CASES.is_dir():
        pytest.skip("no ../shared/cases beside the project: real tables are not tested")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["file"])
def test_rows_ranks_and_collective(case: dict[str, Any]) -> None:
    facts = read(case)
    assert facts.table is not None
    assert len(facts.rows) // 2 + facts.table.skipped_rows == case["rows"]
    assert facts.table.average_busbw_gbps == case["avg_busbw"]
    name = canonical_name(case["collective"])
    if name is not None and facts.table.collective_known:
        assert {row.collective for row in facts.rows} == {name}
    expected = num_ranks(case)
    if expected is not None and facts.rows[0].collective not in ("broadcast", "reduce", "sendrecv"):
        assert facts.num_ranks == expected
    assert sniff_table(case["file"], (CASES / case["file"]).read_bytes()) > 0.9


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["file"])
def test_ranks_follow_from_the_rows_alone(case: dict[str, Any]) -> None:
    text = "\n".join(
        line for line in clean_pasted((CASES / case["file"]).read_text()).split("\n") if "Rank" not in line
    )
    (facts,) = read_nccl_tests(text, case["file"])
    expected = num_ranks(case)
    if expected is None or facts.rows[0].collective in ("broadcast", "reduce", "sendrecv"):
        return
    assert facts.num_ranks == (expected if expected <= TELLABLE_RANKS else None)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["file"])
def test_the_best_bandwidth_is_the_one_of_the_right_answer(case: dict[str, Any]) -> None:
    numbers = [float(each) for each in re.findall(r"(\d+(?:\.\d+)?)(?=[^.]*GB/s)", case["real_answer"])]
    if not numbers or case["file"].startswith(("24", "26", "35")):
        return  # the answers of 24 and 26 are algbw, that of 35 is about a row
    best = max(row.busbw_gbps or 0 for row in read(case).rows)
    assert any(abs(best - number) <= 0.03 * best for number in numbers), (best, numbers)


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["file"])
def test_checks_speak_where_they_must_and_stay_quiet_elsewhere(case: dict[str, Any]) -> None:
    facts = read(case)
    assert (state(WRONG, facts) is CheckState.FOUND) == (case["state"] == "DATA CORRUPTION")
    assert (state(CUT, facts) is CheckState.FOUND) == (case["state"] == "hang")
    assert (state(OUTLIER, facts) is CheckState.FOUND) == ("outlier" in case["state"])
    assert state(ALONE, facts) is not CheckState.FOUND
    if not case["complete"]:
        assert state(CUT, facts) is not CheckState.PASSED

"""Texts whose right answer is known: found where it must be, quiet where it must be, torn or whole."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from distdoctor.env.checks.all import ENV_CHECKS
from distdoctor.env.checks.base import run_checks
from distdoctor.env.from_text import facts_from_text
from distdoctor.report.model import Severity

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / ".." / "shared" / "cases"
HERE = Path(__file__).parent

# What the text alone cannot show: the complaint lies outside the first, a peer-to-peer test finds the second.
NOT_IN_THE_TEXT = {"two_pythons_titan_win2019", "topo_pxb_pix_acs_hang"}

needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases at {CASES}")


def scoreboard() -> ModuleType:
    spec = importlib.util.spec_from_file_location("text_cases", ROOT / "benchmarks" / "text_cases.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["text_cases"] = module
    spec.loader.exec_module(module)
    return module


def loud(text: str) -> set[str]:
    return {
        finding.id
        for facts in facts_from_text(text, "x")
        for finding in run_checks(ENV_CHECKS, facts)[0]
        if finding.severity is not Severity.INFO
    }


@needs_cases
@pytest.mark.parametrize("folder", ["collect_env", "nvidia_smi"])
def test_known_texts_are_judged_right(folder: str) -> None:
    outcomes = scoreboard().judge_folder(CASES / folder)
    wrong = {each.name: each.verdict for each in outcomes if each.verdict != "right"}
    assert {name: verdict for name, verdict in wrong.items() if name not in NOT_IN_THE_TEXT} == {}
    assert "false alarm" not in wrong.values()


@needs_cases
@pytest.mark.parametrize("folder", ["collect_env", "nvidia_smi"])
def test_a_torn_text_says_nothing_that_the_whole_one_does_not(folder: str) -> None:
    for entry in json.loads((CASES / folder / "index.json").read_text())["items"]:
        text = (CASES / folder / entry["file"]).read_text()
        whole = loud(text)
        for end in range(0, len(text), 37):
            assert loud(text[:end]) <= whole, (entry["id"], end, text[max(0, end - 60) : end])


@pytest.mark.parametrize("sample", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_a_torn_sample_says_nothing_that_the_whole_one_does_not(sample: Path) -> None:
    text = sample.read_text()
    whole = loud(text)
    for end in range(0, len(text), 37):
        assert loud(text[:end]) <= whole, (end, text[max(0, end - 60) : end])

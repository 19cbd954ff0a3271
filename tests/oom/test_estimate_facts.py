"""Two estimates side by side: what differs, the result first, and no advice to make results equal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from distdoctor.oom.estimate_facts import estimate_relevance
from distdoctor.report.differences import RESULTS


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distdoctor", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_differs_between_two_estimates_is_told(tmp_path: Path) -> None:
    for name, mode in (("a", "none"), ("b", "full")):
        made = run(
            "oom",
            "estimate",
            "--model",
            "llama3-8b",
            "--gpus",
            "8",
            "--checkpointing",
            mode,
            "-o",
            f"{tmp_path}/{name}.json",
        )
        assert made.returncode == 0, made.stderr
    told = json.loads(run("compare", f"{tmp_path}/a.json", f"{tmp_path}/b.json", "--format", "json").stdout)
    differing = [each for each in told["findings"] if each["id"] == "compare-differs"]
    titles = [each["title"] for each in differing]
    assert titles[0] == "estimate.needed_gib differs"
    assert "job.checkpointing differs" in titles
    assert not any(each.get("actions") for each in differing)
    assert {each["severity"] for each in differing} == {"info"}


def test_facts_of_other_commands_are_none_of_ours() -> None:
    assert estimate_relevance("torch.version") is None
    found = estimate_relevance("oom.job.mesh")
    assert found is not None and found.topic == RESULTS

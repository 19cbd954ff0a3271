"""Many ranks on one host."""

from __future__ import annotations

from pathlib import Path

import pytest

from forkpool import ForkPool

pytestmark = pytest.mark.ranks

SCENARIOS = Path(__file__).with_name("gather_scenarios.py")


def test_64_ranks_gather_and_clean_up(tmp_path: Path) -> None:
    with ForkPool(torch=False, scenarios=SCENARIOS) as pool:
        outcomes = pool.run("everybody_reports", world_size=64, args={"folder": str(tmp_path)}, limit_s=60)
    assert [outcome.ending for outcome in outcomes] == ["returned"] * 64
    reports = [outcome.value for outcome in outcomes if outcome.value is not None]
    assert reports == [{"ranks": list(range(64)), "complete": True}]
    assert list(tmp_path.iterdir()) == []

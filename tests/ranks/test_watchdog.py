"""The watchdog over real Gloo collectives and a real TCPStore: the run ends with a report, whatever one rank does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forkpool import ForkPool, Outcome
from slowdown import scaled

pytest.importorskip("torch")
pytestmark = pytest.mark.ranks

SCENARIOS = Path(__file__).with_name("watchdog_scenarios.py")
DEADLINE_S = scaled(1.5)
WORLD_SIZE = 5
# Deadline, a look at the hearts, patience with the rank whose turn it is, ending stopped ranks.
LIMIT_S = DEADLINE_S + scaled(20)


@pytest.fixture(scope="module")
def pool() -> Iterator[ForkPool]:
    with ForkPool(torch=True) as warm:
        yield warm


def run(
    pool: ForkPool, folder: Path, faults: dict[int, str], **options: Any
) -> tuple[list[Outcome], list[dict[str, Any]]]:
    outcomes = pool.run(
        f"{SCENARIOS}:measure",
        world_size=WORLD_SIZE,
        args={
            "folder": str(folder),
            "deadline_s": DEADLINE_S,
            "faults": {str(rank): do for rank, do in faults.items()},
        },
        limit_s=LIMIT_S,
        store=True,
        **options,
    )
    return outcomes, [json.loads(path.read_text()) for path in sorted(folder.glob("stall.*"))]


def test_a_clean_run_writes_no_partial_report(pool: ForkPool, tmp_path: Path) -> None:
    outcomes, stalls = run(pool, tmp_path, {})
    assert [outcome.value for outcome in outcomes] == ["complete"] * WORLD_SIZE
    assert stalls == []


@pytest.mark.parametrize(
    ("faults", "missing", "frozen"),
    [
        ({3: "sleep"}, [3], []),
        ({3: "stop"}, [3], [3]),
        ({4: "exit"}, [4], [4]),
        ({2: "sleep", 4: "exit"}, [2, 4], [4]),
        ({0: "sleep"}, [0], []),
        ({0: "stop"}, [0], [0]),
        ({2: "freeze inside"}, [], [2]),
        ({0: "freeze inside"}, [], [0]),
    ],
    ids=lambda value: "+".join(f"{rank} {do}" for rank, do in value.items()) if isinstance(value, dict) else None,
)  # fmt: skip
def test_a_run_ends_with_one_report_that_names_the_culprit(
    pool: ForkPool, tmp_path: Path, faults: dict[int, str], missing: list[int], frozen: list[int]
) -> None:
    outcomes, stalls = run(pool, tmp_path, faults)
    assert len(stalls) == 1
    (stall,) = stalls
    assert stall["phase"] == "all_reduce/1"
    assert (stall["missing"], stall["frozen"]) == (missing, frozen)
    assert stall["reporter"] not in faults
    assert "no progress" in stall["reason"]
    for rank in missing:
        assert stall["hosts"][str(rank)] == "host-a"
        assert stall["last_phases"][str(rank)] == "all_reduce/0"
    # Everybody has ended, the stopped ones by SIGKILL from a peer; nobody had to be killed by the pool.
    assert [outcome.ending for outcome in outcomes] == ["died"] * WORLD_SIZE
    for outcome in outcomes:
        expected = {"stop": -9, "freeze inside": -9, "exit": 9}.get(faults.get(outcome.rank, ""), 3)
        assert outcome.exit_code == expected, outcome


def test_a_slow_rank_is_not_accused(pool: ForkPool, tmp_path: Path) -> None:
    outcomes, stalls = run(pool, tmp_path, {1: "slow"})
    assert [outcome.value for outcome in outcomes] == ["complete"] * WORLD_SIZE
    assert stalls == []


def test_when_the_store_freezes_every_rank_speaks_for_itself(pool: ForkPool, tmp_path: Path) -> None:
    outcomes, stalls = run(pool, tmp_path, {3: "sleep"}, stop_store_after_s=DEADLINE_S / 2)
    assert len(stalls) == WORLD_SIZE
    assert all("no answer" in stall["store_lost"] for stall in stalls)
    assert [outcome.exit_code for outcome in outcomes] == [3] * WORLD_SIZE

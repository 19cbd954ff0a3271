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
    with ForkPool(torch=True, scenarios=SCENARIOS) as warm:
        yield warm


CULPRITS: dict[str, tuple[dict[int, str], list[int], list[int]]] = {
    "a sleeping rank": ({3: "sleep"}, [3], []),
    "a stopped rank": ({3: "stop"}, [3], [3]),
    "a dead rank": ({4: "exit"}, [4], [4]),
    "two at once": ({2: "sleep", 4: "exit"}, [2, 4], [4]),
    "rank 0 asleep": ({0: "sleep"}, [0], []),
    "rank 0 stopped": ({0: "stop"}, [0], [0]),
    "stopped inside": ({2: "freeze inside"}, [], [2]),
    "rank 0 stopped inside": ({0: "freeze inside"}, [], [0]),
}
"""What each rank does, who is then missing, who is frozen."""


class Watched:
    """One run: started, and looked at when it has ended."""

    def __init__(self, pool: ForkPool, folder: Path, faults: dict[int, str], **options: Any) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._run = pool.start(
            "measure",
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

    def end(self) -> tuple[list[Outcome], list[dict[str, Any]]]:
        outcomes = self._run.outcomes()
        return outcomes, [json.loads(path.read_text()) for path in sorted(self._folder.glob("stall.*"))]


def run(
    pool: ForkPool, folder: Path, faults: dict[int, str], **options: Any
) -> tuple[list[Outcome], list[dict[str, Any]]]:
    return Watched(pool, folder, faults, **options).end()


@pytest.fixture(scope="module")
def culprits(pool: ForkPool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Watched]:
    """All runs with a fault, started together: what they do is wait."""
    folder = tmp_path_factory.mktemp("culprits")
    return {name: Watched(pool, folder / name, faults) for name, (faults, _, _) in CULPRITS.items()}


def test_a_clean_run_writes_no_partial_report(pool: ForkPool, tmp_path: Path) -> None:
    outcomes, stalls = run(pool, tmp_path, {})
    assert [outcome.value for outcome in outcomes] == ["complete"] * WORLD_SIZE
    assert stalls == []


@pytest.mark.parametrize("name", CULPRITS)
def test_a_run_ends_with_one_report_that_names_the_culprit(culprits: dict[str, Watched], name: str) -> None:
    faults, missing, frozen = CULPRITS[name]
    outcomes, stalls = culprits[name].end()
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

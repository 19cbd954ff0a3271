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


RUNS: dict[str, dict[str, Any]] = {
    **{name: {"faults": faults} for name, (faults, _, _) in CULPRITS.items()},
    "clean": {"faults": {}},
    "slow": {"faults": {1: "slow"}},
    "store frozen": {"faults": {3: "sleep"}, "stop_store_after_s": DEADLINE_S / 2},
    "terminated": {"faults": {0: "exit"}, "deadline_s": 60.0, "terminate_after_s": scaled(0.5)},
    "written": {"faults": {}, "writes": True},
    "killed in writing": {"faults": {0: "exit writing"}, "writes": True},
    "one told to end": {
        "faults": {0: "SIGTERM to another", 2: "late SIGTERM"},
        "writes": True,
        "deadline_s": 60.0,
    },
    "an error": {"faults": {2: "raise"}, "deadline_s": 60.0, "gives_up": True},
    "a death noticed": {"faults": {3: "exit"}, "deadline_s": 60.0, "gives_up": True},
}


class Watched:
    """One run: started, and looked at when it has ended."""

    def __init__(self, pool: ForkPool, folder: Path, *, faults: dict[int, str], **options: Any) -> None:
        self._folder = folder
        folder.mkdir()
        self._run = pool.start(
            "measure",
            world_size=WORLD_SIZE,
            args={
                "folder": str(folder),
                "deadline_s": options.get("deadline_s", DEADLINE_S),
                "faults": {str(rank): do for rank, do in faults.items()},
                "terminate_after_s": options.get("terminate_after_s"),
                "writes": options.get("writes", False),
                "gives_up": options.get("gives_up", False),
            },
            limit_s=LIMIT_S,
            store=True,
            stop_store_after_s=options.get("stop_store_after_s"),
        )

    def end(self) -> tuple[list[Outcome], list[dict[str, Any]]]:
        outcomes = self._run.outcomes()
        return outcomes, [json.loads(path.read_text()) for path in sorted(self._folder.glob("stall.*"))]

    def is_written(self) -> bool:
        """Whether rank 0 has reported a run that went well."""
        return (self._folder / "report").exists()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Watched]]:
    """All runs, started together: what they do is wait."""
    folder = tmp_path_factory.mktemp("watched")
    with ForkPool(torch=True, scenarios=SCENARIOS) as pool:
        yield {name: Watched(pool, folder / name.replace(" ", "-"), **plan) for name, plan in RUNS.items()}


@pytest.mark.parametrize("name", CULPRITS)
def test_a_run_ends_with_one_report_that_names_the_culprit(runs: dict[str, Watched], name: str) -> None:
    faults, missing, frozen = CULPRITS[name]
    outcomes, stalls = runs[name].end()
    assert len(stalls) == 1
    (stall,) = stalls
    assert stall["phase"] == "all_reduce/1"
    assert (stall["missing"], stall["frozen"]) == (missing, frozen)
    assert stall["reporter"] not in faults
    assert "no progress" in stall["reason"]
    assert not stall["terminated"]
    for rank in missing:
        assert stall["hosts"][str(rank)] == "host-a"
        assert stall["last_phases"][str(rank)] == "all_reduce/0"
    # Everybody has ended, the stopped ones by SIGKILL from a peer; nobody had to be killed by the pool.
    assert [outcome.ending for outcome in outcomes] == ["died"] * WORLD_SIZE
    for outcome in outcomes:
        expected = {"stop": -9, "freeze inside": -9, "exit": 9}.get(faults.get(outcome.rank, ""), 3)
        assert outcome.exit_code == expected, outcome


@pytest.mark.parametrize("name", ["clean", "slow"])
def test_a_run_that_completes_writes_no_partial_report(runs: dict[str, Watched], name: str) -> None:
    outcomes, stalls = runs[name].end()
    assert [outcome.value for outcome in outcomes] == ["complete"] * WORLD_SIZE
    assert stalls == []


def test_when_the_launcher_ends_the_job_the_report_comes_at_once(runs: dict[str, Watched]) -> None:
    """Rank 0 has died; main threads sit in a collective or sleep, and the deadline is a minute away."""
    outcomes, stalls = runs["terminated"].end()
    (stall,) = stalls
    assert stall["terminated"]
    assert (stall["missing"], stall["frozen"]) == ([0], [0])
    assert stall["lives"]["0"] == "exited"
    assert [outcome.exit_code for outcome in outcomes] == [9, 3, 3, 3, 3]
    assert max(outcome.seconds for outcome in outcomes) < LIMIT_S


def test_when_the_store_freezes_one_rank_of_the_host_speaks(runs: dict[str, Watched]) -> None:
    outcomes, stalls = runs["store frozen"].end()
    (stall,) = stalls
    assert "no answer" in stall["store_lost"]
    assert sorted(outcome.exit_code for outcome in outcomes) == [0] * (WORLD_SIZE - 1) + [3]


def test_a_run_that_goes_well_reports_once_and_all_see_it(runs: dict[str, Watched]) -> None:
    outcomes, stalls = runs["written"].end()
    assert [outcome.value for outcome in outcomes] == ["complete"] * WORLD_SIZE
    assert stalls == []
    assert runs["written"].is_written()


def test_when_the_reporter_dies_in_writing_another_rank_reports(runs: dict[str, Watched]) -> None:
    outcomes, (stall,) = runs["killed in writing"].end()
    assert stall["frozen"] == [0]
    assert stall["phase"] == "writing the report"
    assert [outcome.exit_code for outcome in outcomes] == [9, 3, 3, 3, 3]


def test_a_rank_that_alone_is_told_to_end_does_not_make_a_second_report(runs: dict[str, Watched]) -> None:
    """It reports when rank 0 does not; rank 0, which is through a little later, then keeps still."""
    outcomes, stalls = runs["one told to end"].end()
    assert len(stalls) == 1
    assert not runs["one told to end"].is_written()
    assert not any(outcome.ending == "hung" for outcome in outcomes)


def test_a_rank_that_cannot_go_on_says_why_and_all_end_at_once(runs: dict[str, Watched]) -> None:
    outcomes, stalls = runs["an error"].end()
    assert [stall["missing"] for stall in stalls] == [[2]]
    assert stalls[0]["errors"] == [[2, "ValueError: no such thing"]]
    assert not any(outcome.ending == "hung" for outcome in outcomes)


def test_peers_of_a_dead_rank_name_it_long_before_the_deadline(runs: dict[str, Watched]) -> None:
    outcomes, stalls = runs["a death noticed"].end()
    assert [stall["missing"] for stall in stalls] == [[3]]
    assert stalls[0]["lives"]["3"] == "exited"
    assert 3 not in [rank for rank, _ in stalls[0]["errors"]]
    assert not any(outcome.ending == "hung" for outcome in outcomes)


def test_each_rank_tells_where_its_main_thread_is(runs: dict[str, Watched]) -> None:
    _, stalls = runs["a sleeping rank"].end()
    where = stalls[0]["where"]
    assert where["3"] == "misbehave"
    assert "misbehave" not in [function for rank, function in where.items() if rank != "3"]

"""Whole runs over Gloo in four ranks: the report is right, and it comes out whatever one rank does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forkpool import ForkPool, Outcome, Run
from slowdown import scaled

pytest.importorskip("torch")
pytestmark = pytest.mark.ranks

SCENARIOS = Path(__file__).with_name("bench_scenarios.py")
WORLD_SIZE = 4
DEADLINE_S = scaled(3)
GATHER = "all_gather_single"

SHORT = [
    "--sizes",
    "1K,64K",
    "--iters",
    "30",
    "--time-limit",
    f"{scaled(12):g}s",
    "--timeout",
    f"{DEADLINE_S:g}s",
]
RUNS: dict[str, dict[str, Any]] = {
    "all collectives": {
        "argv": ["--collectives", "all", "--place", "both", "--matrix", "off", "--repeats", "1"]
    },
    "plain": {"argv": ["--collectives", "all_gather", "--while-computing"]},
    "mesh": {"argv": ["--mesh", "dp=2,tp=2", "--collectives", "all_reduce", "--matrix", "off"]},
    "stopped": {"faults": {3: "stop"}, "nth": 20},
    "killed": {"faults": {2: "kill"}, "nth": 20},
    "hung rank 0": {"faults": {0: "hang"}, "nth": 20},
    "raising": {"faults": {1: "raise"}, "nth": 20},
    "corrupt": {"faults": {2: "corrupt"}, "function": "all_reduce", "argv": ["--matrix", "off"]},
    "late": {"faults": {2: "late"}, "function": "all_reduce", "argv": ["--collectives", "all_reduce"]},
}


class Ended:
    """One run, started; its report and outcomes once it has ended."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self._folder = folder
        self._outcomes: list[Outcome] | None = None

    def outcomes(self) -> list[Outcome]:
        if self._outcomes is None:
            self._outcomes = self._run.outcomes()
        return self._outcomes

    def report(self) -> dict[str, Any]:
        self.outcomes()
        (path,) = self._folder.glob("*.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    """All runs, one after the other: what they measure must not be each other."""
    with ForkPool(torch=True, scenarios=SCENARIOS) as pool:
        ended = {}
        for name, plan in RUNS.items():
            folder = tmp_path_factory.mktemp("bench")
            ended[name] = Ended(
                pool.start(
                    "bench",
                    world_size=WORLD_SIZE,
                    args={
                        "argv": [
                            *SHORT,
                            *plan.get("argv", ["--collectives", "all_gather"]),
                            "-o",
                            f"{folder}/report.json",
                        ],
                        "function": plan.get("function", GATHER),
                        "faults": {str(rank): what for rank, what in plan.get("faults", {}).items()},
                        "nth": plan.get("nth", 1),
                    },
                    limit_s=scaled(60),
                    store=True,
                ),
                folder,
            )
            ended[name].outcomes()
        yield ended


def findings(report: dict[str, Any], check: str) -> list[dict[str, Any]]:
    return [finding for finding in report.get("findings", []) if finding["id"] == check]


def measured(report: dict[str, Any]) -> list[dict[str, Any]]:
    (table,) = [table for table in report["tables"] if table["name"] == "bench-measurements"]
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


def test_every_collective_has_a_row_for_every_size_and_form(runs: dict[str, Ended]) -> None:
    report = runs["all collectives"].report()
    rows = {(row["collective"], row["in_place"]) for row in measured(report)}
    assert rows == {
        ("barrier", None), ("all_reduce", True), ("broadcast", True), ("reduce", True),
        ("all_gather", False), ("all_gather", True), ("reduce_scatter", False), ("reduce_scatter", True),
        ("gather", False), ("scatter", False), ("all_to_all", False), ("all_to_all_uneven", False),
        ("sendrecv", False),
    }  # fmt: skip
    assert all(row["validated"] for row in measured(report) if row["collective"] != "barrier")
    assert not findings(report, "bench-wrong-data")


def test_busbw_is_size_over_time_by_the_factor_of_the_collective(runs: dict[str, Ended]) -> None:
    factors = {"all_reduce": 1.5, "all_gather": 0.75, "broadcast": 1.0, "sendrecv": 1.0, "all_to_all": 0.75}
    for row in measured(runs["all collectives"].report()):
        if row["collective"] in factors:
            algbw = row["size_bytes"] / row["time_us"] / 1e3
            assert row["algbw_gbps"] == pytest.approx(algbw)
            assert row["busbw_gbps"] == pytest.approx(algbw * factors[row["collective"]])


def test_a_plain_run_names_nobody_and_keeps_its_matrix(runs: dict[str, Ended]) -> None:
    report = runs["plain"].report()
    assert report["verdict"]["status"] in ("ok", "unknown")
    assert not report.get("culprits")
    heat = next(series for series in report["series"] if series["kind"] == "heat")
    assert [len(row) for row in heat["values"]] == [WORLD_SIZE] * WORLD_SIZE
    assert all(outcome.value == 0 for outcome in runs["plain"].outcomes())


def test_bandwidth_while_computing_stands_apart_from_the_rows_that_are_judged(runs: dict[str, Ended]) -> None:
    report = runs["plain"].report()
    (table,) = [table for table in report["tables"] if table["name"] == "bench-computing"]
    ((collective, size, alone, computing, left),) = table["rows"]
    assert (collective, size) == ("all_gather", "64 KiB")
    assert alone > 0 and computing > 0 and left == pytest.approx(100 * computing / alone, abs=1)
    assert len([row for row in measured(report) if row["collective"] == "all_gather"]) == 2


def test_a_mesh_gives_rows_along_each_dimension_alone_and_at_once(runs: dict[str, Ended]) -> None:
    rows = measured(runs["mesh"].report())
    seen = {(row["group"], row["ranks"], row["concurrent"]) for row in rows if row["kind"] == "mesh"}
    groups = [("mesh dp #0", "0,2"), ("mesh dp #1", "1,3"), ("mesh tp #0", "0-1"), ("mesh tp #1", "2-3")]
    assert seen == {(name, ranks, at_once) for name, ranks in groups for at_once in (False, True)}


LOST = {"stopped": (3, "stopped"), "killed": (2, "gone"), "hung rank 0": (0, "arrived"), "raising": (1, "")}


@pytest.mark.parametrize("name", LOST)
def test_a_lost_rank_is_named_and_the_rows_so_far_are_kept(runs: dict[str, Ended], name: str) -> None:
    rank, word = LOST[name]
    report = runs[name].report()
    (stopped,) = findings(report, "bench-stopped")
    assert stopped["severity"] == "critical"
    assert stopped["scope"]["ranks"] == [rank]
    assert word in json.dumps(stopped)
    assert {row["collective"] for row in measured(report)} >= {"all_reduce"}
    assert all(outcome.ending != "hung" for outcome in runs[name].outcomes() if outcome.rank != rank)


@pytest.mark.parametrize("name", LOST)
def test_nothing_is_left_running_long_after_the_deadline(runs: dict[str, Ended], name: str) -> None:
    slowest = max(outcome.seconds for outcome in runs[name].outcomes())
    # Set-up, the rows before the fault, the deadline, a look at the hearts, the report.
    assert slowest < scaled(12) + DEADLINE_S + scaled(15)


def test_an_error_of_ones_own_is_told_in_its_words(runs: dict[str, Ended]) -> None:
    assert "no room for the buffer" in json.dumps(findings(runs["raising"].report(), "bench-stopped"))


def test_one_corrupted_element_on_one_rank_is_critical_with_rank_and_size(runs: dict[str, Ended]) -> None:
    found = findings(runs["corrupt"].report(), "bench-wrong-data")
    assert found[0]["severity"] == "critical"
    assert found[0]["scope"]["ranks"] == [2]
    text = json.dumps(found)
    assert "element 17" in text and "KiB" in text


def test_a_rank_that_comes_5_ms_late_is_named_and_its_link_is_not(runs: dict[str, Ended]) -> None:
    report = runs["late"].report()
    (late,) = findings(report, "bench-late-rank")
    assert late["scope"]["ranks"] == [2]
    assert late["severity"] in ("warning", "critical")
    assert not findings(report, "bench-slow-link") and not findings(report, "bench-slow-host")

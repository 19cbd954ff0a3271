"""Whole runs of `oom reproduce` over Gloo: the report is right, and it comes out whatever one rank does."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distdoctor.ranks.status import STATUS_VARIABLE, read_status
from forkpool import ForkPool, Outcome, Run
from slowdown import scaled

pytest.importorskip("torch")
pytestmark = pytest.mark.ranks

SCENARIOS = Path(__file__).with_name("reproduce_scenarios.py")
WORLD_SIZE = 3
# Of a step: of runs in which a rank is lost, and of those that wait for nobody in vain.
DEADLINE_S = scaled(6)
PATIENCE_S = scaled(60)
ENDED_S = scaled(12) + DEADLINE_S + scaled(25)
"""Set-up, the steps before the fault, the deadline or the grace for the others, a look at the hearts, the report."""

LIMIT = ["--memory-limit", "32MiB"]
RUNS: dict[str, dict[str, Any]] = {
    "real": {"argv": ["real", "--strategy", "ddp,fsdp2,pp-1f1b"]},
    "real raising": {
        "world_size": 2,
        "faults": {0: "raise"},
        "strategies": ["none", "cp"],
        "argv": ["real", "--strategy", "tp,pp-1f1b,cp,fsdp2"],
    },
    "healthy": {"argv": ["small", "--strategy", "ddp,fsdp2"]},
    "greedy": {
        "faults": {1: "greedy"},
        "argv": ["small", "--strategy", "ddp", *LIMIT, "--snapshot", "SNAPSHOTS"],
    },
    "all greedy": {
        "faults": {0: "greedy", 1: "greedy", 2: "greedy"},
        "strategies": ["ddp"],
        "argv": ["small", "--strategy", "ddp,fsdp2", *LIMIT],
    },
    "raising": {"faults": {2: "raise"}, "strategies": ["ddp"], "argv": ["small", "--strategy", "ddp,fsdp2"]},
    "killed": {"faults": {2: "kill"}},
    "killed rank 0": {"faults": {0: "kill"}},
    "stopped": {"faults": {1: "stop"}},
    "hung": {"faults": {1: "hang"}},
    "never comes": {"faults": {2: "never comes"}, "join_timeout_s": scaled(5)},
    "never comes within the limit": {
        "faults": {1: "never comes"},
        "never_comes_s": ENDED_S,
        "argv": ["small", "--strategy", "ddp", "--time-limit", f"{scaled(5):g}s"],
    },
    "told differently": {"argv_of": {1: ["--strategy", "fsdp2"], 2: ["--steps", "3"]}},
    "cannot": {"faults": {0: "cannot", 1: "cannot", 2: "cannot"}},
}

LOST = {
    "killed": (2, "is gone"),
    "killed rank 0": (0, "is gone"),
    "stopped": (1, "is stopped"),
    "hung": (1, "has not arrived"),
}


class Ended:
    """One run, started; its report and outcomes once it has ended."""

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self.folder = folder
        self._outcomes: list[Outcome] | None = None

    def outcomes(self) -> list[Outcome]:
        if self._outcomes is None:
            self._outcomes = self._run.outcomes()
        return self._outcomes

    def report(self) -> dict[str, Any]:
        self.outcomes()
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
        return found

    def exit_code(self) -> int | None:
        """What `--launch` would end with."""
        self.outcomes()
        return read_status(self.folder / "exit-code")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    with ForkPool(torch=True, scenarios=SCENARIOS) as pool:
        started = {}
        for name, plan in RUNS.items():
            folder = tmp_path_factory.mktemp("reproduce")
            argv = [
                word.replace("SNAPSHOTS", str(folder / "snapshots"))
                for word in plan.get("argv", ["small", "--strategy", "ddp"])
            ]
            deadline_s = DEADLINE_S if name in LOST else PATIENCE_S
            ended = pool.start(
                "reproduce",
                world_size=plan.get("world_size", WORLD_SIZE),
                args={
                    "argv": [*argv, "--timeout", f"{deadline_s:g}s", "-o", f"{folder}/report.json"],
                    "faults": {str(rank): what for rank, what in plan.get("faults", {}).items()},
                    "strategies": plan.get("strategies"),
                    "join_timeout_s": plan.get("join_timeout_s"),
                    "never_comes_s": plan.get("never_comes_s"),
                    "argv_of": {str(rank): words for rank, words in plan.get("argv_of", {}).items()},
                    "stderr": f"{folder}/stderr",
                },
                environ={STATUS_VARIABLE: str(folder / "exit-code")},
                limit_s=scaled(120),
                store=True,
            )
            started[name] = Ended(ended, folder)
        yield started


def findings(report: dict[str, Any], check: str) -> list[dict[str, Any]]:
    return [finding for finding in report.get("findings", []) if finding["id"] == check]


def ranks_told(report: dict[str, Any]) -> list[dict[str, Any]]:
    (table,) = [table for table in report["tables"] if table["name"] == "oom-reproduced-raw"]
    names = [column["name"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


def test_real_strategies_are_measured_on_every_rank(runs: dict[str, Ended]) -> None:
    report = runs["real"].report()
    assert report["verdict"]["status"] == "ok", report["verdict"]
    rows = ranks_told(report)
    assert len(rows) == 3 * WORLD_SIZE
    for row in rows:
        assert (row["outcome"], row["steps"]) == ("ran", 2)
        assert row["peak_bytes"] > 1 << 20
        assert row["rss_peak_bytes"] - row["rss_before_bytes"] > 0
    assert all(outcome.value == 0 for outcome in runs["real"].outcomes())
    # A sharded job takes less than one that keeps everything everywhere.
    peak = {
        name: max(row["peak_bytes"] for row in rows if row["strategy"] == name) for name in ("ddp", "fsdp2")
    }
    assert peak["fsdp2"] < peak["ddp"]


def test_a_healthy_run_names_nobody(runs: dict[str, Ended]) -> None:
    report = runs["healthy"].report()
    assert report["verdict"]["status"] == "ok"
    assert "2 of 2 strategies ran" in report["verdict"]["title"]
    assert not report.get("culprits")
    by_category = next(table for table in report["tables"] if table["name"] == "oom-reproduced-categories")
    assert {"params", "grads", "optimizer"} <= {each["name"] for each in by_category["columns"]}


def test_the_rank_that_runs_out_of_memory_is_named_with_its_place(runs: dict[str, Ended]) -> None:
    report = runs["greedy"].report()
    (found,) = findings(report, "oom-reproduced-out-of-memory")
    assert found["severity"] == "critical"
    assert found["scope"]["ranks"] == [1]
    text = json.dumps(found)
    assert "step 2, forward, micro-batch 0" in text
    assert "64 MiB more" in text and "32 MiB" in text
    assert "own count of live CPU bytes" in text
    assert "parameters 1 MiB" in text
    assert not findings(report, "oom-reproduce-rank-lost")
    assert [culprit["rank"] for culprit in report["culprits"]] == [1]
    assert runs["greedy"].exit_code() == 11


def test_what_it_held_is_kept_where_it_was_asked_for(runs: dict[str, Ended]) -> None:
    runs["greedy"].outcomes()
    (path,) = (runs["greedy"].folder / "snapshots").iterdir()
    log = json.loads(gzip.decompress(path.read_bytes()))
    assert {"parameters", "optimizer states"} <= {storage["category"] for storage in log["storages"]}
    assert str(path) in json.dumps(runs["greedy"].report())


def test_after_all_ranks_ran_out_the_next_strategy_is_run(runs: dict[str, Ended]) -> None:
    report = runs["all greedy"].report()
    (found,) = findings(report, "oom-reproduced-out-of-memory")
    assert found["scope"]["ranks"] == [0, 1, 2]
    assert not report.get("culprits")
    outcomes = {(row["strategy"], row["outcome"]) for row in ranks_told(report)}
    assert outcomes == {("ddp", "out of memory"), ("fsdp2", "ran")}


def test_a_rank_that_raises_is_told_in_its_words_and_the_rest_goes_on(runs: dict[str, Ended]) -> None:
    report = runs["raising"].report()
    (found,) = findings(report, "oom-reproduce-failed")
    assert found["scope"]["ranks"] == [2]
    assert "this layer does not exist" in json.dumps(found)
    assert {row["outcome"] for row in ranks_told(report) if row["strategy"] == "fsdp2"} == {"ran"}


def test_a_rank_that_raises_lets_go_of_its_group_so_that_the_others_come_out(runs: dict[str, Ended]) -> None:
    report = runs["real raising"].report()
    outcomes = {(row["strategy"], row["rank"]): (row["outcome"], row["error"]) for row in ranks_told(report)}
    for name in ("tp", "pp-1f1b", "cp"):
        assert outcomes[name, 0] == ("failed", "ValueError: this layer does not exist")
        assert "closed by peer" in outcomes[name, 1][1]
    # The process groups, patches and caches of torch that a failed program leaves behind are gone.
    assert outcomes["fsdp2", 0][0] == outcomes["fsdp2", 1][0] == "ran"
    assert {tuple(each["scope"]["ranks"]) for each in findings(report, "oom-reproduce-failed")} == {(0,)}


@pytest.mark.parametrize("name", LOST)
def test_a_lost_rank_is_named_and_what_was_measured_is_kept(runs: dict[str, Ended], name: str) -> None:
    rank, words = LOST[name]
    report = runs[name].report()
    (found,) = findings(report, "oom-reproduce-rank-lost")
    assert found["severity"] == "critical"
    assert found["scope"]["ranks"] == [rank]
    assert words in json.dumps(found)
    assert all(row["steps"] == 1 and row["peak_bytes"] for row in ranks_told(report))
    assert runs[name].exit_code() == 11


def test_a_rank_that_never_comes_is_named(runs: dict[str, Ended]) -> None:
    (found,) = findings(runs["never comes"].report(), "oom-reproduce-rank-lost")
    assert found["scope"]["ranks"] == [2]
    assert runs["never comes"].exit_code() == 11


def test_the_time_limit_bounds_how_long_ranks_wait_for_one_another(runs: dict[str, Ended]) -> None:
    run = runs["never comes within the limit"]
    (found,) = findings(run.report(), "oom-reproduce-rank-lost")
    assert found["scope"]["ranks"] == [1]
    assert f"no progress for {scaled(5):g} s" in json.dumps(found)
    assert run.report()["subject"]["missing_ranks"] == [1]


@pytest.mark.parametrize("name", [name for name, plan in RUNS.items() if plan.get("faults")])
def test_nothing_is_left_running_long_after_the_deadline(runs: dict[str, Ended], name: str) -> None:
    faulty = {int(rank) for rank in RUNS[name]["faults"]}
    for outcome in runs[name].outcomes():
        assert outcome.ending != "hung" or outcome.rank in faulty
        if outcome.rank not in faulty:
            assert outcome.seconds < ENDED_S


def test_ranks_that_were_told_different_things_do_not_begin(runs: dict[str, Ended]) -> None:
    run = runs["told differently"]
    outcomes = run.outcomes()
    assert [outcome.value for outcome in outcomes] == [2, 2, 2]
    assert all(outcome.seconds < ENDED_S for outcome in outcomes)
    error = (run.folder / "stderr").read_text()
    assert (
        "--strategy is ddp on ranks 0,2, ddp,fsdp2 on rank 1; --steps is 2 on ranks 0-1, 3 on rank 2" in error
    )
    assert not (run.folder / "report.json").exists()


def test_what_cannot_run_here_is_unknown_and_no_fault(runs: dict[str, Ended]) -> None:
    report = runs["cannot"].report()
    assert report["verdict"]["status"] == "unknown"
    assert runs["cannot"].exit_code() == 3
    assert not report.get("findings")
    assert "this torch has no such thing" in report["verdict"]["title"]
    assert "this torch has no such thing" in json.dumps(report["skipped"])

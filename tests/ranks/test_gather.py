"""Gathering through files by real processes: who reports, who is missing, and what is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from distdoctor.ranks.processes import Life, life_of, read_stat
from slowdown import scaled

pytestmark = pytest.mark.ranks

SCRIPT = Path(__file__).with_name("gather_rank.py")
DEADLINE_S = scaled(1.0)


@dataclass
class Ranks:
    """Starts ranks as torchrun would and ends whatever is left of them."""

    temporary: Path
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    processes: dict[int, subprocess.Popen[str]] = field(default_factory=dict)

    def environ(self, rank: int, world_size: int, local_world_size: int) -> dict[str, str]:
        node = rank // local_world_size
        return {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("SLURM_", "KUBERNETES"))
            },
            "TMPDIR": str(self.temporary),
            "TORCHELASTIC_RUN_ID": self.run_id,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": str(rank % local_world_size),
            "LOCAL_WORLD_SIZE": str(local_world_size),
            "GROUP_RANK": str(node),
            "GROUP_WORLD_SIZE": str(-(-world_size // local_world_size)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
        }

    def start(
        self,
        do: Mapping[int, str],
        *,
        world_size: int,
        local_world_size: int | None = None,
        deadline_s: float = DEADLINE_S,
        variables: Mapping[str, str] | None = None,
        **plan: object,
    ) -> Ranks:
        """Start the ranks that `do` names; the others of the world never start."""
        local = local_world_size or world_size
        for rank, behaviour in do.items():
            wanted = {
                "do": behaviour,
                "deadline_s": deadline_s,
                "hostname": f"host-{'abcdefgh'[rank // local]}",
                **plan,
            }
            self.processes[rank] = subprocess.Popen(
                [sys.executable, str(SCRIPT), json.dumps(wanted)],
                env={**self.environ(rank, world_size, local), **(variables or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        return self

    def finish(self, limit_s: float = 30.0) -> dict[int, list[dict[str, Any]]]:
        """What each rank said, line by line, once all have ended by themselves."""
        said = {}
        for rank, process in self.processes.items():
            out, err = process.communicate(timeout=scaled(limit_s))
            assert "Traceback" not in err, err
            said[rank] = [json.loads(line) for line in out.splitlines()]
        return said

    def wait_until_ready(self, rank: int) -> None:
        stream = self.processes[rank].stdout
        assert stream is not None
        assert json.loads(stream.readline())

    def end(self, rank: int) -> None:
        self.processes[rank].kill()
        self.processes[rank].communicate()

    def left_behind(self) -> list[str]:
        return sorted(str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*"))


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    folder = tmp_path / "tmp"
    folder.mkdir()
    started = Ranks(folder)
    yield started
    still_there = [process for process in started.processes.values() if process.poll() is None]
    for process in still_there:
        process.kill()
    for process in started.processes.values():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=10)
    assert not still_there, "ranks were left behind"


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Started with the first test of this file and looked at in the last: a takeover takes some seconds."""
    started = Ranks(tmp_path_factory.mktemp("hung"))
    started.start({0: "hang", 1: "report"}, world_size=2, deadline_s=scaled(0.5))
    yield started
    for rank in started.processes:
        started.end(rank)


def all_report(world_size: int) -> dict[int, str]:
    return dict.fromkeys(range(world_size), "report")


def the_report(said: Mapping[int, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    reports = [line for lines in said.values() for line in lines if "reporter" in line]
    assert len(reports) == 1, f"{len(reports)} ranks reported"
    return reports[0]


@pytest.mark.usefixtures("hung")
def test_all_ranks_come_and_nothing_is_left(ranks: Ranks) -> None:
    said = ranks.start(all_report(4), world_size=4, deadline_s=30).finish()
    report = the_report(said)
    assert report["complete"]
    assert report["reporter"] == 0
    assert [report["payloads"][str(rank)]["rank"] for rank in range(4)] == [0, 1, 2, 3]
    assert all(said[rank] == [{"reported_by": 0, "exit_code": 11}] for rank in (1, 2, 3))
    assert ranks.left_behind() == []


def test_a_rank_that_never_starts_is_named(ranks: Ranks) -> None:
    do = all_report(4)
    del do[2]
    report = the_report(ranks.start(do, world_size=4).finish())
    assert report["missing"] == {"2": ["NEVER_SEEN", None, None, "no sign of its process"]}
    assert set(report["payloads"]) == {"0", "1", "3"}
    # A rank that comes late finds that it is over instead of reporting a second time.
    late = Ranks(ranks.temporary, run_id=ranks.run_id).start({2: "report"}, world_size=4)
    assert late.finish() == {2: [{"reported_by": 0, "exit_code": 11}]}


def test_a_job_can_be_looked_at_twice(ranks: Ranks) -> None:
    """A second look has the same key, and what the first one left must not silence it."""
    do = all_report(4)
    del do[3]
    the_report(ranks.start(do, world_size=4).finish())
    again = Ranks(ranks.temporary, run_id=ranks.run_id).start(do, world_size=4)
    report = the_report(again.finish())
    assert set(report["payloads"]) == {"0", "1", "2"}
    assert list(report["missing"]) == ["3"]


def test_folders_of_long_gone_launches_are_removed(ranks: Ranks) -> None:
    ages_s = {"a": 7200, "b": 0, "with-announcement": 7200}
    for name, age_s in ages_s.items():
        folder = ranks.temporary / f"distdoctor-{os.geteuid()}-{name}"
        folder.mkdir(mode=0o700)
        (folder / ("a.0.00" if name == "with-announcement" else "reported")).touch()
        os.utime(folder, (time.time() - age_s,) * 2)
    the_report(ranks.start({0: "report"}, world_size=1).finish())
    left = {path.name.split("-", 2)[2] for path in ranks.temporary.iterdir()}
    assert left == {"b", "with-announcement"}


def test_a_stopped_rank_is_named_and_ended(ranks: Ranks) -> None:
    said = ranks.start({**all_report(4), 3: "stop"}, world_size=4).finish()
    report = the_report(said)
    absence, host, pid, detail = report["missing"]["3"]
    assert (absence, host, pid) == ("STOPPED", "host-a", ranks.processes[3].pid)
    assert "state T" in detail
    assert ranks.processes[3].returncode == -signal.SIGKILL
    assert ranks.left_behind() == []


def test_a_rank_stopped_before_it_announced_itself_is_found_and_ended(ranks: Ranks) -> None:
    report = the_report(ranks.start({**all_report(2), 1: "stop before announcing"}, world_size=2).finish())
    absence, host, pid, detail = report["missing"]["1"]
    assert (absence, host, pid) == ("STOPPED", "host-a", ranks.processes[1].pid)
    assert "never announced itself" in detail
    assert ranks.processes[1].returncode == -signal.SIGKILL


def test_a_killed_rank_is_named_without_waiting_for_the_deadline(ranks: Ranks) -> None:
    report = the_report(ranks.start({**all_report(4), 1: "die"}, world_size=4, deadline_s=60).finish())
    absence, _, pid, detail = report["missing"]["1"]
    assert (absence, pid) == ("EXITED", ranks.processes[1].pid)
    assert "is gone" in detail
    assert report["waited_s"] < 60


@pytest.mark.parametrize(("fate", "absence"), [("die", "EXITED"), ("stop", "STOPPED")])
def test_the_lowest_living_rank_takes_over_from_rank_0(ranks: Ranks, fate: str, absence: str) -> None:
    said = ranks.start({**all_report(4), 0: fate, 1: "die"}, world_size=4).finish()
    report = the_report(said)
    assert report["reporter"] == 2
    assert report["missing"]["0"][0] == absence
    assert set(report["payloads"]) == {"2", "3"}
    assert said[3] == [{"reported_by": 2, "exit_code": 11}]


def test_garbage_is_named_as_such(ranks: Ranks) -> None:
    report = the_report(
        ranks.start({**all_report(2), 1: "send garbage"}, world_size=2, deadline_s=30).finish()
    )
    absence, _, _, detail = report["missing"]["1"]
    assert absence == "UNREADABLE"
    assert "not a result" in detail


def test_one_rank_per_host_and_one_per_torch_lead(ranks: Ranks) -> None:
    for rank in range(4):
        ranks.start({rank: "elect"}, world_size=4, deadline_s=30, torch=f"/venv-{rank % 2}")
    said = ranks.finish()
    assert all(said[rank][0]["peers"] == [0, 1, 2, 3] for rank in range(4))
    assert [said[rank][0]["host"] for rank in range(4)] == [True, False, False, False]
    assert [said[rank][0]["torch"] for rank in range(4)] == [True, True, False, False]


def test_what_an_earlier_launch_left_is_not_taken_for_this_one(ranks: Ranks) -> None:
    # The default rendezvous of torchrun has the same run id and port each time.
    old = Ranks(ranks.temporary, run_id="none").start(
        {0: "die", 1: "hang", 2: "hang"}, world_size=3, deadline_s=60, variables={"GROUP_RANK": "0"}
    )
    for rank in (1, 2):
        old.wait_until_ready(rank)
    old.processes[0].wait(timeout=scaled(20))
    for rank in range(3):
        old.end(rank)
    _age_announcements(ranks.temporary, seconds=3600)
    new = ranks
    new.run_id = "none"
    report = the_report(new.start({0: "report", 1: "report"}, world_size=3).finish())
    assert set(report["payloads"]) == {"0", "1"}
    assert report["missing"]["2"][0] == "EARLIER_LAUNCH"


def _age_announcements(folder: Path, *, seconds: float) -> None:
    """As if the launch had been `seconds` earlier: by the start time that its announcements tell."""
    changed = 0
    for path in folder.rglob("a.*"):
        announcement = json.loads(path.read_bytes())
        announcement["started_s"] -= seconds
        path.write_text(json.dumps(announcement))
        changed += 1
    assert changed == 3


def test_an_earlier_word_that_the_report_is_out_does_not_count(ranks: Ranks) -> None:
    ranks.run_id = "none"
    (report,) = [
        the_report(Ranks(ranks.temporary, run_id="none").start({0: "report"}, world_size=2).finish())
    ]
    assert "1" in report["missing"]
    (word,) = ranks.temporary.rglob("reported")
    old = json.loads(word.read_bytes())
    old["by"]["started_s"] -= 3600
    word.write_text(json.dumps(old))
    again = the_report(ranks.start(all_report(2), world_size=2, deadline_s=30).finish())
    assert again["complete"]
    assert ranks.left_behind() == []


def make_link(folder: Path) -> None:
    target = folder.parent / "elsewhere"
    target.mkdir(mode=0o700)
    folder.symlink_to(target)


def make_open_to_others(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def make_somebody_elses(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12_345, 12_345)


def make_file(folder: Path) -> None:
    folder.write_text("")


@pytest.mark.parametrize("hostile", [make_link, make_open_to_others, make_somebody_elses, make_file])
def test_a_folder_that_is_not_ours_alone_is_refused(ranks: Ranks, hostile: Any) -> None:
    if hostile is make_somebody_elses and os.geteuid() != 0:
        pytest.skip("needs root to make a folder of another user")
    ranks.start({0: "report"}, world_size=1)
    probe = ranks.finish()
    assert probe[0][0]["complete"]
    ranks.start({0: "hang"}, world_size=1)
    ranks.wait_until_ready(0)
    (name,) = [path.name for path in ranks.temporary.iterdir()]
    ranks.end(0)
    for path in (ranks.temporary / name).iterdir():
        path.unlink()
    (ranks.temporary / name).rmdir()
    hostile(ranks.temporary / name)
    (line,) = ranks.start({0: "report"}, world_size=1).finish()[0]
    assert line["kind"] == "OutputError"
    assert name in line["error"]


def test_a_shared_folder_that_cannot_be_made_is_one_clear_error(ranks: Ranks) -> None:
    (line,) = ranks.start({0: "report"}, world_size=1, folder="/proc/nowhere").finish()[0]
    assert line["kind"] == "OutputError"
    assert "/proc/nowhere" in line["error"]


def test_hosts_meet_in_a_shared_folder(ranks: Ranks, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    said = ranks.start(
        all_report(4), world_size=4, local_world_size=2, folder=str(shared), deadline_s=30
    ).finish()
    report = the_report(said)
    assert report["complete"]
    assert report["hosts_seen"] == ["host-a", "host-b"]
    assert list(shared.iterdir()) == []
    assert ranks.left_behind() == []


def test_a_host_that_never_came_is_named_from_the_node_list(ranks: Ranks, tmp_path: Path) -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "host-[a-b]"}
    slurm["SLURM_JOB_NODELIST"] = "host-a,host-b,host-c"
    do = {rank: "report" for rank in range(6) if rank // 2 != 1}
    report = the_report(
        ranks.start(
            do, world_size=6, local_world_size=2, folder=str(tmp_path / "shared"), variables=slurm
        ).finish()
    )
    assert report["hosts_absent"] == ["host-b"]
    assert [report["missing"][rank][:2] for rank in ("2", "3")] == [["NEVER_SEEN", "host-b"]] * 2


def test_without_a_shared_folder_only_this_host_is_gathered(ranks: Ranks) -> None:
    said = ranks.start(all_report(4), world_size=4, local_world_size=2, deadline_s=30).finish()
    report = the_report(said)
    assert report["not_gathered"] == [2, 3]
    assert report["missing"] == {}
    assert not report["complete"]
    assert "--gather DIR" in report["hint"]
    assert set(report["payloads"]) == {"0", "1"}


def test_two_processes_that_claim_one_rank_are_noticed(ranks: Ranks) -> None:
    twin = Ranks(ranks.temporary, run_id=ranks.run_id)
    twin.start({1: "hang"}, world_size=2, deadline_s=60)
    twin.wait_until_ready(1)
    report = the_report(ranks.start(all_report(2), world_size=2, deadline_s=scaled(3)).finish())
    twin.end(1)
    assert report["doubles"] == [1]


def test_when_the_launcher_ends_the_job_the_report_comes_at_once(ranks: Ranks) -> None:
    """torchrun sends SIGTERM to all when one rank dies."""
    ranks.start(
        {0: "report, hurried by SIGTERM", 1: "report, hurried by SIGTERM", 2: "hang"},
        world_size=3,
        deadline_s=60,
    )
    for rank in range(3):
        ranks.wait_until_ready(rank)
    ranks.end(2)
    began = time.monotonic()
    for rank in range(3):
        ranks.processes[rank].terminate()
    report = the_report(ranks.finish())
    assert set(report["payloads"]) == {"0", "1"}
    assert report["missing"]["2"][0] == "EXITED"
    assert time.monotonic() - began < scaled(20)


def test_last_words_are_spoken_while_the_main_thread_is_stuck(ranks: Ranks) -> None:
    ranks.start({0: "work too long", 1: "hang"}, world_size=2, deadline_s=60)
    for rank in range(2):
        ranks.wait_until_ready(rank)
    ranks.processes[0].terminate()
    out, _ = ranks.processes[0].communicate(timeout=scaled(20))
    report = json.loads(out)
    assert report["missing"]["1"][0] == "SILENT"
    assert "is running" in report["missing"]["1"][3]
    ranks.end(1)


def start_ticks(pid: int) -> int:
    stat = read_stat(pid)
    assert stat is not None
    return stat.start_ticks


def test_a_hung_rank_0_is_reported_by_rank_1(hung: Ranks) -> None:
    out, _ = hung.processes[1].communicate(timeout=scaled(30))
    report = json.loads(out)
    assert report["reporter"] == 1
    assert report["missing"]["0"][0] == "SILENT"
    pid = hung.processes[0].pid
    assert life_of(pid, start_ticks(pid)) is Life.RUNNING, "only stopped ranks are ended"

"""Looking at processes of this host, ending stopped ranks, and keeping still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distdoctor.ranks.deadline import Deadline
from distdoctor.ranks.ending import StoppedRank, end_stopped_peers
from distdoctor.ranks.processes import (
    Life,
    ProcessStat,
    entered_container_from_outside,
    find_ranks,
    launcher_process,
    life_of,
    read_environ,
    read_stat,
    start_time_s,
)
from slowdown import scaled

pytestmark = pytest.mark.ranks

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `sleep`-like processes under the name of a script, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(name: str = "distdoctor", **variables: str) -> subprocess.Popen[bytes]:
        script = tmp_path / name
        script.write_text("import time\nopen(__file__ + '.ready', 'w').close()\ntime.sleep(600)\n")
        ready = tmp_path / f"{name}.ready"
        ready.unlink(missing_ok=True)
        process = subprocess.Popen([sys.executable, str(script)], env={**os.environ, **variables})
        started.append(process)
        wait_until(ready.exists)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def wait_until(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + scaled(10)
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


def stat_of(process: subprocess.Popen[bytes]) -> ProcessStat:
    stat = read_stat(process.pid)
    assert stat is not None
    return stat


def stopped(process: subprocess.Popen[bytes]) -> StoppedRank:
    process.send_signal(signal.SIGSTOP)
    stat = stat_of(process)
    wait_until(lambda: life_of(stat.pid, stat.start_ticks) is Life.STOPPED)
    return StoppedRank(rank=1, pid=stat.pid, start_ticks=stat.start_ticks)


def test_the_life_of_a_process(start: Start) -> None:
    process = start()
    stat = stat_of(process)
    assert stat.parent_pid == os.getpid()
    assert life_of(stat.pid, stat.start_ticks) is Life.RUNNING
    assert life_of(stat.pid, stat.start_ticks + 1) is Life.EXITED, "a reused id is another process"
    assert abs(start_time_s(stat.start_ticks) - time.time()) < scaled(30)
    stopped(process)
    process.send_signal(signal.SIGKILL)
    wait_until(lambda: life_of(stat.pid, stat.start_ticks) is Life.EXITED)  # a zombie
    process.wait()
    assert life_of(stat.pid, stat.start_ticks) is Life.EXITED
    assert read_stat(stat.pid) is None


def test_ranks_of_a_launch_are_found_by_their_variables(start: Start) -> None:
    job = {"TORCHELASTIC_RUN_ID": f"run-{os.getpid()}", "MASTER_PORT": "29500"}
    one = start(RANK="1", **job)
    start(RANK="2", TORCHELASTIC_RUN_ID="another", MASTER_PORT="29500")
    start(RANK="x", **job)
    found = find_ranks("RANK", job)
    assert {rank: stat.pid for rank, stat in found.items()} == {1: one.pid}
    environ = read_environ(one.pid)
    assert environ is not None and environ["RANK"] == "1"


def test_a_stopped_rank_is_ended_by_its_registered_process(start: Start) -> None:
    process = start()
    peer = stopped(process)
    assert end_stopped_peers([peer], still_stopped_s=0.1) == (peer,)
    assert process.wait(timeout=scaled(10)) == -signal.SIGKILL


def test_a_rank_that_could_not_register_is_ended_by_its_variables(start: Start) -> None:
    job = {"TORCHELASTIC_RUN_ID": f"run-{os.getpid()}"}
    process = start(RANK="3", **job)
    stopped(process)
    ended = end_stopped_peers(rank_variable="RANK", job_variables=job, still_stopped_s=0.1)
    assert [(peer.rank, peer.pid) for peer in ended] == [(3, process.pid)]


def test_a_stopped_rank_in_a_wrapper_is_found(tmp_path: Path) -> None:
    """`torchrun --no-python wrapper.sh` starts a shell, and the shell starts the rank."""
    job = {"TORCHELASTIC_RUN_ID": f"wrapped-{os.getpid()}"}
    script = tmp_path / "distdoctor"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n")
    wrapper = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} {script}; exit 5"], env={**os.environ, **job, "RANK": "2"}
    )
    wait_until(lambda: any(stat.state == "T" for stat in find_ranks("RANK", job).values()))
    (peer,) = end_stopped_peers(rank_variable="RANK", job_variables=job, still_stopped_s=0.1)
    assert peer.rank == 2
    assert peer.pid != wrapper.pid
    assert wrapper.wait(timeout=scaled(10)) == 5


def test_a_running_rank_is_left_alone(start: Start) -> None:
    process = start()
    stat = stat_of(process)
    peer = StoppedRank(rank=1, pid=stat.pid, start_ticks=stat.start_ticks)
    assert end_stopped_peers([peer], still_stopped_s=0.1) == ()
    assert process.poll() is None


def test_a_stopped_process_that_is_not_ours_is_left_alone(start: Start) -> None:
    """What a peer registered is not taken on trust: neither a stranger's id nor a reused one."""
    editor = stopped(start("editor"))
    assert end_stopped_peers([editor], still_stopped_s=0.1) == ()
    ours = stopped(start())
    reused = StoppedRank(rank=1, pid=ours.pid, start_ticks=ours.start_ticks + 1)
    assert end_stopped_peers([reused], still_stopped_s=0.1) == ()
    assert life_of(ours.pid, ours.start_ticks) is Life.STOPPED


def test_a_rank_that_is_continued_meanwhile_is_left_alone(start: Start) -> None:
    """A scheduler that suspends a job stops its processes one after the other, and continues them."""
    process = start()
    peer = stopped(process)
    script = f"import os, signal, time; time.sleep(0.2); os.kill({process.pid}, signal.SIGCONT)"
    waker = subprocess.Popen([sys.executable, "-c", script])
    assert end_stopped_peers([peer], still_stopped_s=scaled(2.0)) == ()
    waker.wait()
    assert process.poll() is None


def test_the_launcher_is_the_nearest_ancestor_without_the_variable() -> None:
    script = (
        "from distdoctor.ranks.processes import launcher_process; print(launcher_process('SOME_RANK').pid)"
    )
    wrapped = ["sh", "-c", f'{sys.executable} -c "{script}"; true']
    done = subprocess.run(
        wrapped, env={**os.environ, "SOME_RANK": "0"}, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == os.getpid()
    assert launcher_process("PATH") is None or launcher_process("PATH") != read_stat(os.getpid())


def test_this_process_was_not_put_into_a_container() -> None:
    assert not entered_container_from_outside("A_VARIABLE_THAT_NOBODY_SETS")


def test_a_silenced_rank_can_be_given_its_voice_back() -> None:
    script = (
        "import os\n"
        "from distdoctor.ranks.quiet import silence_other_ranks\n"
        "silence = silence_other_ranks(os.environ)\n"
        "print('unheard'); os.system('echo unheard; echo unheard >&2')\n"
        "assert silence.silent\n"
        "silence.end(); silence.end()\n"
        "print('heard')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "RANK": "1", "WORLD_SIZE": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("heard\n", "")


def test_a_deadline_only_comes_closer() -> None:
    deadline = Deadline.after(60)
    assert not deadline.expired
    assert 59 < deadline.remaining_s <= 60
    assert deadline.sooner(120) == deadline
    assert deadline.sooner(1).remaining_s <= 1
    past = Deadline.after(-5)
    assert past.expired
    assert past.remaining_s == 0

"""A live process as a world: a real child with its own variables and libraries, and everything that is none."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from distdoctor.env.collect.live_process import (
    find_job_process,
    find_job_processes,
    mapped_libraries,
    parse_environ,
    parse_maps,
    world_of_process,
)
from distdoctor.env.collect.nccl import collect_nccl
from distdoctor.env.collect.variables import collect_variables
from distdoctor.errors import InputError
from tiny_elf import build_nccl

# Maps a file as a loader would (readable, private), says so, and waits for its standard input to close.
_CHILD = """
import mmap, os, sys
for path in sys.argv[1:]:
    handle = open(path, "rb")
    kept = mmap.mmap(handle.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    globals()["kept_" + str(len(globals()))] = kept
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def child(*libraries: Path, **environ: str) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, *map(str, libraries)],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=10)


def test_a_childs_own_variables_and_library_are_read(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(build_nccl("2.26.2"))
    with child(library, RANK="3", WORLD_SIZE="8", LOCAL_RANK="3", NCCL_DEBUG="INFO") as pid:
        world = world_of_process(pid)
        assert world.environ["NCCL_DEBUG"] == "INFO"
        assert world.pid == str(pid)
        assert mapped_libraries(pid) == (str(library),)
        variables = collect_variables(world)
        assert variables.environment == {
            "LOCAL_RANK": "3", "NCCL_DEBUG": "INFO", "RANK": "3", "WORLD_SIZE": "8",
        }  # fmt: skip
        assert (variables.whose or "").startswith(f"PID {pid} (")
        nccl = collect_nccl(world, None, None, None)
        assert (nccl.loaded_path, nccl.loaded_version, nccl.loaded_deleted) == (str(library), "2.26.2", False)


def test_a_library_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(build_nccl("2.26.2"))
    with child(library) as pid:
        library.unlink()
        library.write_bytes(build_nccl("2.28.9"))
        nccl = collect_nccl(world_of_process(pid), None, None, None)
        assert nccl.loaded_path == str(library)
        assert nccl.loaded_deleted is True
        assert nccl.loaded_version is None


def test_auto_takes_the_lowest_local_rank_and_names_the_others() -> None:
    with (
        child(RANK="9", WORLD_SIZE="16", LOCAL_RANK="1") as second,
        child(RANK="8", WORLD_SIZE="16", LOCAL_RANK="0") as first,
    ):
        said: list[str] = []
        chosen = find_job_process(said.append)
        if chosen not in (first, second):
            pytest.skip("other ranks run on this machine")
        assert chosen == first
        assert f"PID {second}" in said[0]
        assert "rank 9" in said[0]


def test_a_process_with_the_library_but_no_rank_counts(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    library.write_bytes(build_nccl("2.26.2"))
    with child(library) as pid:
        processes, _ = find_job_processes()
        ranks = [each for each in processes if each.rank is not None]
        assert ranks or pid in [each.pid for each in processes]


def fake_proc(root: Path, *processes: tuple[int, int, str, str, str]) -> Path:
    """A /proc of (pid, parent, state, command line, environ)."""
    for pid, parent, state, command, environ in processes:
        folder = root / str(pid)
        folder.mkdir(parents=True)
        (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
        (folder / "comm").write_text(command.split(" ")[0].rpartition("/")[2] + "\n")
        (folder / "environ").write_bytes(environ.replace(" ", "\0").encode())
        (folder / "stat").write_text(f"{pid} (a ) b) {state} {parent} 0 0 0 -1 0 0\n")
        (folder / "maps").write_text("")
    return root


def test_workers_agents_zombies_and_ourselves_are_no_ranks(tmp_path: Path) -> None:
    rank = "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0"
    proc = fake_proc(
        tmp_path,
        (100, 1, "S", "/usr/bin/torchrun train.py", ""),
        (101, 100, "R", "/usr/bin/python train.py", rank),
        (102, 101, "S", "/usr/bin/python train.py", rank),
        (103, 100, "S", "/usr/bin/python -m distdoctor env", rank),
        (104, 100, "S", "/usr/bin/python /opt/bin/distdoctor env", rank),
        (105, 100, "Z", "/usr/bin/python train.py", rank),
        (106, 100, "S", "/usr/bin/python /home/distdoctor/train.py", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1"),
        (107, 1, "S", "/usr/bin/vim train.py", rank),
    )
    processes, hidden = find_job_processes(proc)
    assert [each.pid for each in processes] == [101, 106]
    assert hidden == 0
    assert processes[0].describe() == "PID 101 (rank 0, local rank 0: /usr/bin/python train.py)"


def test_a_pid_that_is_gone_is_one_clear_line() -> None:
    with child() as pid:
        pass
    with pytest.raises(InputError, match=f"there is no process {pid}"):
        world_of_process(pid)
    with pytest.raises(InputError, match="there is no process"):
        world_of_process(0)


def test_a_zombie_is_refused() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        deadline = time.monotonic() + 10
        while ") Z " not in Path(f"/proc/{pid}/stat").read_text() and time.monotonic() < deadline:
            os.sched_yield()
        with pytest.raises(InputError, match="zombie"):
            world_of_process(pid)
    finally:
        os.waitpid(pid, 0)


def test_a_kernel_thread_is_refused() -> None:
    if Path("/proc/2/comm").exists() and Path("/proc/2/comm").read_text().strip() == "kthreadd":
        with pytest.raises(InputError, match="kernel thread"):
            world_of_process(2)
    else:
        pytest.skip("no kernel threads in this PID namespace")


def test_a_process_that_may_not_be_read_is_refused() -> None:
    try:
        os.listdir("/proc/1/root")
    except PermissionError:
        with pytest.raises(InputError, match="belongs to somebody else"):
            world_of_process(1)
    else:
        pytest.skip("this user may read process 1")


def test_environ_and_maps_are_parsed_as_the_kernel_writes_them() -> None:
    assert parse_environ(b"A=1\0B=x=y\0A=2\0=odd\0nothing\0C=\xff\0") == {"A": "1", "B": "x=y", "C": "\ufffd"}
    text = (
        "7f00-7f01 r--p 00000000 00:2c 1234                       /a b/libnccl.so.2\n"
        "7f01-7f02 r-xp 00001000 00:2c 1234                       /a b/libnccl.so.2\n"
        "7f02-7f03 r--p 00000000 00:2c 99                         /x/libtorch_cuda.so (deleted)\n"
        "7f03-7f04 rw-p 00000000 00:00 0                          [heap]\n"
        "7f04-7f05 r--p 00000000 00:2c 98                         /x/libnothing.so\n"
    )
    assert parse_maps(text) == ("/a b/libnccl.so.2", "/x/libtorch_cuda.so (deleted)")

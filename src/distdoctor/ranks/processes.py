"""What is a rank's process on this host doing, and which process is it? Read from /proc; Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePath

PROC = Path("/proc")

# The kernel's limit for all arguments and variables together is 6 MiB (ARG_MAX at most 3/4 of 8 MiB stack).
_MAX_ENVIRON_BYTES = 6 << 20

# A rank's launcher is its parent, or behind a shell and a wrapper or two. Our own bound.
_MAX_ANCESTORS = 32

# `python -X faulthandler -m distdoctor env …`: our name stands among the first words.
NAME_WITHIN_WORDS = 8


class Life(str, Enum):
    """State of a process, as far as a rank is concerned."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Stopped by a signal (SIGSTOP, SIGTSTP): state T."""
    TRACED = "traced"
    """Held by a debugger: state t."""
    BLOCKED = "blocked"
    """Waits in the kernel and cannot be interrupted (disk, NFS, driver): state D."""
    EXITED = "exited"
    """Gone, or a zombie that its parent has not collected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """The fields of /proc/PID/stat that identify a process and say what it does."""

    pid: int
    parent_pid: int
    state: str
    """One letter, as proc(5) has it."""
    start_ticks: int
    """Clock ticks since boot: with the pid it names one process for as long as the machine runs."""


def read_stat(pid: int) -> ProcessStat | None:
    """The process with this id, or None when there is none (or /proc is not readable)."""
    try:
        text = (PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = text[text.rfind(")") + 2 :].split()
    try:
        return ProcessStat(pid=pid, state=fields[0], parent_pid=int(fields[1]), start_ticks=int(fields[19]))
    except (IndexError, ValueError):
        return None


def life_of(pid: int, start_ticks: int) -> Life:
    """What the process that had this id and start time is doing; a reused id counts as exited."""
    stat = read_stat(pid)
    if stat is None or stat.start_ticks != start_ticks:
        return Life.EXITED
    match stat.state:
        case "T":
            return Life.STOPPED
        case "t":
            return Life.TRACED
        case "D":
            return Life.BLOCKED
        case "Z" | "X" | "x":
            return Life.EXITED
        case _:
            return Life.RUNNING


def start_time_s(start_ticks: int) -> float:
    """Seconds since the epoch at which a process started, from its start ticks and CLOCK_BOOTTIME."""
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def boot_id() -> str:
    """The kernel's id of this boot, equal in all containers of a machine; empty when it cannot be read."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text("ascii", "replace").strip()[:64]
    except OSError:
        return ""


def pid_namespace() -> str:
    """Name of the pid namespace: only within one do process ids mean the same; empty when unreadable."""
    try:
        return str((PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def read_environ(pid: int) -> dict[str, str] | None:
    """Variables that a process was started with, or None when they cannot be read (gone, another user's)."""
    try:
        with (PROC / str(pid) / "environ").open("rb") as stream:
            raw = stream.read(_MAX_ENVIRON_BYTES)
    except OSError:
        return None
    pairs = (entry.partition("=") for entry in raw.decode("utf-8", "replace").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def read_command_line(pid: int) -> tuple[str, ...]:
    """Arguments of a process, empty when they cannot be read."""
    try:
        with (PROC / str(pid) / "cmdline").open("rb") as stream:
            raw = stream.read(_MAX_ENVIRON_BYTES)
    except OSError:
        return ()
    return tuple(raw.decode("utf-8", "replace").rstrip("\0").split("\0"))


def own_pids() -> Iterator[int]:
    """Ids of all processes that belong to our effective user."""
    uid = os.geteuid()
    for entry in os.scandir(PROC):
        if not entry.name.isdecimal():
            continue
        try:
            if entry.stat().st_uid == uid:
                yield int(entry.name)
        except OSError:
            continue


def launcher_process(variable: str) -> ProcessStat | None:
    """The nearest ancestor that was started without `variable`: who launched the ranks of this host.

    All ranks that one torchrun agent, mpirun or slurmstepd started share it, whatever wrapper each runs in.
    An ancestor whose variables are not ours to read ends the walk, for a launcher may run as root.
    """
    pid = os.getppid()
    for _ in range(_MAX_ANCESTORS):
        stat = read_stat(pid)
        if stat is None:
            return None
        environ = read_environ(pid)
        if environ is None or variable not in environ:
            return stat
        pid = stat.parent_pid
    return None


def find_ranks(rank_variable: str, job_variables: Mapping[str, str]) -> dict[int, ProcessStat]:
    """Processes of ours on this host that were launched as ranks of the same job, by rank.

    Every child of a rank inherits its variables, and a rank may run in a wrapper. Of several processes with one
    rank the topmost that runs distdoctor is meant, or the topmost of all.
    """
    carriers: dict[int, int] = {}
    stats: dict[int, ProcessStat] = {}
    for pid in own_pids():
        environ = read_environ(pid)
        if not environ or any(environ.get(name) != value for name, value in job_variables.items()):
            continue
        number = environ.get(rank_variable, "")
        stat = read_stat(pid) if number.isdecimal() else None
        if stat is not None:
            carriers[pid] = int(number)
            stats[pid] = stat
    ours = {pid for pid in carriers if runs_distdoctor(read_command_line(pid))}
    ranks: dict[int, ProcessStat] = {}
    for chosen in (carriers.keys(), ours):
        for pid in chosen:
            parent = stats[pid].parent_pid
            if parent not in chosen or carriers[parent] != carriers[pid]:
                ranks[carriers[pid]] = stats[pid]
    return ranks


def runs_distdoctor(command_line: tuple[str, ...]) -> bool:
    """Whether `distdoctor`, by path or by `-m`, is among the first words of a command line."""
    return any(PurePath(word).name == "distdoctor" for word in command_line[:NAME_WITHIN_WORDS])


def entered_container_from_outside(variable: str) -> bool:
    """Whether this process was put into a container by `kubectl exec` or `docker exec`.

    Such a process inherits the container's `variable` (RANK of a PyTorchJob, say) although nobody launched
    it as that rank. Seen by two signs: PID 1 has the same value, and PID 1 is no ancestor of ours.
    """
    container = read_environ(1)
    if container is None or variable not in container or container[variable] != os.environ.get(variable):
        return False
    pid = os.getpid()
    for _ in range(_MAX_ANCESTORS):
        if pid <= 1:
            return pid == 0
        stat = read_stat(pid)
        if stat is None:
            return False
        pid = stat.parent_pid
    return False

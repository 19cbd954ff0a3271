"""What may the job's process do: resource limits, CPUs, capabilities, cgroup, shared memory."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from distdoctor.env.collect.cgroup import read_cgroup
from distdoctor.env.collect.live_process import read_mapped_libraries
from distdoctor.env.collect.world import World
from distdoctor.env.cpu_list import parse_cpu_list
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.facts.process import UNLIMITED, ProcessFacts
from distdoctor.report.model import SkipCause

# RLIM_INFINITY is 2^64 - 1 for the kernel and 2^63 - 1 for some emulations; no real limit comes near.
NO_LIMIT_FROM = 1 << 62

# A command line is shown, not parsed; the rest of a long one says nothing more.
MAX_COMMAND_CHARS = 500

# Name, soft limit, hard limit, in columns that are at least two spaces apart.
LIMIT_LINE = re.compile(r"^(Max(?: [a-z]+)+) {2,}(\S+) +(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One line of /proc/<pid>/limits; -1 is unlimited."""

    soft: int
    hard: int


def collect_process(world: World) -> ProcessFacts:
    """Limits, affinity, capabilities, cgroup and /dev/shm of the process that `world` asks about.

    Limits in bytes or counts, -1 for unlimited. Nothing is raised: what cannot be read is None with its reason.
    """
    reading = Reading()
    _read_limits(world, reading)
    _read_status(world, reading)
    reading.take("command", world.proc("cmdline"), lambda: _command(world.read_proc("cmdline")))
    shm = cache(lambda: world.statvfs("/dev/shm"))
    reading.take("shm_total_bytes", 'statvfs("/dev/shm")', lambda: shm()[0])
    reading.take("shm_free_bytes", 'statvfs("/dev/shm")', lambda: shm()[1])
    read_cgroup(world, reading)
    if world.pid != "self":
        reading.take("mapped_libraries", world.proc("maps"), lambda: read_mapped_libraries(world))
    return ProcessFacts(**reading.fields())


def parse_limits(text: str) -> dict[str, Limit]:
    """Limits by the kernel's name ("Max open files"). A line with an unreadable number is left out."""
    limits: dict[str, Limit] = {}
    for name, soft, hard in LIMIT_LINE.findall(text):
        try:
            limits[name] = Limit(soft=_limit_number(soft), hard=_limit_number(hard))
        except ValueError:
            continue
    return limits


def _read_limits(world: World, reading: Reading) -> None:
    source = world.proc("limits")
    limits = cache(lambda: parse_limits(world.read_proc("limits")))

    def limit(name: str) -> Limit:
        if name not in limits():
            raise UnreadError(SkipCause.UNSUPPORTED, f"{source} has no readable `{name}`")
        return limits()[name]

    reading.take("memlock_bytes", source, lambda: limit("Max locked memory").soft)
    reading.take("memlock_hard_bytes", source, lambda: limit("Max locked memory").hard)
    reading.take("nofile", source, lambda: limit("Max open files").soft)
    reading.take("nofile_hard", source, lambda: limit("Max open files").hard)
    reading.take("stack_bytes", source, lambda: limit("Max stack size").soft)
    reading.take("nproc", source, lambda: limit("Max processes").soft)


def _read_status(world: World, reading: Reading) -> None:
    source = world.proc("status")
    status = cache(lambda: parse_status(world.read_proc("status")))

    def field(name: str) -> str:
        if name not in status():
            raise UnreadError(SkipCause.UNSUPPORTED, f"{source} has no `{name}`")
        return status()[name]

    reading.take("pid", source, lambda: int(world.pid) if world.pid.isdigit() else int(field("Pid")))
    reading.take("is_root", source, lambda: _effective_uid(field("Uid")) == 0)
    reading.take("affinity_cpus", source, lambda: parse_cpu_list(field("Cpus_allowed_list")))
    reading.take(
        "parent_affinity_cpus", "/proc/<parent>/status", lambda: _affinity_of(world, int(field("PPid")))
    )
    reading.take("effective_capabilities", source, lambda: int(field("CapEff"), 16))


def _effective_uid(text: str) -> int:
    """Of "real effective saved file-system"."""
    _, effective, *_ = text.split()
    return int(effective)


def _affinity_of(world: World, pid: int) -> tuple[int, ...]:
    if pid <= 0:
        raise UnreadError(SkipCause.IN_CONTAINER, "the parent process lives outside this container")
    status = parse_status(dataclasses.replace(world, pid=str(pid)).read_proc("status"))
    return parse_cpu_list(status.get("Cpus_allowed_list", ""))


def parse_status(text: str) -> Mapping[str, str]:
    """Fields of /proc/<pid>/status by name."""
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _limit_number(text: str) -> int:
    if text == "unlimited":
        return UNLIMITED
    value = int(text)
    if value < 0:
        raise ValueError(f"negative limit {value}")
    return UNLIMITED if value >= NO_LIMIT_FROM else value


def _command(text: str) -> str:
    command = " ".join(part for part in text.split("\0") if part)
    if not command:
        raise UnreadError(SkipCause.UNSUPPORTED, "the command line is empty (a kernel thread, or ended)")
    return command[:MAX_COMMAND_CHARS]

"""Memory of the host: a process that was killed, an allocation that failed, shared memory that ran full."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distdoctor.oom.facts.events import Family
from distdoctor.oom.messages.draft import Draft
from distdoctor.oom.messages.lines import LogLine
from distdoctor.oom.messages.mentions import is_code, is_comment, speaks_of_a_code
from distdoctor.oom.messages.sizes import ABSURD_BYTES, SIZE, parse_size, size_in, whole_bytes

# Something says that memory was the reason.
_CERTAIN = re.compile(
    r"(?:[Oo]ut of memory|Memory cgroup out of memory): Kill(?:ed)? process (?P<pid>\d{1,10})"
    r"|\boom-kill:constraint=|invoked oom-killer|systemd-oomd.{0,60}[Kk]ill"
    r"|[Dd]etected \d+ oom[_-]kill event|killed by the cgroup out-of-memory handler|tasks? [\d,-]+: Out Of Memory"
    r"|[Ee]xceeded (?:job|step|the job's) memory limit|exceeded (?:its |the )?memory limit|TERM_MEMLIMIT"
    r"|\bOOMKilled\b|oom_kill_process|PBS: job killed: (?:v?mem|pmem)"
    r"|Task was killed due to the node running low on memory|killed due to memory pressure|RayOutOfMemoryError"
    r"|The node was low on resource: memory|MemoryLimitExceeded|OutOfMemoryError: .{0,40}node running low on memory"
)
_SRUN = re.compile(r"srun: error: (?P<host>[\w.-]+): tasks? [\d,-]+: Out Of Memory")
_CERTAIN_RSS = re.compile(r"anon-rss:(\d{1,20})\s?(kB)")

# Killed with signal 9; memory is the usual reason, not the only one.
_KILLED = re.compile(
    r"failed \(exitcode: (?P<a>-9|137)\)(?: local_rank: (?P<local>\d{1,4}))?(?: \(pid: (?P<pid_a>\d{1,10})\))?"
    r"|exitcode\s*:\s*(?P<b>-9|137)\b(?: \(pid: (?P<pid_b>\d{1,10})\))?"
    r"|Signal 9 \(SIGKILL\) received by PID (?P<pid_c>\d{1,10})"
    r"|(?:exits? with return code|exit(?:ed)?(?: with)? (?:code|status)|exitCode|exit_code|ExitCode|[Ee]xit [Cc]ode|exit status|return code)"
    r"\s*[:=]?\s*(?P<d>-9|137)\b"
    r"|terminated with signal SIGKILL|died with <Signals\.SIGKILL: 9>|SIGKILL\(-9\)"
    r"|DataLoader worker \(pid\(?s?\)?\s*(?P<pid_e>\d{1,10})\) is killed by signal: Killed"
    r"|line \d+:\s+(?P<pid_f>\d{1,10}) Killed\b|^\s*Killed\s*$|\bterminated by signal 9\b|killed by signal 9\b"
)
# The launcher itself ends what does not stop: that kill says nothing of memory.
FORCED = re.compile(
    r"Unable to shutdown process (\d{1,10}) via .{0,40}(?:9|SIGKILL)|Sending process (\d{1,10}) closing signal SIGKILL|"
    r"[Ff]orcefully (?:killing|exiting) (?:process )?(\d{1,10})"
)

_ALLOCATOR = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate (?P<cpu>\d+) bytes"
    r"|\bnot enough memory: you tried to allocate (?P<old>\d+)\s?(?P<old_unit>GB|bytes)"
    r"|Unable to allocate " + SIZE + r" for an array|memory allocation of (?P<rust>\d+) bytes failed"
    r"|\[Errno 12\] Cannot allocate memory|std::bad_alloc|^MemoryError\b|(?<=: )MemoryError\b"
    r"|mmap (?P<mmap>\d+) bytes from file .{0,200}Cannot allocate memory|fork: (?:retry: )?(?:Resource temporarily unavailable|Cannot allocate memory)"
    r"|ArrayMemoryError|pyarrow\.lib\.ArrowMemoryError"
)

_SHARED = re.compile(
    r"insufficient shared memory \(shm\)|is killed by signal: Bus error"
    r"|unable to (?:write to file|allocate shared memory\(shm\) for file) <?/torch_\S{0,120}.{0,40}(?:No space left|Resource temporarily)"
    r"|posix_fallocate failed ?: No space left on device|Error while creating shared memory segment"
    r"|No space left on device.{0,80}/dev/shm|/dev/shm.{0,120}No space left on device"
    r"|failed to extend /dev/shm/nccl"
)


def read_killed(lines: Sequence[LogLine], at: int) -> Draft | None:
    """A process was killed: by the kernel, a cgroup, Slurm, Kubernetes, Ray, or by somebody unknown."""
    text = lines[at].text
    if (match := _CERTAIN.search(text)) and not _is_words(text[: match.start()]):
        draft = Draft(family=Family.HOST_KILL, sentence=text[match.start() :], is_certain_kill=True)
        draft.pid = int(match["pid"]) if match["pid"] else None
        if step := _SRUN.search(text):
            draft.host = step["host"]
        if rss := _CERTAIN_RSS.search(text):
            draft.allocated_bytes = parse_size(rss[1], rss[2])
        return draft
    match = _KILLED.search(text)
    if match is None or FORCED.search(text) or speaks_of_a_code(text[: match.start()], text[match.end() :]):
        return None
    groups = match.groupdict()
    draft = Draft(family=Family.HOST_KILL, sentence=text[match.start() :])
    codes = [groups[name] for name in ("a", "b", "d") if groups[name]]
    draft.exit_code = int(codes[0]) if codes else -9
    pids = [groups[name] for name in groups if name.startswith("pid_") and groups[name]]
    draft.pid = int(pids[0]) if pids else None
    draft.local_rank = int(groups["local"]) if groups["local"] else None
    return draft


def _is_words(before: str) -> bool:
    return is_comment(before) or is_code(before)


def read_allocator(lines: Sequence[LogLine], at: int) -> Draft | None:
    """malloc, mmap or fork failed on the host."""
    text = lines[at].text
    match = _ALLOCATOR.search(text)
    if match is None:
        return None
    draft = Draft(family=Family.HOST_ALLOCATOR, sentence=text[match.start() :])
    groups = match.groupdict()
    plain = groups["cpu"] or groups["rust"] or groups["mmap"]
    if plain:
        draft.requested_bytes = whole_bytes(plain)
    elif groups["old"]:
        draft.requested_bytes = parse_size(groups["old"], groups["old_unit"])
    elif "Unable to allocate" in match.group():
        draft.requested_bytes = size_in(re.compile(SIZE), match.group())
    draft.is_absurd_size = (draft.requested_bytes or 0) >= ABSURD_BYTES
    return draft


def read_shared(lines: Sequence[LogLine], at: int) -> Draft | None:
    """/dev/shm is full: a data-loader worker died of a bus error, or NCCL could not make its segment."""
    match = _SHARED.search(lines[at].text)
    if match is None:
        return None
    return Draft(family=Family.SHARED_MEMORY, sentence=lines[at].text[match.start() :])

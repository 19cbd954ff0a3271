"""Every out-of-memory message in a text, with rank, traceback and phase. Linear in the text."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distdoctor.oom.facts.events import ON_HOST, Family, Hints, OomEvent, RankFailure
from distdoctor.oom.messages import caching_allocator, driver, host, other_allocators
from distdoctor.oom.messages.cancelled import Endings
from distdoctor.oom.messages.context import Steps, hints_in
from distdoctor.oom.messages.draft import Draft
from distdoctor.oom.messages.elastic import FailureTable, read_failures
from distdoctor.oom.messages.fold import fold_events
from distdoctor.oom.messages.frames import begins_traceback, frames_after, frames_before, native_frames
from distdoctor.oom.messages.lines import NOBODY, LogLine, Origin, open_long_lines, split_lines
from distdoctor.oom.messages.memory_lines import MemoryLines
from distdoctor.oom.messages.phases import part_of, phase_of
from distdoctor.pasted import clean_pasted

# Lines that no reader needs to look at match none of this.
TRIGGER = re.compile(
    r"out of memory|Out of memory|Out Of Memory|out-of-memory|OUT_OF_(?:DEVICE_|HOST_)?MEMORY|OUT_OF_RESOURCES|would exceed allowed memory|RESOURCE_EXHAUSTED|Invalid buffer size"
    r"|ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED|INSUFFICIENT_RESOURCES|status_memory_error|cudaErrorMemoryAllocation|hipErrorOutOfMemory|AllocFailed"
    r"|valid cuDNN algorithm|[Hh]ostAlloc|[Hh]ostRegister|MallocHost|Failed to (?:CUDA|HIP|Cuda)|HCCL|oom[-_]kill|oom-killer|oomd|OOMKilled|oom_kill"
    r"|[Ee]xit ?[Cc]ode|exited with (?:code|status)|exit_code|ExitCode|exit status|return code|SIGKILL|signal 9|Killed|memory limit|TERM_MEMLIMIT|MEMLIMIT|PBS: job killed|MemoryLimit|memory pressure|OutOfMemoryError|running low on memory"
    r"|you tried to allocate|Unable to allocate|memory allocation of|Cannot allocate memory|bad_alloc|MemoryError|insufficient shared memory|Bus error"
    r"|No space left on device|shared memory segment|/dev/shm/nccl|startup is less than desired|cache blocks|KV cache memory: -|Resource temporarily unavailable|torch_\d+"
    r"|low on resource: memory|can NOT allocate memory block|amount of GPU memory \(\d"
    # A line that was cut within the first words of a message.
    r"|\b(?:CUDA|HIP|XPU|NPU) o[a-z ]{0,11}(?:\n|\Z)"
)

# Whatever matches TRIGGER holds one of these words. Looking for a word is some twenty times as fast as the pattern, and
# most lines of a log of millions hold none.
_WORDS = (
    "ut of memory",
    "ut Of Memory",
    "ut-of-memory",
    "OUT_OF_",
    "exceed allowed memory",
    "RESOURCE",
    "Invalid buffer size",
    "ALLOC_FAILED",
    "NOT_INITIALIZED",
    "status_memory_error",
    "cudaErrorMemoryAllocation",
    "OutOfMemory",
    "AllocFailed",
    "valid cuDNN algorithm",
    "ostAlloc",
    "ostRegister",
    "Failed to ",
    "HCCL",
    "oom",
    "OOMKilled",
    "xit code",
    "xitcode",
    "xit Code",
    "xitCode",
    "exit_code",
    "exit status",
    "exited with",
    "NOT allocate memory",
    "amount of GPU memory",
    "return code",
    "SIGKILL",
    "signal 9",
    "Killed",
    "memory limit",
    "MEMLIMIT",
    "PBS: job killed",
    "MemoryLimit",
    "memory pressure",
    "running low on memory",
    "tried to allocate",
    "Unable to allocate",
    "memory allocation of",
    "Cannot allocate memory",
    "bad_alloc",
    "MemoryError",
    "shared memory",
    "Bus error",
    "No space left on device",
    "/dev/shm/nccl",
    "startup is less than desired",
    "cache blocks",
    "KV cache memory",
    "Resource temporarily unavailable",
    "torch_",
    "CUDA o",
    "HIP o",
    "XPU o",
    "NPU o",
    "MallocHost",
    "NOT allocate memory block",
    "low on resource",
    "amount of GPU memory",
    "exited with ",
)

_READERS: tuple[Callable[[Sequence[LogLine], int], Draft | None], ...] = (
    caching_allocator.read,
    other_allocators.read_block_limit,
    other_allocators.read_async,
    other_allocators.read_mps,
    driver.read_nccl,
    driver.read_library,
    driver.read_driver,
    host.read_allocator,
    host.read_shared,
    host.read_killed,
    other_allocators.read_server,
    other_allocators.read_xla,
)

# A message as people quote it fits; more is repetition.
MAX_SENTENCE = 700
_NEARBY_LINES = 4
_NEARBY_CHARACTERS = 1500

# Events of one text that are kept. Our own bound: some thousand ranks, each with its traceback printed three times.
MAX_EVENTS = 20_000

# Steps behind a message that show the job at work: ranks are at most one step apart, and their lines overtake one
# another. Our own threshold.
_STEPS_AT_WORK = 3

# How trainers say that they are done.
_DONE = re.compile(
    r"\b[Tt]raining (?:is )?(?:completed?|finished|done)\b|\bdone training\b|\bfinished training\b|'train_runtime': ?\d"
    r"|\btrain_runtime\s*=|[Ff]it` stopped: `max_(?:steps|epochs)"
)
_FAILED = re.compile(
    r"ChildFailedError|srun: error:|failed \(exitcode:|exits with return code = [-1-9]|exited with (?:exit )?code [1-9]"
)

# Lines of another rank's making between the lines of one wrapped message. Our own bound.
_LINES_AHEAD = 400
_LINES_BACK = 400


NO_HINTS = Hints()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEvents:
    """What one text holds."""

    events: tuple[OomEvent, ...] = ()
    failures: tuple[RankFailure, ...] = ()
    hints: Hints = NO_HINTS
    num_left_out: int = 0


def read_messages(path: str, text: str) -> tuple[OomEvent, ...]:
    """The events of a text in order, each once however often it was printed. `path` names it, and may tell the rank."""
    return read_text(path, text).events


def read_text(path: str, text: str) -> TextEvents:
    """The same with what the text says of the job."""
    words = [word for word in _WORDS if word in text]
    if not words:
        return TextEvents()
    text = clean_pasted(open_long_lines(text))
    lines = split_lines(text, trigger=TRIGGER)
    by_origin: dict[Origin, list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        by_origin[line.origin].append(index)
    table = read_failures(lines)
    log = _Log(
        path=path,
        lines=lines,
        by_origin=by_origin,
        table=table,
        steps=Steps(lines),
        endings=Endings(lines),
        memory=MemoryLines(lines),
        last_end=_last_end(lines),
        has_failed=bool(table.rows) or _FAILED.search(text) is not None,
    )
    forced = {int(pid) for match in host.FORCED.finditer(text) for pid in match.groups() if pid}
    events: list[OomEvent] = []
    num_left_out = 0
    skip_until: dict[Origin, int] = {}
    for index, line in enumerate(lines):
        if not any(word in line.text for word in words) or not TRIGGER.search(line.text):
            continue
        if skip_until.get(line.origin, -1) >= index:
            continue
        found = _read_at(lines, index, by_origin[line.origin])
        if found is None or found[0].pid in forced:
            continue
        draft, last = found
        if draft.is_spoken_of and log.goes_on_after(index, has_traceback=False):
            continue
        skip_until[line.origin] = last
        if len(events) >= MAX_EVENTS:
            num_left_out += 1
            continue
        events.append(_event(log, draft, index, last))
    return TextEvents(
        events=fold_events(events),
        failures=log.table.rows,
        hints=hints_in(text) if events else NO_HINTS,
        num_left_out=num_left_out,
    )


def _read_at(lines: Sequence[LogLine], index: int, own: Sequence[int]) -> tuple[Draft, int] | None:
    """The message at a line, read from the lines of its rank, or from what follows without any prefix."""
    place = bisect_left(own, index)
    mine = [lines[each] for each in own[place : place + 30]]
    for reader in _READERS:
        draft = reader(mine, 0)
        if draft is None:
            continue
        last = own[min(len(own) - 1, place + draft.num_lines - 1)]
        if lines[index].origin != NOBODY and draft.total_bytes is None:
            # Pasted and wrapped by hand: only the first line kept its prefix.
            loose = _with_following(lines, index)
            other = reader(loose, 0) if len(loose) > 1 else None
            if other is not None and other.num_lines > draft.num_lines and other.total_bytes is not None:
                return other, index + other.num_lines - 1
        return draft, last
    return None


def _with_following(lines: Sequence[LogLine], index: int) -> list[LogLine]:
    origin = lines[index].origin
    loose = [lines[index]]
    for line in lines[index + 1 : index + 24]:
        if line.origin != NOBODY:
            break
        loose.append(LogLine(line.number, origin, line.text))
    return loose


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """A text taken apart once, for every message in it."""

    path: str
    lines: Sequence[LogLine]
    by_origin: dict[Origin, list[int]]
    table: FailureTable
    steps: Steps
    endings: Endings
    memory: MemoryLines
    last_end: int | None
    """The last line that says the job is done."""
    has_failed: bool
    """A launcher says that a rank failed."""

    def goes_on_after(self, index: int, *, has_traceback: bool) -> bool:
        """Whether the job is seen at work behind a line: it ends well, or does steps without a traceback before.

        Behind a traceback steps prove nothing: output that was buffered is written when the process ends.
        """
        end = self.last_end
        if end is not None and end > index:
            return True
        if has_traceback or self.has_failed:
            return False
        return self.steps.more_after(index) >= _STEPS_AT_WORK

    def around(self, index: int, num_lines: int) -> tuple[list[LogLine], list[LogLine]]:
        """Lines of the same rank before a message and behind it."""
        own = self.by_origin[self.lines[index].origin]
        place = bisect_left(own, index)
        end = place + num_lines
        before = [self.lines[each] for each in own[max(0, place - _LINES_BACK) : place]]
        return before, [self.lines[each] for each in own[end : end + _LINES_AHEAD]]


def _event(log: _Log, draft: Draft, index: int, last: int) -> OomEvent:
    line = log.lines[index]
    before, behind = log.around(index, draft.num_lines)
    frames = frames_before(before) or frames_after(behind, has_begun=begins_traceback(line))
    nearby = _nearby(log, before, behind, index, last)
    part, why = part_of(frames, nearby)
    steps_before = log.steps.before(index)
    phase, phase_why = phase_of(part, why, steps_before)
    row = log.table.row_at(line.number)
    ending = log.endings.before(index) if draft.family is Family.HOST_KILL else None
    return OomEvent(
        path=log.path,
        line=line.number,
        family=draft.family,
        sentence=draft.sentence.strip()[:MAX_SENTENCE],
        rank=_first(draft.rank, line.origin.rank, row.rank if row else None),
        local_rank=_first(draft.local_rank, line.origin.local_rank, row.local_rank if row else None),
        host=draft.host or line.origin.host or (row.host if row is not None else None),
        pid=_first(draft.pid, line.origin.pid, row.pid if row else None),
        gpu=draft.gpu,
        requested_bytes=draft.requested_bytes,
        total_bytes=draft.total_bytes,
        free_bytes=draft.free_bytes,
        process_bytes=draft.process_bytes,
        others=draft.others,
        allocated_bytes=draft.allocated_bytes,
        unallocated_bytes=draft.unallocated_bytes,
        private_pool_bytes=draft.private_pool_bytes,
        allowed_bytes=draft.allowed_bytes,
        other_allocations_bytes=draft.other_allocations_bytes,
        bogus=tuple(draft.bogus),
        is_absurd_size=draft.is_absurd_size,
        is_block_limit=draft.is_block_limit,
        frames=frames,
        native_frames=native_frames(behind),
        nearby=nearby,
        phase=phase,
        phase_why=phase_why,
        went_on=log.goes_on_after(index, has_traceback=bool(frames)),
        steps_before=steps_before,
        memory_trend=log.memory.before(index, line.origin) if draft.family not in ON_HOST else None,
        order=index,
        exit_code=draft.exit_code,
        is_certain_kill=draft.is_certain_kill,
        ended_by=f"{ending.words}, line {ending.line}" if ending is not None else None,
        is_end_sure=ending is None or ending.is_sure,
    )


def _nearby(log: _Log, before: Sequence[LogLine], behind: Sequence[LogLine], index: int, last: int) -> str:
    """Lines of this rank around the message, and the next ones of whoever."""
    near = [*before[-_NEARBY_LINES:], log.lines[index], *behind[:_NEARBY_LINES]]
    numbers = {each.number for each in near}
    beside = log.lines[last + 1 : last + 1 + _NEARBY_LINES]
    near += [each for each in beside if each.number not in numbers]
    return "\n".join(each.text[:400] for each in near)[:_NEARBY_CHARACTERS]


def _last_end(lines: Sequence[LogLine]) -> int | None:
    for at in range(len(lines) - 1, -1, -1):
        text = lines[at].text
        if ("train" in text or "raining" in text or "stopped" in text) and _DONE.search(text):
            return at
    return None


def _first(*values: int | None) -> int | None:
    """The first that is known."""
    return next((value for value in values if value is not None), None)

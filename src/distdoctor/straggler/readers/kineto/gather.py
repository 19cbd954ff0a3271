"""What matters of a trace's events, as arrays: work of the device, launches, step marks, collectives."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.readers.kineto.decode import (
    CollectiveArgs,
    DeviceArgs,
    Event,
    LaunchArgs,
    decode_args,
)
from distdoctor.straggler.readers.kineto.header import MAX_NAME_CHARACTERS, bounded_int
from distdoctor.straggler.readers.kineto.names import (
    CATEGORIES,
    COMMUNICATION_CALLS,
    CPU_MARKS,
    CPU_OPS,
    GC_MARK,
    GLOO_MARK,
    GLOO_SPANS,
    LOADER_MARK,
    P2P_MARKS,
    STEP_MARK,
    Cat,
    Work,
    element_bytes,
    is_launch,
    op_of,
    work_of_copy,
    work_of_kernel,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# A trace of hours is none; longer events are broken numbers. One day in microseconds.
MAX_DURATION_US = 86_400e6
# Microseconds since 1970 stay below this until the year 5138.
MAX_TIME_US = 1e17

# What is kept of one trace: steps and calls of the data loader, collectives, and work of the device (23 bytes each; a
# trace of 2 GB has some 1.2 million). Our own choices, far beyond what people record.
MAX_MARKS = 1_000_000
MAX_COLLECTIVES = 300_000
MAX_ACTIVITIES = 6_000_000

# No host has more; larger numbers are taken as this one.
_MAX_DEVICE = 1023

P2P_OPS = ("send", "recv", "send_recv")


class GroupKey(NamedTuple):
    """A process group as a kernel's arguments tell it; all None: they tell nothing."""

    name: str | None = None
    what: str | None = None
    ranks: str | None = None
    """A list in text, perhaps shortened: "[0, 1, 2, ..., 31]"."""
    size: int | None = None
    first_rank: int | None = None
    rank_stride: int | None = None
    source: int | None = None
    destination: int | None = None
    op: str | None = None
    """Only of point-to-point calls, whose pairs are groups of their own."""
    stream: int | None = None
    """Only without metadata: a communicator of torch has a stream of its own."""


@dataclass(slots=True)
class Activities:
    """Work of the device, shape (activities,)."""

    start_us: Floats
    dur_us: NDArray[np.float32]
    work: NDArray[np.int8]
    device: NDArray[np.int16]
    correlation: Ints


@dataclass(slots=True)
class Spans:
    """Intervals on the CPU."""

    start_us: list[float] = field(default_factory=list)
    dur_us: list[float] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """One more, unless its times are absurd or there are too many."""
        if is_time(event) and len(self.start_us) < MAX_MARKS:
            self.start_us.append(event.ts)
            self.dur_us.append(event.dur)

    def arrays(self) -> tuple[Floats, Floats]:
        """Starts and durations."""
        return np.array(self.start_us, dtype=np.float64), np.array(self.dur_us, dtype=np.float64)


@dataclass(slots=True)
class Collectives:
    """Collectives of one trace, in the order of the file."""

    at: list[int] = field(default_factory=list)
    """Index into the activities; of gloo: into its own spans."""
    op: list[str] = field(default_factory=list)
    group: list[GroupKey] = field(default_factory=list)
    seq: list[int] = field(default_factory=list)
    num_bytes: list[int] = field(default_factory=list)


class Gatherer:
    """Takes the events of one trace block by block."""

    def __init__(self) -> None:
        self.num_events = 0
        self.num_absurd = 0
        self.has_p2p_calls = False
        self.num_torch_events = 0
        """Events of categories that are known."""
        self.step_numbers: list[int] = []
        self.steps = Spans()
        self.loader = Spans()
        self.gc = Spans()
        self.gloo_spans = Spans()
        self.gloo = Collectives()
        self.nccl = Collectives()
        self.recording = Spans()
        self._op_starts = array("d")
        self._activities: list[Activities] = []
        self._num_activities = 0
        self._launches: list[tuple[Ints, Floats]] = []
        self._work: dict[str, Work] = {}
        self._copy: dict[str, Work] = {}
        self._is_launch: dict[str, bool] = {}
        self._groups: dict[GroupKey, GroupKey] = {}

    @property
    def is_full(self) -> bool:
        """No more can be kept of one trace."""
        return self._num_activities > MAX_ACTIVITIES or len(self.nccl.at) > MAX_COLLECTIVES

    def take(self, events: Sequence[Event]) -> None:
        """Keeps what matters of these events."""
        self.num_events += len(events)
        work: list[Event] = []
        kinds: list[Work] = []
        launches: list[Event] = []
        categories = CATEGORIES
        for event in events:
            cat = categories.get(event.cat)
            if cat is None:
                continue
            self.num_torch_events += 1
            if cat is Cat.CPU:
                if event.name.startswith(CPU_MARKS):
                    self._take_mark(event)
                elif event.name.startswith(P2P_MARKS):
                    self.has_p2p_calls = True
                elif event.cat in CPU_OPS and len(self._op_starts) < MAX_ACTIVITIES:
                    self._take_op(event)
            elif cat is Cat.RUNTIME:
                if self._launches_work(event.name):
                    launches.append(event)
            elif cat is Cat.SPAN:
                self.recording.add(event)
            else:
                work.append(event)
                kinds.append(self._kind(cat, event.name))
        if work:
            self._take_work(work, kinds)
        if launches:
            self._take_launches(launches)

    def activities(self) -> Activities:
        """All work of the device."""
        parts = self._activities
        if not parts:
            return Activities(
                *(np.empty(0, each) for each in (float, np.float32, np.int8, np.int16, np.int64))
            )
        return Activities(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in Activities.__slots__)
        )

    def op_starts(self) -> Floats:
        """When operations on the CPU began, ascending; calls of collectives are not among them."""
        return np.sort(np.array(self._op_starts, dtype=np.float64))

    def launches(self) -> tuple[Ints, Floats]:
        """Correlation ids and times of launches."""
        if not self._launches:
            return np.empty(0, dtype=np.int64), np.empty(0)
        return (
            np.concatenate([ids for ids, _ in self._launches]),
            np.concatenate([times for _, times in self._launches]),
        )

    def _launches_work(self, name: str) -> bool:
        known = self._is_launch.get(name)
        if known is None:
            known = self._is_launch[name] = is_launch(name)
        return known

    def _kind(self, cat: Cat, name: str) -> Work:
        if cat is Cat.MEMSET:
            return Work.OTHER_COPY
        cache = self._work if cat is Cat.KERNEL else self._copy
        kind = cache.get(name)
        if kind is None:
            kind = work_of_kernel(name) if cat is Cat.KERNEL else work_of_copy(name)
            if len(cache) < 100_000:  # names are few; a file made of different ones costs time, not memory
                cache[name] = kind
        return kind

    def _take_op(self, event: Event) -> None:
        if not event.name.startswith(COMMUNICATION_CALLS) and is_time(event):
            self._op_starts.append(event.ts)

    def _take_mark(self, event: Event) -> None:
        name = event.name
        if name.startswith(STEP_MARK):
            number = bounded_int(name[len(STEP_MARK) :], 0, 1 << 53)
            if number is None:
                return
            before = len(self.steps.start_us)
            self.steps.add(event)
            self.step_numbers += [number] * (len(self.steps.start_us) - before)
        elif name.startswith(LOADER_MARK):
            self.loader.add(event)
        elif name == GC_MARK:
            self.gc.add(event)
        elif name in GLOO_SPANS and is_time(event) and len(self.gloo.at) < MAX_COLLECTIVES:
            self.gloo_spans.add(event)
            args = decode_args([event.args], CollectiveArgs, CollectiveArgs())[0]
            op = op_of(name[len(GLOO_MARK) :])
            self._take_collective(self.gloo, len(self.gloo_spans.start_us) - 1, op, args, None)

    def _take_work(self, events: list[Event], kinds: list[Work]) -> None:
        args = decode_args([event.args for event in events], DeviceArgs, DeviceArgs())
        start = np.array([event.ts for event in events])
        dur = np.array([event.dur for event in events])
        work = np.array(kinds, dtype=np.int8)
        good = (np.abs(start) < MAX_TIME_US) & (dur >= 0) & (dur < MAX_DURATION_US)  # NaN compares false
        device = np.array([min(each.device, _MAX_DEVICE) for each in args], dtype=np.int16)
        correlation = np.array([each.correlation for each in args], dtype=np.int64)
        self.num_absurd += int(len(good) - np.count_nonzero(good))
        at = self._num_activities + np.cumsum(good) - 1
        nccl = np.flatnonzero((work == Work.NCCL) & good)
        if len(nccl):
            told = decode_args([events[index].args for index in nccl], CollectiveArgs, CollectiveArgs())
            for index, each in zip(nccl.tolist(), told, strict=True):
                op = _op_of_kernel(events[index].name, each.collective)
                self._take_collective(self.nccl, int(at[index]), op, each, args[index].stream)
        self._activities.append(
            Activities(start[good], dur[good].astype(np.float32), work[good], device[good], correlation[good])
        )
        self._num_activities += int(np.count_nonzero(good))

    def _take_launches(self, events: list[Event]) -> None:
        args = decode_args([event.args for event in events], LaunchArgs, LaunchArgs())
        ids = np.array([each.correlation for each in args], dtype=np.int64)
        times = np.array([event.ts for event in events])
        good = (ids > 0) & (np.abs(times) < MAX_TIME_US)
        self._launches.append((ids[good], times[good]))

    def _take_collective(
        self, to: Collectives, at: int, op: str, args: CollectiveArgs, stream: int | None
    ) -> None:
        key = _group_key(args, op, stream)
        seq = bounded_int(args.seq, 0, 1 << 53)
        to.at.append(at)
        to.op.append(op)
        to.group.append(self._groups.setdefault(key, key))
        to.seq.append(-1 if seq is None else seq)
        to.num_bytes.append(_num_bytes(args))


def is_time(event: Event) -> bool:
    """Whether start and duration are numbers that a clock could show."""
    return -MAX_TIME_US < event.ts < MAX_TIME_US and 0 <= event.dur < MAX_DURATION_US


# What NCCL does by sends and receives between all ranks of a group.
_BY_SENDS = ("all_to_all", "all_gather", "gather", "scatter", "send", "recv")


def _op_of_kernel(kernel: str, told: object) -> str:
    """The collective that torch told, else the kernel's own name.

    Several sends and receives in one kernel are told as "coalesced" or the like: "send_recv", whose peers are unknown.
    """
    own = op_of(kernel)
    if not isinstance(told, str):
        return own
    op = op_of(told)
    return "send_recv" if own == "send_recv" and op not in _BY_SENDS else op


def _group_key(args: CollectiveArgs, op: str, stream: int | None) -> GroupKey:
    name = _word(args.group_name)
    ranks = args.group_ranks if isinstance(args.group_ranks, str) and args.group_ranks else None
    if name is None and ranks is None:
        return GroupKey(stream=stream)
    is_p2p = op in P2P_OPS
    return GroupKey(
        name=name,
        what=_word(args.group_what),
        ranks=ranks,
        size=bounded_int(args.group_size, 1, 1_000_000),
        first_rank=bounded_int(args.first_rank, 0, 999_999),
        rank_stride=bounded_int(args.rank_stride, 1, 999_999),
        source=bounded_int(args.source, 0, 999_999) if is_p2p else None,
        destination=bounded_int(args.destination, 0, 999_999) if is_p2p else None,
        op=op if is_p2p else None,
    )


def _word(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value[:MAX_NAME_CHARACTERS] if isinstance(value, str) and value else None


def _num_bytes(args: CollectiveArgs) -> int:
    """The larger of both sides, as nccl-tests counts: what an all-gather gives, what a reduce-scatter takes."""
    size = element_bytes(args.dtype) if isinstance(args.dtype, str) else None
    counts = [bounded_int(value, 0, 1 << 50) for value in (args.in_elements, args.out_elements)]
    known = [count for count in counts if count is not None]
    if size is not None and known:
        return max(known) * size
    return _bytes_of_input(args)


def _bytes_of_input(args: CollectiveArgs) -> int:
    """Of gloo, which records shapes instead: `"Input Dims": [[262912]], "Input type": ["float"]`; -1: not told."""
    try:
        dims = msgspec.json.decode(args.input_dims, type=list[list[int]])
        types = msgspec.json.decode(args.input_type, type=list[str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return -1
    total = 0
    for shape, kind in zip(dims, types, strict=False):
        size = element_bytes(kind.removeprefix("c10::"))
        if size is None or len(shape) > 32:
            return -1
        count = size
        for length in shape:
            count *= max(0, length)
            if count > 1 << 50:
                return -1
        total += count
    return total if dims else -1

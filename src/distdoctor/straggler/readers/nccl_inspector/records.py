"""Lines of NCCL Inspector as compact columns: 24 bytes a collective, so that 10 million fit into 300 MB.

Three shapes exist. Up to v4.2 every line has `header`, `metadata` and either `coll_perf` or `p2p_perf`. Newer ones
also have a line with `dump_stats` before each batch; from v4.3 on only that line has `header` and `metadata`, and the
records behind it, as many as it says, belong to it.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from distdoctor.straggler.readers.file_lines import FileLines

# Records of all files together: 40 million take a gigabyte. Our own limit.
MAX_RECORDS = 40_000_000

# Different (communicator, operation, process): 16,384 ranks in ten communicators of three operations are 490,000.
MAX_MEMBERS = 1_000_000

MAX_RANKS = 1_000_000
MAX_NAME = 256
MAX_SEQ = 1 << 62

# A collective that takes longer than a week is no measurement.
MAX_DURATION_US = 7 * 86_400 * 1e6

# When it was measured on the host from the launch on, work that was queued before it on the GPU is in it: a late rank
# would look like a waiting one. "kernel_cpu" begins with the kernel, as the host saw it.
_HOST_TIMES = ("collective_cpu",)
_COARSE_TIMES = ("kernel_cpu",)

_OPS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "AllGatherV": "all_gather_v",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "All2All": "all_to_all",
    "SendRecv": "send_recv",
    "Send": "send",
    "Recv": "recv",
}


class _Header(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int
    comm_name: str | None = None


class _Metadata(msgspec.Struct):
    hostname: str | None = None
    pid: int | None = None
    dump_timestamp_us: float | None = None


class _Kernel(msgspec.Struct):
    kernel_stop_ts: float = 0.0


class _Trace(msgspec.Struct):
    kernel_events: list[_Kernel] = []


class _Coll(msgspec.Struct):
    coll: str
    coll_sn: int
    coll_exec_time_us: float
    coll_msg_size_bytes: int = -1
    coll_timing_source: str | None = None
    event_trace_ts: _Trace | None = None


class _Point(msgspec.Struct):
    p2p: str | None = None


class _Stats(msgspec.Struct):
    coll_records: int = 0
    p2p_records: int = 0
    proxy_records: int = 0
    coll_dropped_total: int = 0


class _Proxy(msgspec.Struct):
    record_type: str | None = None


class _Record(msgspec.Struct):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Coll | None = None
    p2p_perf: _Point | None = None
    proxy_trace: _Proxy | None = None
    dump_stats: _Stats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process' part in one kind of collective of one communicator.

    Serial numbers count each kind of collective of a communicator on its own (`comm->seqNumber[func]` in NCCL).
    """

    comm: str
    num_ranks: int
    op: str
    rank: int
    """In the communicator."""
    host: str | None
    pid: int | None
    file: int


@dataclass(slots=True)
class Records:
    """Columns of all records, in the order in which they were read, and what was left out."""

    members: list[Member] = field(default_factory=list)
    member: array[int] = field(default_factory=lambda: array("i"))
    """Index into `members`."""
    seq: array[int] = field(default_factory=lambda: array("q"))
    duration_us: array[float] = field(default_factory=lambda: array("f"))
    num_bytes: array[int] = field(default_factory=lambda: array("q"))
    end_s: array[float] | None = None
    comm_names: dict[str, str] = field(default_factory=dict)
    dumped_us: dict[tuple[str | None, int | None], tuple[float, float]] = field(default_factory=dict)
    """(host, pid): first and last time at which records were written."""
    overwritten: dict[tuple[str, int], int] = field(default_factory=dict)
    """(communicator, rank in it): records lost in the ring buffer."""
    out_of_order: set[int] = field(default_factory=set)
    """Members whose serial numbers do not only rise."""
    dropped: Counter[str] = field(default_factory=Counter)
    """What was left out, in words."""
    _index: dict[tuple[str, int, str, int, str | None, int | None, int], int] = field(default_factory=dict)
    _last_seq: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.member)

    def member_index(self, header: _Header, metadata: _Metadata | None, op: str, file: int) -> int | None:
        """Which member a record is of; None when there are too many of them."""
        host = metadata.hostname if metadata else None
        pid = metadata.pid if metadata else None
        key = (header.id, header.n_ranks, op, header.rank, host, pid, file)
        index = self._index.get(key)
        if index is None:
            if len(self.members) >= MAX_MEMBERS:
                return None
            index = self._index[key] = len(self.members)
            self._last_seq.append(-1)
            self.members.append(
                Member(
                    comm=header.id,
                    num_ranks=header.n_ranks,
                    op=op,
                    rank=header.rank,
                    host=host,
                    pid=pid,
                    file=file,
                )
            )
            if header.comm_name and header.comm_name != "unknown":
                self.comm_names[header.id] = header.comm_name[:MAX_NAME]
        return index

    def add(self, index: int, coll: _Coll) -> None:
        """One collective of a member."""
        if coll.coll_sn <= self._last_seq[index]:
            self.out_of_order.add(index)
        self._last_seq[index] = coll.coll_sn
        self.member.append(index)
        self.seq.append(coll.coll_sn)
        self.duration_us.append(coll.coll_exec_time_us)
        size = coll.coll_msg_size_bytes
        self.num_bytes.append(size if 0 <= size < MAX_SEQ else -1)
        end = _end_s(coll.event_trace_ts)
        if self.end_s is None and end is not None:
            self.end_s = array("d", [math.nan]) * (len(self.member) - 1)
        if self.end_s is not None:
            self.end_s.append(math.nan if end is None else end)


def read_records(file: FileLines, number: int, records: Records) -> int:
    """Adds the collectives of one file to `records`; how many there were. Raises InputError."""
    decode = msgspec.json.Decoder(_Record).decode
    batch: _Record | None = None
    left = 0
    num_read = num_bad = 0
    last_is_bad = False
    for line in file.lines():
        if len(records) >= MAX_RECORDS:
            file.tell(f"reading stopped at {MAX_RECORDS:,} records in all")
            break
        try:
            record = decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            num_bad += 1
            last_is_bad = True
            continue
        last_is_bad = False
        stats = record.dump_stats
        if stats is not None:
            batch = record
            left = stats.coll_records + stats.p2p_records + stats.proxy_records
            if record.header is not None and stats.coll_dropped_total > 0:
                records.overwritten[record.header.id, record.header.rank] = stats.coll_dropped_total
            continue
        header, metadata = record.header, record.metadata
        if header is None and batch is not None and left > 0:
            header, metadata = batch.header, batch.metadata
            left -= 1
        num_read += _take(record, header, metadata, number, records)
    if num_bad and not (num_bad == 1 and last_is_bad and file.ended_in_a_line):
        records.dropped["lines are no records"] += num_bad - (last_is_bad and file.ended_in_a_line)
    if last_is_bad and file.ended_in_a_line:
        records.dropped["last lines are cut"] += 1
    return num_read


def _take(
    record: _Record, header: _Header | None, metadata: _Metadata | None, file: int, records: Records
) -> int:
    coll = record.coll_perf
    if coll is None:
        if record.p2p_perf is not None:
            records.dropped["point-to-point records"] += 1
        return 0
    if header is None:
        records.dropped["records stand behind no line that says whose they are"] += 1
        return 0
    reason = _wrong(header, metadata, coll)
    if reason is not None:
        records.dropped[reason] += 1
        return 0
    if coll.coll_timing_source in _COARSE_TIMES:
        records.dropped["records are timed by the host (kept)"] += 1
    index = records.member_index(header, metadata, op_name(coll.coll), file)
    if index is None:
        records.dropped["records are of more communicators than can be kept"] += 1
        return 0
    if metadata is not None and metadata.dump_timestamp_us is not None:
        _see_time(records, metadata, metadata.dump_timestamp_us)
    records.add(index, coll)
    return 1


def _wrong(header: _Header, metadata: _Metadata | None, coll: _Coll) -> str | None:
    if not 0 <= header.rank < header.n_ranks <= MAX_RANKS or not 0 <= coll.coll_sn < MAX_SEQ:
        return "records have impossible ranks or serial numbers"
    if len(header.id) > MAX_NAME or len(coll.coll) > MAX_NAME or not header.id.isprintable():
        return "records have impossible ranks or serial numbers"
    if metadata is not None:
        if metadata.hostname is not None and len(metadata.hostname) > MAX_NAME:
            return "records have impossible ranks or serial numbers"
        if metadata.pid is not None and not 0 <= metadata.pid < MAX_SEQ:
            return "records have impossible ranks or serial numbers"
    if header.n_ranks == 1:
        return "records are of communicators of one rank"
    if coll.coll_timing_source in _HOST_TIMES:
        return "records are timed from their launch, not from their start on the GPU"
    # 0 is what the plug-in writes when it has no start or no end.
    if not 0 < coll.coll_exec_time_us < MAX_DURATION_US:
        return "records have no duration"
    return None


def _see_time(records: Records, metadata: _Metadata, time_us: float) -> None:
    if not 0 < time_us < float(MAX_SEQ):
        return
    key = (metadata.hostname, metadata.pid)
    known = records.dumped_us.get(key)
    first, last = (time_us, time_us) if known is None else known
    records.dumped_us[key] = (min(first, time_us), max(last, time_us))


def _end_s(trace: _Trace | None) -> float | None:
    """When the last channel's kernel stopped, by the host's clock. `coll_stop_ts` is when the launch returned."""
    if trace is None or not trace.kernel_events:
        return None
    end_us = max(kernel.kernel_stop_ts for kernel in trace.kernel_events)
    return end_us / 1e6 if 0 < end_us < float(MAX_SEQ) else None


def op_name(name: str) -> str:
    """NCCL's name in PyTorch's spelling: "AllReduce" → "all_reduce"; unknown ones in lower case."""
    return _OPS.get(name, name.lower())
